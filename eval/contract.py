"""What models, tasks and results promise one another.

A task knows nothing of the kind of a model, a model nothing of tasks. Everything is counted in
bases, so that models with different tokens can be compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from carbon.genome import Reference, Variant
from carbon.inference.options import Mode, ProtocolName, Strands
from carbon.uncertainty import Estimate as Estimate
from carbon.uncertainty import Floats as Floats

Result = dict[str, Any]
"""What a task found for one example, as JSON: `id`, `group`, `score`, and what the task adds.

`score` is a number, higher for what the task calls positive or right; `label`, 0 or 1, where the
metric needs one. An example that could not be measured has `skipped`, the reason, and no score.
"""


class Reading(NamedTuple):
    """How variants are read.

    Attributes:
        protocol: `centered` or `right_end`.
        window_bp: of the whole window; for `right_end` what is read before the variant.
        strands: that are read; a delta is their mean.
    """

    protocol: ProtocolName
    window_bp: int
    strands: Strands


class Model(Protocol):
    """A distribution over DNA. Subclass it; the last two methods have a plain default.

    Attributes:
        name: as the report writes it.
        context_bp: bases that fit into one reading; None where there is no limit.
    """

    name: str
    context_bp: int | None

    def log_likelihoods(self, sequences: Sequence[str]) -> Floats:
        """Return the log-likelihood of whole sequences in nats, (n,); unknown bases count 0."""
        ...

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return the probabilities of A, C, G and T after each prompt, (n, 4); rows sum to 1."""
        ...

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Continue each prompt greedily by so many bases, in capitals.

        Args:
            prompts: DNA of any length.
            length_bp: bases to add.
            mode: `token` takes the most likely token, `base` the most likely base inside it; one
                and the same where a token is a base.
        """
        ...

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Return log-likelihood(ALT) - log-likelihood(REF) in nats of each variant, in order.

        Likelihoods are those of the chain. None where a variant has no score: it is not of ACGT,
        its window does not fit, or the contig ends before the alleles differ. `reference` is asked
        for `contig_lengths_bp`, `fetch` and `check_ref` only.
        """
        ...

    def differences(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Return log-likelihood(first) - log-likelihood(second) of each pair in nats, (n,).

        A model that can read what both begin with but once does so.
        """
        both = self.log_likelihoods([sequence for pair in pairs for sequence in pair])
        return both[0::2] - both[1::2]

    def recall(self, prompt: str, length_bp: int, endings: Sequence[str]) -> tuple[str, Floats]:
        """Continue a prompt greedily, and tell how likely some endings of it would be.

        A model that can do both with one reading of the prompt does so.

        Returns:
            The continuation of `length_bp` bases, and log p(ending | prompt) in nats, (endings,).
        """
        both = self.log_likelihoods([prompt, *(prompt + ending for ending in endings)])
        return self.generate([prompt], length_bp)[0], both[1:] - both[0]


@dataclass(frozen=True)
class Options:
    """How a task takes its examples.

    Attributes:
        max_samples: most examples; which ones follows from the seed. All if None.
        seed: of that choice.
        reference: FASTA (indexed) of the variants; None where the rows hold their windows.
        sizes: what a task calls its sizes, such as `context_bp` of Genomic-NIAH; a preset's.
    """

    max_samples: int | None = None
    seed: int = 0
    reference: Path | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Example:
    """One question to a model.

    Attributes:
        id: unique in the task and the same in every run.
        group: species, region, level: what the report tells apart; "" where there is one.
        data: what the task's `run` needs.
        needs_bp: bases that a model must hold to be asked; the runner skips what does not fit.
    """

    id: str
    group: str
    data: Mapping[str, Any]
    needs_bp: int = 0


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


@dataclass(frozen=True)
class Summary:
    """What a task says about a model.

    Attributes:
        value: the headline, by the task's metric, with its interval.
        others: further numbers by name, such as `auprc` or `base_mode`.
        groups: tables: name of the table (`species`, `level`) to group to estimate.
        curves: lines by name: `roc`, `precision_recall`, `recovery_by_position`.
        grids: maps by name: `depth_by_length`.
        notes: sentences that the report must show.
    """

    value: Estimate
    others: dict[str, Estimate] = field(default_factory=dict)
    groups: dict[str, dict[str, Estimate]] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    grids: dict[str, Grid] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BuildReport:
    """What a builder wrote.

    Attributes:
        output: the Parquet file; beside it lies `<name>.json` with all of this.
        rows: how many it holds.
        dropped: reason to count of what was left out.
        inputs: file name to SHA-256.
        settings: seed, sizes and whatever else the bytes follow from.
    """

    output: Path
    rows: int
    dropped: dict[str, int]
    inputs: dict[str, str]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One of the measures, under its published protocol.

    Attributes:
        name: of its folder.
        version: raised when numbers change meaning.
        axis: of the radar: `generation`, `variants`, `perturbation`, `long context`.
        measures: one sentence.
        metric: a name in `eval.metrics.METRICS`, of results' `score` (and `label`).
        chance: what a model that knows nothing gets; None where it depends on the data.
        published: name of a model to its published value, on the metric's own scale (0 to 1).
        citation: of the published values.
        columns: what a dataset must have, with the type of a row's value.
        hub_id: the published dataset.
        hub_file: the Parquet file in it.
        read: a Parquet file or folder, or a Hub id, to the table.
        build: from primary sources to a Parquet file with these columns.
        examples: questions of a table, in an order that only the options change.
        run: one result an example, in order, as soon as it is known.
        summarise: from results without `skipped`.
        cluster: the key of a result whose values are drawn whole in the bootstrap, such as
            `chrom`; None for examples that are independent.
    """

    name: str
    version: str
    axis: str
    measures: str
    metric: str
    chance: float | None
    published: dict[str, float]
    citation: str
    columns: dict[str, type]
    hub_id: str | None
    hub_file: str | None
    read: Callable[[Path | str], pa.Table]
    build: Callable[..., BuildReport]
    examples: Callable[[pa.Table, Options], list[Example]]
    run: Callable[[Model, Sequence[Example]], Iterator[Result]]
    summarise: Callable[[Sequence[Result]], Summary]
    cluster: str | None = None
