"""Put the folder of the bundled model together: weights, card, recipe, and the held-out contig.

Equal input gives equal bytes: the folder holds no time and no path of the machine.
"""

import argparse
import gzip
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from carbon.console import Parser, run_command
from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.genome import Reference, read_annotation
from carbon.genome.sequences import open_text, read_records
from carbon.io.files import atomic_folder, sha256_of_file
from carbon.model import model_folder
from carbon.pretrained import BUNDLED_MODELS, RESULTS, Entry
from carbon.reports.card import card_front
from carbon.tokenizer import K
from train.config import TrainConfig

MOST_WEIGHTS_BYTES = 10_000_000
MOST_GENOME_BYTES = 400_000
_LINE_BP = 60
_PATHS = {"path", "genome", "annotation", "output"}  # keys of a manifest that hold paths
_HEADLINES = {
    "heldout heldout_likelihood yeast": ("nats_per_base", "Nats per held-out base"),
    "heldout genome_recovery yeast": ("accuracy", "Recovery of the next 30 bases"),
    "heldout consequences yeast groups damage stop_gained": ("roc_auc", "AUROC of new stop codons"),
}
"""Results that stand in the metadata of the card, with their metric and name."""
VARIANT_SCORES = "variant_scores"
"""Evaluation by `bench/known_variants.py`."""


def main(argv: list[str] | None = None) -> int:
    """Write the folder; return the exit code."""
    parser = Parser(prog="python runs/yeast_model.py", description=__doc__)
    for name, help_text in {
        "genome": "FASTA with the held-out contig",
        "annotation": "GTF with its genes",
        "corpus": "that the model was trained on",
        "run": "folder of the training run",
        "work": "folder with export/, model/ and eval/",
        "output": "folder to write",
    }.items():
        parser.add_argument(f"--{name}", type=Path, required=True, help=help_text)
    return run_command(lambda: print(make_folder(parser.parse_args(argv))))


def make_folder(parts: argparse.Namespace, entry: Entry = BUNDLED_MODELS["yeast"]) -> Path:
    """Write the folder of a bundled model, whole or not at all, and return its path.

    Args:
        parts: paths by the names of the options: `work` has `export`, with the card of the run,
            `model`, with the rounded weights, and `eval`, with a folder for each evaluation.
        entry: of the bundled model.

    Raises:
        UserError: the folder exists, the corpus was built from other files, a file lacks the
            contig, or a file is larger than a bundled model may have.
    """
    check_corpus(parts.corpus, parts.genome, parts.annotation)
    paths = sorted((parts.work / "eval").glob(f"*/{RESULTS}"))
    results = {path.parent.name: json.loads(path.read_text("utf-8")) for path in paths}
    neutral = ["output='runs/yeast'", "data.corpus='corpus'"]
    config = TrainConfig.load(parts.run / "config.toml", neutral)
    export, contig = parts.work / "export", entry.held_out_contig
    with atomic_folder(parts.output) as folder:
        shutil.copytree(parts.work / "model", folder, dirs_exist_ok=True)
        shutil.copyfile(export / "curves.png", folder / "curves.png")
        parameters = model_folder(folder).num_parameters
        run_card = (export / "README.md").read_text("utf-8")
        for name, text in {
            "recipe.toml": config.to_toml(),
            "corpus.json": _json(without_folders(read_manifest(parts.corpus))),
            RESULTS: _json(results),
            "README.md": card(entry, config, parameters, results, run_card),
            entry.variants_file: vcf_of(entry),
        }.items():
            (folder / name).write_text(text, encoding="utf-8")
        _write_gzip(folder / entry.genome_file, sequence_of(parts.genome, contig))
        _write_gzip(folder / entry.annotation_file, lines_of(parts.annotation, contig))
        _check(folder, entry)
        for path in folder.iterdir():
            path.chmod(0o644)  # safetensors gives its files to the owner alone
    return Path(parts.output)


def check_corpus(corpus: Path, *files: Path) -> None:
    """Raise UserError unless a corpus was built from some files."""
    inputs = read_manifest(corpus)["inputs"]
    built_from = {file["sha256"] for each in inputs for file in each["files"]}
    for path in files:
        if sha256_of_file(path) not in built_from:
            raise UserError(
                f"{corpus}: was not built from {path}; give the files it was built from"
            )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _write_gzip(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def without_folders(value: Any, key: str = "") -> Any:
    """Return a manifest that names files and no folders.

    >>> without_folders({"inputs": [{"path": "/home/me/a.fa", "bytes": 3}]})
    {'inputs': [{'path': 'a.fa', 'bytes': 3}]}
    """
    if isinstance(value, Mapping):
        return {name: without_folders(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [without_folders(each, key) for each in value]
    return Path(value).name if key in _PATHS and isinstance(value, str) else value


def sequence_of(genome: Path, contig: str) -> str:
    """Return one contig of a FASTA as FASTA, with its own header.

    Raises:
        UserError: the file lacks the contig.
    """
    for record in read_records(genome):
        if record.name == contig:
            header = f">{record.name} {record.description}".rstrip()
            starts = range(0, len(record.bases), _LINE_BP)
            return "\n".join([header, *(record.bases[s : s + _LINE_BP] for s in starts), ""])
    raise UserError(f"{genome}: has no contig {contig}; give the genome of the recipe")


def lines_of(annotation: Path, contig: str) -> str:
    """Return the lines of one contig of a GTF or GFF3, after the file's directives."""
    with open_text(annotation) as lines:
        return "".join(line for line in lines if line.startswith(("#!", f"{contig}\t")))


def vcf_of(entry: Entry) -> str:
    """Return the example variants of an entry as VCF 4.2."""
    lines = ["##fileformat=VCFv4.2", f"##contig=<ID={entry.held_out_contig}>"]
    lines.append("\t".join(("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO")))
    for position, ref, alt in entry.example_variants:
        fields = (entry.held_out_contig, str(position), ".", ref, alt, ".", ".", ".")
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"


def _check(folder: Path, entry: Entry) -> None:
    """Raise UserError if a file cannot be read as its format, or is too large."""
    paths = [folder / name for name in (entry.genome_file, entry.annotation_file)]
    with Reference(paths[0]) as reference:
        read_annotation(paths[1], reference)
    weights_bytes = (folder / "model.safetensors").stat().st_size
    genome_bytes = sum(path.stat().st_size for path in paths)
    for what, num_bytes, most in (
        ("the weights", weights_bytes, MOST_WEIGHTS_BYTES),
        ("contig and genes", genome_bytes, MOST_GENOME_BYTES),
    ):
        if num_bytes > most:
            raise UserError(f"{what} have {num_bytes:,} bytes; a bundled model may have {most:,}")


def card(
    entry: Entry, config: TrainConfig, parameters: int, results: Mapping[str, Any], run_card: str
) -> str:
    """Return the model card, in Markdown.

    Args:
        entry: of the bundled model.
        config: of the run.
        parameters: of the network.
        results: by evaluation, then by task.
        run_card: the card of the run, whose sections on training, data and results are copied.
    """
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    others = {name: each for name, each in results.items() if name != VARIANT_SCORES}
    scored = results.get(VARIANT_SCORES, {})
    parts = (part.partition("\n") for part in run_card.split("\n## ")[1:])
    return environment.get_template("yeast_card.md").render(
        front=front(entry, results),
        entry=entry,
        parameters=parameters,
        k=K,
        tokens=config.longest_context_tokens,
        overlap=overlap_of(results),
        estimates=estimates_of(others),
        variant_scores=scored,
        score_names=list(dict.fromkeys(name for each in scored.values() for name in each)),
        number=lambda estimate, key: f"{estimate[key]:.4f}" if key in estimate else "",
        interval=lambda each: f"{each['value']:.3f} [{each['low']:.3f}, {each['high']:.3f}]",
        sections={name: text for name, _, text in parts},
    )


def front(entry: Entry, results: Mapping[str, Any]) -> str:
    """Return the metadata of the card, with the headline numbers where the Hub expects them."""
    dataset = f"chromosome {entry.held_out_contig} of {entry.organism}, {entry.assembly}"
    found = {" ".join(names): estimate["value"] for names, estimate in estimates_of(results)}
    metrics = "".join(
        f"    - type: {kind}\n      name: {name}\n      value: {found[measure]:.4f}\n"
        for measure, (kind, name) in _HEADLINES.items()
        if measure in found
    )
    measured = (
        f"model-index:\n- name: {entry.name}\n  results:\n"
        f"  - task:\n      type: text-generation\n"
        f"    dataset:\n      type: held-out-chromosome\n      name: {dataset}\n"
        f"    metrics:\n{metrics}"
    )
    return card_front("transformers", "text-generation", "apache-2.0", measured if metrics else "")


def overlap_of(results: Mapping[str, Any]) -> str:
    """Return the note on 31-mers of the held-out sequence that occur in training records."""
    notes: list[str] = results["heldout"]["tasks"]["heldout_likelihood"]["notes"]
    return next(note for note in notes if "31-mer" in note)


def estimates_of(value: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every estimate in some results with the names on its path; lists count from 0.

    The keys `tasks` and `values` are left out of the names.
    """
    if isinstance(value, list):
        value = {str(number): each for number, each in enumerate(value)}
    if not isinstance(value, Mapping):
        return
    if isinstance(value.get("value"), float):
        yield names, value
    for name, each in value.items():
        yield from estimates_of(each, names if name in ("tasks", "values") else (*names, name))


if __name__ == "__main__":
    sys.exit(main())
