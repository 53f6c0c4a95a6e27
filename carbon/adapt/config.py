"""A run of `carbon adapt` as data: the TOML, checked."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from carbon.adapt.choices import (
    BASELINES,
    CLASS_WEIGHTS,
    FORMATS,
    LEAKS,
    SPLITS,
    TOO_LONG,
    WAYS,
)
from carbon.adapt.examples import PARTS
from carbon.adapt.question import QUESTIONS
from carbon.adapt.transforms import TRANSFORMS
from carbon.config import OneOf, check, check_choices, check_given
from carbon.io.tables import any_of
from carbon.options import POOLS, STRANDS_READ


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitConfig:
    """Which examples are learned from, chosen by, and measured on.

    Attributes:
        by: key of `SPLITS`.
        column: of the parts (`column`), the groups (`group`) or the contigs (`contig`; of BED and
            VCF the contig, if none is named).
        validation: what the column says of the validation part, or its contigs or groups.
        test: of the test part.
        validation_share: of all examples (groups, contigs), where none are named.
        test_share: likewise.
        folds: 0, or so many equal parts, of which one is tested and the next chosen by.
        fold: that is tested, from 0.
        seed: of the hashes.
    """

    by: Annotated[str, OneOf(SPLITS)] = "random"
    column: str = ""
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    validation_share: float = 0.1
    test_share: float = 0.1
    folds: int = 0
    fold: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what belongs together."""
        check_choices(self)
        shares = (self.validation_share, self.test_share)
        check(
            min(shares) >= 0 and sum(shares) < 1,
            f"validation_share and test_share = {shares}: leave something to learn from",
        )
        check(self.folds == 0 or self.folds >= 3, f"folds = {self.folds}: give 0, or 3 or more")
        check(0 <= self.fold < max(self.folds, 1), f"fold = {self.fold}: give 0 to folds - 1")
        hashed = self.by in ("random", "group", "contig")
        check(not self.folds or hashed, f"folds: not with by = '{self.by}'")
        check(
            not (self.folds and (self.validation or self.test)),
            "folds: they choose the parts themselves; take out validation and test",
        )
        check(
            self.by not in ("column", "group") or bool(self.column),
            f"by = '{self.by}' needs the name of a column: column",
        )
        twice = sorted(set(self.validation) & set(self.test))
        check(not twice, f"{twice}: stands in validation and in test; keep one")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Where sequences and labels are.

    Attributes:
        path: a file or folder, or an id of the Hugging Face hub.
        files: in place of `path`, a file for each part: train, validation, test.
        format: key of `FORMATS`; by the ending, if none is given.
        folder: that the relative ones of `path`, `files`, `table` and `tables` begin in.
        table: labels of a FASTA: a CSV, TSV or Parquet file; by name where `name` is given, else
            in the order of the FASTA.
        tables: in place of `table`, one for each part of `files`.
        label_after: the label of a FASTA is what its names have behind the last of these letters.
        header: the names of the columns of a CSV or TSV whose first line is a row.
        keep: of columns of a table, the values that rows are read of; others are passed over.
        below: of columns of a table, numbers; rows that are not below are passed over.
        sequence: column of the sequences.
        name: column of the names; rows are numbered from 1 where there is none.
        labels: columns of the labels; of a BED by number from 1, or by the names in its first
            comment; of a VCF, keys of INFO.
        reference: FASTA of the sequences of a BED or VCF.
        contigs: what turns the file's names of contigs into the reference's, as in all commands.
        window_bp: bases around the middle of a place of a BED, all of it if 0; around a variant.
        dataset: configuration of a set of the hub, if it has several.
        revision: of the hub, the commit that is read.
        unknown: what stands in a table for a label that is not known.
        split: which part an example is for.
        leaks: key of `LEAKS`.
        leak_share: of the shorter's 31-mers, from which two sequences are nearly the same.
    """

    path: str = ""
    files: dict[str, str] = field(default_factory=dict)
    format: str = ""
    folder: str = ""
    table: str = ""
    tables: dict[str, str] = field(default_factory=dict)
    label_after: str = ""
    header: tuple[str, ...] = ()
    keep: dict[str, tuple[str, ...]] = field(default_factory=dict)
    below: dict[str, float] = field(default_factory=dict)
    sequence: str = "sequence"
    name: str = ""
    labels: tuple[str, ...] = ("label",)
    reference: str = ""
    contigs: str = ""
    window_bp: int = 0
    dataset: str = ""
    revision: str = ""
    unknown: tuple[str, ...] = ("", "NA", "NaN", "nan", ".")
    split: SplitConfig = field(default_factory=SplitConfig)
    leaks: Annotated[str, OneOf(LEAKS)] = "tell"
    leak_share: float = 0.5

    def __post_init__(self) -> None:
        """Check what belongs together."""
        check_choices(self)
        check(bool(self.path) != bool(self.files), "give either path, or files for each part")
        wrong = [part for part in self.files if part not in PARTS]
        check(not wrong, f"files: {wrong} are no parts; name {any_of(PARTS)}")
        check(
            (self.split.by == "files") == bool(self.files),
            "files and split.by = 'files' go together; give both or none",
        )
        check(
            not self.tables or self.tables.keys() == self.files.keys(),
            "tables: give one for each part of files",
        )
        check(
            bool(self.table) + bool(self.tables) + bool(self.label_after) <= 1,
            "give one of table, tables and label_after",
        )
        check(self.format in ("", *FORMATS), f"format = '{self.format}': one of {any_of(FORMATS)}")
        check(bool(self.labels), "labels: name one column or more")
        check(
            len(set(self.labels)) == len(self.labels), f"labels = {self.labels}: one stands twice"
        )
        check(self.window_bp >= 0, f"window_bp = {self.window_bp}: give 0 or more")
        check(0 < self.leak_share <= 1, f"leak_share = {self.leak_share}: give 0 to 1")

    def of_part(self, part: str) -> "DataConfig":
        """Return what is said of the file of one part."""
        return replace(
            self,
            path=self.files[part],
            table=self.tables.get(part, self.table),
            files={},
            tables={},
            split=replace(self.split, by="random"),
        )

    def at(self, path: str) -> str:
        """Return a path of the data, begun in their folder."""
        return str(Path(self.folder) / path) if self.folder else path


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionConfig:
    """What is asked.

    Attributes:
        kind: key of `QUESTIONS`.
        names: of the classes, as they stand in the file, in the order that they are to have (of two
            the second is the one whose probability is predicted); as found, sorted, if none.
        transform: of numbers, key of `TRANSFORMS`.
        loss: key of `LOSSES`; the kind's first, if none.
        class_weights: key of `CLASS_WEIGHTS`.
    """

    kind: Annotated[str, OneOf(QUESTIONS)]
    names: tuple[str, ...] = ()
    transform: Annotated[str, OneOf(TRANSFORMS)] = "z_score"
    loss: str = ""
    class_weights: Annotated[str, OneOf(CLASS_WEIGHTS)] = "none"

    def __post_init__(self) -> None:
        """Check what belongs together."""
        check_choices(self)
        kind = QUESTIONS[self.kind]
        check(
            self.loss in ("", *kind.losses),
            f"loss = '{self.loss}': kind = '{self.kind}' has {', '.join(kind.losses)}",
        )
        check(len(set(self.names)) == len(self.names), f"names = {self.names}: one stands twice")
        check(
            not (kind.is_number and self.class_weights != "none"),
            "class_weights: numbers have no classes; take it out",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class WayConfig:
    """How a model is made to answer.

    Attributes:
        name: key of `WAYS`.
        pool: which states make a sequence's vector, key of `carbon.options.POOLS`.
        layer: whose states are read, from 1; the last if None, of `probe` the one that is best on
            the validation part.
        rank: of the adapters of `lora`.
        alpha: their scale, times 1 / rank; twice the rank if None.
        dropout: before the adapters.
        targets: names of the modules that have an adapter; every linear one of the decoder if none.
        learning_rate: the highest; that of `WAYS` if None.
        batch: sequences a step, over all processes; of `WAYS` if None.
        micro_batch: sequences read at once by a process; as many as fit the batch if None.
        epochs: most times that the train part is read; of `WAYS` if None.
        patience: looks at the validation part without a better score, after which learning ends.
        looks_per_epoch: at the validation part.
        weight_decay: of matrices.
        warmup_share: of the steps, over which the rate rises.
        clip: of the gradient's norm.
        augment: half of what is learned from is read as its reverse complement.
        strands: that are read for a prediction, key of `STRANDS_READ`; of both, the mean.
        too_long: key of `TOO_LONG`.
    """

    name: Annotated[str, OneOf(WAYS)] = "lora"
    pool: Annotated[str, OneOf(POOLS)] = "mean"
    layer: int | None = None
    rank: int = 8
    alpha: float | None = None
    dropout: float = 0.05
    targets: tuple[str, ...] = ()
    learning_rate: float | None = None
    batch: int | None = None
    micro_batch: int | None = None
    epochs: float | None = None
    patience: int = 5
    looks_per_epoch: int = 2
    weight_decay: float = 0.01
    warmup_share: float = 0.06
    clip: float = 1.0
    augment: bool = True
    strands: Annotated[str, OneOf(STRANDS_READ)] = "both"
    too_long: Annotated[str, OneOf(TOO_LONG)] = "refuse"

    def __post_init__(self) -> None:
        """Check ranges."""
        check_choices(self)
        for name in ("layer", "rank", "batch", "micro_batch", "patience", "looks_per_epoch"):
            value = getattr(self, name)
            check(value is None or value >= 1, f"{name} = {value}: give 1 or more")
        for name in ("alpha", "learning_rate", "epochs", "clip"):
            value = getattr(self, name)
            check(value is None or value > 0, f"{name} = {value}: give more than 0")
        for name in ("dropout", "warmup_share"):
            value = getattr(self, name)
            check(0 <= value < 1, f"{name} = {value}: give 0 to less than 1")
        check(self.weight_decay >= 0, f"weight_decay = {self.weight_decay}: give 0 or more")

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        return WAYS[self.name].learning_rate if self.learning_rate is None else self.learning_rate

    @property
    def batch_sequences(self) -> int:
        """Sequences a step, over all processes."""
        return self.batch or WAYS[self.name].batch

    @property
    def most_epochs(self) -> float:
        """Times that the train part is read, unless learning ends before."""
        return self.epochs or WAYS[self.name].epochs

    @property
    def scale(self) -> float:
        """Alpha of the adapters."""
        return 2.0 * self.rank if self.alpha is None else self.alpha


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptConfig:
    """A run.

    Attributes:
        model: a model folder, or a name of the box.
        output: folder that is written.
        seeds: one run each; the folder holds that which is best on the validation part.
        data: where sequences and labels are.
        question: what is asked.
        way: how a model is made to answer.
        baselines: keys of `BASELINES` that answer beside it.
    """

    model: str
    output: str
    data: DataConfig
    question: QuestionConfig
    way: WayConfig = field(default_factory=WayConfig)
    seeds: tuple[int, ...] = (0,)
    baselines: tuple[Annotated[str, OneOf(BASELINES)], ...] = tuple(BASELINES)

    def __post_init__(self) -> None:
        """Check what belongs together."""
        check_given(self, "model", "output")
        check(bool(self.seeds), "seeds: give one or more")
        check(len(set(self.seeds)) == len(self.seeds), f"seeds = {self.seeds}: one stands twice")
        check(
            all(0 <= seed < 2**32 for seed in self.seeds),
            f"seeds = {self.seeds}: give 0 or more, below 2^32",
        )
        for name in self.baselines:
            OneOf(BASELINES).check(name, "baselines")

    @property
    def output_folder(self) -> Path:
        """Where the result goes."""
        return Path(self.output)
