"""Embeddings: a map of sequences by their embeddings."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from carbon.genome import SequenceRecord, fasta_text
from carbon.inference.options import POOLS
from demo.fields import Field, Values
from demo.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, Figure, figure, plain
from demo.labelled_sequences import labelled_in_files, labelled_pieces
from demo.markup import download, facts, shortened, table, tsv
from demo.panel import Command, Example, Panel, Progress, Result, View
from demo.principal_components import principal_components
from demo.uploads import FASTA_ENDINGS

_FASTA = "sequences.fa"
_ALL_LAYERS = "all and the last norm"
_MOST_SEQUENCES = 200
_MOST_BP = 3000
_LEAST_SEQUENCES = 3
_COLORS = (BLUE, ORANGE, GREEN, PURPLE, "#E69F00", "#56B4E9", GREY)
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x", "star")


class Embeddings(Panel):
    """Draws sequences by the first two principal components of their vectors."""

    invitation = "See which sequences it finds alike"
    sentence = (
        "Each sequence is a vector inside the model; the map shows them by the two directions in "
        "which they differ most (PCA), coloured by label."
    )
    run_label = "Draw the map"
    views: ClassVar[tuple[View, ...]] = (
        View("map", "figure", "Map of the sequences"),
        View("facts", "html", "The map in numbers"),
        View("downloads", "html", "Download"),
        View("table", "html", "Sequences and where they are"),
    )
    more: ClassVar[tuple[Example, ...]] = (
        Example("Longer pieces", {"piece_bp": 120}),
        Example("Before the first layer", {"layer": "0"}),
        Example("The state at the end", {"pool": "end"}),
    )

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        num_layers = self.lab.model.model.network.config.num_hidden_layers
        layers = (_ALL_LAYERS, *map(str, range(num_layers + 1)))
        return (
            Field("per_kind", "Pieces of each kind", 20, "integer", least=2, most=60,
                  info="coding, intron and intergenic pieces of the genome that is there"),
            Field("piece_bp", "Bases of a piece", 60, "integer", least=12, most=600,
                  info="what is shorter than this is passed over"),
            Field("pool", "Vector", "mean", "choice", tuple(POOLS),
                  info="mean over the bases, state of the last 6-mer, or of </dna> after it"),
            Field("layer", "Behind layers", _ALL_LAYERS, "choice", layers, more=True),
            Field("sequences", "Your own sequences, label=... in headers", [], "files",
                  FASTA_ENDINGS,
                  info=f"{_MOST_SEQUENCES} of {_MOST_BP:,} bases at most; the label is label=... "
                  "in the header, else what follows the name there, else the file's name"),
        )  # fmt: skip

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield progress, then the map of all sequences."""
        records = self._records(values)
        vectors: list[NDArray[np.float32]] = []
        for record in records:
            vectors += self.lab.model.embed([record.bases], **_options(values))
            yield Progress(len(vectors), len(records), "sequences")
        places, explained = principal_components(np.stack(vectors))
        yield {
            "names": [record.name for record in records],
            "labels": [record.description for record in records],
            "lengths_bp": [len(record.bases) for record in records],
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
            "explained": explained.tolist(),
            "width": len(vectors[0]),
        }

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return map, facts, downloads and table."""
        labels = result["labels"]
        counts = ", ".join(f"{label} {labels.count(label)}" for label in dict.fromkeys(labels))
        columns = ("names", "labels", "lengths_bp", "x", "y")
        rows = list(zip(*(result[name] for name in columns), strict=True))
        header = ("name", "label", "bases", "pc1", "pc2")
        saved = download("map.tsv", tsv(header, rows))
        labelled = ((f"{r.name} label={r.description}", r.bases) for r in self._records(values))
        return {
            "map": _map(result),
            "facts": facts([
                ("sequences", f"{len(rows):,}"),
                ("numbers in a vector", f"{result['width']:,}"),
                ("variance shown", f"{100 * sum(result['explained']):.1f} %"),
                ("labels", counts),
            ]),
            "downloads": saved + download(_FASTA, fasta_text(labelled)),
            "table": f'<div class="tall">{table(header, rows)}</div>',
        }  # fmt: skip

    def python(self, values: Values) -> str:
        """Return the program."""
        options = "".join(f", {k}={v!r}" for k, v in _options(values).items() if v is not None)
        return (
            "import carbon\n"
            "import numpy as np\n"
            "from carbon.genome import read_sequences\n"
            "from sklearn.decomposition import PCA\n\n"
            f"# {_FASTA}: download it on this page\n"
            f"names, sequences = zip(*read_sequences({_FASTA!r}))\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            f"vectors = np.stack(list(model.embed(sequences{options})))\n"
            'pca = PCA(2, svd_solver="full").fit(vectors.astype(float))\n'
            "for name, (x, y) in zip(names, pca.transform(vectors.astype(float))):\n"
            "    print(name, x, y)\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line."""
        options = _options(values)
        words = ["carbon", "embed", "--model", self.lab.model_name, _FASTA,
                 "--pool", options["pool"], "--output", "vectors.parquet"]  # fmt: skip
        if options["layer"] is not None:
            words += ["--layer", str(options["layer"])]
        return [f"# {_FASTA}: download it on this page", words]

    def _records(self, values: Values) -> list[SequenceRecord]:
        """Return the sequences to draw, with their labels as descriptions."""
        if files := values["sequences"]:
            return labelled_in_files(files, _LEAST_SEQUENCES, _MOST_SEQUENCES, _MOST_BP)
        asked = values["per_kind"], values["piece_bp"]
        return labelled_pieces(self.lab.genome, *asked, _LEAST_SEQUENCES)


def _options(values: Values) -> dict[str, Any]:
    layer = values["layer"]
    return {"pool": values["pool"], "layer": None if layer == _ALL_LAYERS else int(layer)}


def _map(result: Result) -> Figure:
    labels = result["labels"]
    traces = []
    for n, label in enumerate(dict.fromkeys(labels)):
        chosen = [i for i, own in enumerate(labels) if own == label]
        traces.append({
            "type": "scatter", "mode": "markers", "name": plain(shortened(label)),
            "x": [result["x"][i] for i in chosen], "y": [result["y"][i] for i in chosen],
            "text": [_hover(result, i) for i in chosen], "hoverinfo": "text",
            "marker": {"color": _COLORS[n % len(_COLORS)], "size": 9, "opacity": 0.8,
                       "symbol": _SYMBOLS[n % len(_SYMBOLS)]},
        })  # fmt: skip
    first, second = (f"{100 * share:.1f} %" for share in result["explained"])
    return figure(
        traces,
        height=460,
        showlegend=True,
        xaxis={"title": {"text": f"PC 1 ({first} of the variance)"}},
        yaxis={"title": {"text": f"PC 2 ({second})"}},
    )


def _hover(result: Result, at: int) -> str:
    lines = (result["names"][at], result["labels"][at], f"{result['lengths_bp'][at]:,} bases")
    return "<br>".join(plain(shortened(line)) for line in lines)
