"""Models, tasks and results.

A task does not depend on the kind of a model, and a model not on tasks. Everything is counted in
bases, so that models with different tokens can be compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from carbon.genome import Reference, Variant
from carbon.inference.options import PROTOCOLS, Mode, ProtocolName, Strands
from carbon.uncertainty import Estimate as Estimate
from carbon.uncertainty import Floats as Floats
from eval.tables import Row, drawn, read_table

Result = dict[str, Any]
"""The result of one example, as JSON: `id`, `group`, `score`, and keys of the task.

`score` is a number, higher for what the task calls positive or right unless its metric says
otherwise; `label`, 0 or 1, where the metric needs one. An example that could not be measured has
`skipped`, the reason, and no score.
"""

Features = Mapping[str, NDArray[np.float32]]
"""Names of layers to vectors, (sequences, width); one entry where there are no layers."""


class Reading(NamedTuple):
    """How variants are read.

    Attributes:
        protocol: `centered`, `right_end` or `tiled`, the last with its default grid.
        window_bp: of the whole window, or of a tile; for `right_end` the bases before the variant.
            0 for the default of the protocol, or for as many as fit into a shorter context.
        strands: that are read; a delta is their mean.
    """

    protocol: ProtocolName
    window_bp: int
    strands: Strands

    def fitting(self, context_bp: int | None) -> "Reading":
        """Return the same with a window in bases, for a model with such a context."""
        protocol = PROTOCOLS[self.protocol]
        if context_bp is None:
            fits_bp = protocol.default_window_bp
        else:
            fits_bp = protocol.fitting_window_bp(context_bp)
        return self._replace(window_bp=self.window_bp or fits_bp)


class Model:
    """A distribution over DNA. Subclass it; most methods have a default.

    Attributes:
        name: as the report writes it.
        context_bp: bases that fit into one forward pass; None without a limit.
    """

    name: str
    context_bp: int | None

    def base_log_likelihoods(self, sequences: Sequence[str]) -> list[Floats]:
        """Return the log-likelihood of every base in nats, 0 where unknown: (bases,) a sequence."""
        raise NotImplementedError

    def log_likelihoods(self, sequences: Sequence[str]) -> Floats:
        """Return the log-likelihood of whole sequences in nats, (n,); unknown bases count 0."""
        each = [bases.sum() for bases in self.base_log_likelihoods(sequences)]
        return np.array(each, dtype=np.float64)

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return the probabilities of A, C, G and T after each prompt, (n, 4); rows sum to 1."""
        raise NotImplementedError

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Continue each prompt greedily, in capitals.

        Args:
            prompts: DNA of any length.
            length_bp: bases to add.
            mode: `token` takes the most likely token, `base` the most likely base inside it; the
                same where a token is a base.
        """
        raise NotImplementedError

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Return log-likelihood(ALT) - log-likelihood(REF) in nats of each variant, in order.

        Likelihoods are conditional (`chain`). None where a variant has no score: it is not of ACGT,
        its window does not fit, or the contig ends before the alleles differ. Of `reference` only
        `contig_lengths_bp`, `fetch` and `check_ref` are called.
        """
        raise NotImplementedError

    def variant_values(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[Mapping[str, float] | None]:
        """Return the zero-shot scores of each variant by name, `delta` among them, in order.

        None where a variant has no score, as for `deltas`.
        """
        deltas = self.deltas(reference, variants, reading)
        return [None if delta is None else {"delta": delta} for delta in deltas]

    def allele_vectors(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]] | None] | None:
        """Return the embeddings of the window with REF and with ALT of each variant, in order.

        None where a variant has no window; None in place of the list if the model has no states.
        """
        return None

    def differences(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Return log-likelihood(first) - log-likelihood(second) of each pair in nats, (n,).

        A model that can share their common prefix does so.
        """
        both = self.log_likelihoods([sequence for pair in pairs for sequence in pair])
        return both[0::2] - both[1::2]

    def recall(self, prompt: str, length_bp: int, endings: Sequence[str]) -> tuple[str, Floats]:
        """Continue a prompt greedily, and return the likelihoods of some endings of it.

        A model that can do both with one forward pass of the prompt does so.

        Returns:
            The continuation of `length_bp` bases, and log p(ending | prompt) in nats, (endings,).
        """
        both = self.log_likelihoods([prompt, *(prompt + ending for ending in endings)])
        return self.generate([prompt], length_bp)[0], both[1:] - both[0]

    def word_probabilities(self, sequence: str, words: Sequence[str]) -> Floats | None:
        """Return p(word | the bases before it) at every place of a known sequence.

        Returns:
            (bases, words), NaN where it is unknown; None if the model has no such distribution.
        """
        return None

    def states(self, sequences: Sequence[str]) -> Mapping[str, Features] | None:
        """Return the hidden states of sequences by pool; None if the model has none."""
        return None

    def untrained(self, seed: int) -> "Model | None":
        """Return a model of the same shape with random weights; None if there is none."""
        return None

    def answer(self, task: "Task", examples: Sequence["Example"]) -> Iterator[Result]:
        """Yield one result a question, in order, as soon as it exists."""
        return task.run(self, examples)


@dataclass(frozen=True)
class Options:
    """Options that examples depend on.

    Attributes:
        max_samples: most examples, drawn by the seed. All if None.
        seed: of that draw.
        reference: FASTA (indexed) of the variants; None where the rows hold their windows.
        protocol: of the variants, with its default window, instead of the task's own.
        sizes: sizes by the names of the task, such as `context_bp` of Genomic-NIAH, of a preset.
        final: measure the chromosomes of the final test, not the development chromosomes, in tasks
            that divide them.
    """

    max_samples: int | None = None
    seed: int = 0
    reference: Path | None = None
    protocol: ProtocolName | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    final: bool = False

    def rows_of(self, table: pa.Table) -> list[Row]:
        """Return the rows to ask about, in order."""
        return [Row(table, number) for number in drawn(table.num_rows, self.max_samples, self.seed)]


@dataclass(frozen=True)
class Example:
    """One question to a model.

    Attributes:
        id: unique in the task and the same in every run.
        group: species, region, level: a row of the report's tables; "" where there is one.
        data: for the task's `run`.
        needs_bp: bases that a model's context must hold; the runner skips what does not fit.
        together: neighbours with the same name, if it is not empty, are answered by one call of
            `run`.
    """

    id: str
    group: str
    data: Mapping[str, Any]
    needs_bp: int = 0
    together: str = ""

    def result(self, **values: Any) -> Result:
        """Return a result of this example with further keys."""
        return {"id": self.id, "group": self.group, **values}


class Curve(NamedTuple):
    """A line of a figure, such as a ROC curve or recovery by position."""

    x_label: str
    y_label: str
    x: list[float]
    y: list[float]


class Grid(NamedTuple):
    """A map of values: `values[row][column]`, None where nothing was measured."""

    x_label: str
    y_label: str
    columns: list[str]
    rows: list[str]
    values: list[list[float | None]]


class Scatter(NamedTuple):
    """A map of points in a plane, each with the name of its class."""

    x: list[float]
    y: list[float]
    labels: list[str]


@dataclass(frozen=True)
class Summary:
    """The numbers of a task and a model.

    Attributes:
        value: the headline, by the task's metric, with its interval.
        others: further numbers by name, such as `auprc` or `base_mode`.
        groups: tables: name of the table (`species`, `level`) to group to estimate.
        curves: lines by name: `roc`, `precision_recall`, `recovery_by_position`.
        grids: maps by name: `depth_by_length`.
        scatters: points by name.
        notes: sentences that the report must show.
    """

    value: Estimate
    others: dict[str, Estimate] = field(default_factory=dict)
    groups: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    scatters: dict[str, Scatter] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BuildReport:
    """The report of a build.

    Attributes:
        output: the Parquet file; `<name>.json` next to it holds this report.
        rows: its number of rows.
        dropped: reason to the number of items left out.
        inputs: file name to SHA-256; files of one name have their paths.
        settings: seed, sizes and all other settings that the bytes follow from.
    """

    output: Path
    rows: int
    dropped: dict[str, int]
    inputs: dict[str, str]
    settings: dict[str, Any]


Run = Callable[[Model, Sequence[Example]], Iterator[Result]]
"""From a model and questions to one result a question, in order."""
Summarise = Callable[[Sequence[Result]], Summary]
"""From the results that are not skipped to their numbers."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task under its protocol.

    Attributes:
        name: of its folder.
        version: raised when numbers change meaning.
        axis: kind of ability: `generation`, `variants`, `perturbation`, `long context`, ...
        measures: one sentence.
        metric: a name in `eval.metrics.METRICS`, of results' `score` (and `label`).
        chance: value of a model that knows nothing; None where it depends on the data.
        columns: columns that a dataset must have, with the type of a row's value.
        build: from primary sources to a Parquet file with these columns. Its keywords are the
            options of `eval build`, and its docstring their help.
        examples: questions of a table, in an order that only the options change.
        run: one result an example, in order, as soon as it exists.
        summarise: from results without `skipped`.
        cluster: the key of a result whose values are drawn whole in the bootstrap, such as
            `chrom`; None for examples that are independent.
        published: name of a model to its published value, on the metric's own scale (0 to 1).
        citation: source of the published values, or of the protocol.
        hub_id: the published dataset.
        hub_file: the Parquet file in it.
        reads: a Parquet file or folder, or a Hub id, to the table, where reading the columns is not
            enough.
        baselines: functions that make further baselines, by name.
        markov: whether chance, GC and Markov models can answer it.
        divides_chromosomes: whether `--final` chooses other chromosomes.
    """

    name: str
    axis: str
    measures: str
    metric: str
    chance: float | None
    columns: Mapping[str, type]
    build: Callable[..., BuildReport]
    examples: Callable[[pa.Table, Options], list[Example]]
    run: Run
    summarise: Summarise
    version: str = "1"
    cluster: str | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    citation: str = "described in the task's README"
    hub_id: str | None = None
    hub_file: str | None = None
    reads: Callable[[Path | str], pa.Table] | None = None
    baselines: Mapping[str, Callable[[], Model]] = field(default_factory=dict)
    markov: bool = True
    divides_chromosomes: bool = False

    def read(self, source: Path | str) -> pa.Table:
        """Return the table of a Parquet file or folder, or of a Hub id.

        Raises:
            UserError: it does not exist, or it is not a dataset of this task.
        """
        return self.reads(source) if self.reads else read_table(source, self.columns, self.hub_file)
