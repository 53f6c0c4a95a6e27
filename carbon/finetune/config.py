"""What can be chosen where labels are learned: a table each, in plain Python.

The code behind a choice is looked up where it is used, so that `--help` and a configuration need
neither torch nor scikit-learn.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field

from carbon.inference.options import Pool, Strands
from carbon.io.config import Name, NotEmpty, Recipe


class Format(NamedTuple):
    """A form that data come in.

    Attributes:
        says: in a few words.
        endings: of files that are taken for it unless one is named.
        windows: sequences are those of a reference, so that each has a contig.
    """

    says: str
    endings: tuple[str, ...] = ()
    windows: bool = False


FORMATS: dict[str, Format] = {
    "csv": Format("a table with commas", (".csv", ".csv.gz")),
    "tsv": Format("a table with tabs", (".tsv", ".tsv.gz", ".txt", ".txt.gz", ".tab")),
    "parquet": Format("a Parquet file", (".parquet",)),
    "datasets": Format("a folder of datasets, or an id of the Hugging Face hub"),
    "fasta": Format("a FASTA, and a table beside it (data.table) or labels in its names",
                    (".fa", ".fasta", ".fna", ".fa.gz", ".fasta.gz", ".fna.gz")),
    "bed": Format("places and labels, and a reference", (".bed", ".bed.gz"), windows=True),
    "vcf": Format("variants of a VCF or BCF with labels in INFO, and a reference",
                  (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf"), windows=True),
}  # fmt: skip

SPLITS: dict[str, str] = {
    "files": "data.files names a file for each part",
    "column": "a column says the part",
    "contig": "whole contigs",
    "group": "all of a group in one part, by a hash of its name",
    "random": "each by a hash of its name",
}

LEAKS: dict[str, str] = {
    "tell": "count what stands in two parts, and say so",
    "refuse": "end",
    "drop": "leave it out of what is learned from, test before validation before train",
}

CLASS_WEIGHTS: dict[str, str] = {
    "none": "every example counts alike",
    "balanced": "every class counts alike: rows / (classes x rows of the class)",
}

TOO_LONG: dict[str, str] = {
    "refuse": "end, and name the record",
    "cut": "read the first bases that fit",
    "tile": "read windows that fit, and take the mean",
}


WAYS: dict[str, str] = {
    "probe": "a linear answer from frozen states",
    "lora": "low-rank adapters (peft)",
    "full": "all weights",
}

BASELINES: dict[str, str] = {
    "constant": "the largest class, or the mean",
    "composition": "length, GC and unknown bases: what needs no sequence",
    "kmers": "counts of 1- to 6-mers, both strands summed",
    "cnn": "a small convolutional network",
}


FormatName = Literal["csv", "tsv", "parquet", "datasets", "fasta", "bed", "vcf"]
PartName = Literal["train", "validation", "test"]
SplitName = Literal["files", "column", "contig", "group", "random"]
LeakName = Literal["tell", "refuse", "drop"]
QuestionName = Literal["binary", "classes", "labels", "numbers", "bases"]
LossName = Literal[
    "cross_entropy", "binary_cross_entropy", "mse", "huber", "correlation", "correlation_huber"
]
TransformName = Literal["z_score", "none", "log1p", "log1p_z_score", "asinh_z_score"]
ClassWeightsName = Literal["none", "balanced"]
WayName = Literal["probe", "lora", "full"]
TooLongName = Literal["refuse", "cut", "tile"]
BaselineName = Literal["constant", "composition", "kmers", "cnn"]

HASHED: tuple[SplitName, ...] = ("random", "group", "contig")
"""Splits that a hash of a name decides, so that shares or folds can be asked for."""

_OF_CLASSES, _OF_LABELS = ("cross_entropy",), ("binary_cross_entropy",)
LOSSES_OF: Mapping[QuestionName, tuple[str, ...]] = {
    "binary": _OF_LABELS,
    "classes": _OF_CLASSES,
    "labels": _OF_LABELS,
    "numbers": ("mse", "huber", "correlation", "correlation_huber"),
    "bases": _OF_CLASSES,
}
"""Losses that a question can be learned by, the default first."""


class Effort(NamedTuple):
    """How long and how fast a model learns, where a recipe does not say.

    Attributes:
        learning_rate: the highest. It is for models below 100 M parameters; a full tuning of more
            than 10^9 takes a fifth of it.
        batch: sequences a step, over all processes.
        epochs: most times that the train part is read.
    """

    learning_rate: float
    batch: int
    epochs: int


EFFORTS: Mapping[WayName, Effort] = {
    "probe": Effort(learning_rate=1e-3, batch=128, epochs=20),
    "lora": Effort(learning_rate=3e-4, batch=32, epochs=8),
    "full": Effort(learning_rate=5e-5, batch=32, epochs=5),
}

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[float, Field(gt=0)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]


class SplitConfig(Recipe):
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

    by: SplitName = "random"
    column: str = ""
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    validation_share: float = Field(default=0.1, ge=0)
    test_share: float = Field(default=0.1, ge=0)
    folds: int = Field(default=0, ge=0)
    fold: int = Field(default=0, ge=0)
    seed: int = 0

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield parts that cannot be made."""
        if self.validation_share + self.test_share >= 1:
            yield (
                "test_share",
                f"{self.test_share} and validation_share {self.validation_share}: leave something "
                "to learn from",
            )
        if self.folds in (1, 2):
            yield "folds", f"{self.folds}: give 0, or 3 or more"
        if self.fold >= max(self.folds, 1):
            yield "fold", f"{self.fold}: give 0 to folds - 1"
        if self.folds and self.by not in HASHED:
            yield "folds", f"not with by = '{self.by}'; take it out"
        if self.folds and (self.validation or self.test):
            yield "folds", "they choose the parts themselves; take out validation and test"
        if self.by in ("column", "group") and not self.column:
            yield "by", f"'{self.by}' needs the name of a column; give column"
        if twice := sorted(set(self.validation) & set(self.test)):
            yield "validation", f"{twice}: stands in validation and in test; keep one"


class DataConfig(Recipe):
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
    files: dict[str, str] = Field(default_factory=dict)
    format: Literal[FormatName, ""] = ""
    folder: str = ""
    table: str = ""
    tables: dict[str, str] = Field(default_factory=dict)
    label_after: str = ""
    header: tuple[str, ...] = ()
    keep: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    below: dict[str, float] = Field(default_factory=dict)
    sequence: str = "sequence"
    name: str = ""
    labels: Annotated[tuple[str, ...], NotEmpty] = ("label",)
    reference: str = ""
    contigs: str = ""
    window_bp: int = Field(default=0, ge=0)
    dataset: str = ""
    revision: str = ""
    unknown: tuple[str, ...] = ("", "NA", "NaN", "nan", ".")
    split: SplitConfig = SplitConfig()
    leaks: LeakName = "tell"
    leak_share: float = Field(default=0.5, gt=0, le=1)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield files and tables that do not go together."""
        if bool(self.path) == bool(self.files):
            yield "path", "give either path, or files for each part"
        for part in sorted(self.files.keys() - set(get_args(PartName))):
            yield f"files.{part}", f"is no part; name one of {', '.join(get_args(PartName))}"
        if (self.split.by == "files") != bool(self.files):
            yield "files", "files and split.by = 'files' go together; give both or none"
        if self.tables and self.tables.keys() != self.files.keys():
            yield "tables", "give one for each part of files"
        if bool(self.table) + bool(self.tables) + bool(self.label_after) > 1:
            yield "table", "give one of table, tables and label_after"
        if len(set(self.labels)) < len(self.labels):
            yield "labels", f"{list(self.labels)}: one stands twice; keep one"

    def of_part(self, part: str) -> "DataConfig":
        """Return what is said of the file of one part."""
        return self.replace(
            path=self.files[part],
            table=self.tables.get(part, self.table),
            files={},
            tables={},
            split=self.split.replace(by="random"),
        )

    def at(self, path: str) -> str:
        """Return a path of the data, begun in their folder."""
        return str(Path(self.folder) / path) if self.folder else path


class QuestionConfig(Recipe):
    """What is asked.

    Attributes:
        kind: key of `QUESTIONS`.
        names: of the classes, as they stand in the file, in the order that they are to have (of two
            the second is the one whose probability is predicted); as found, sorted, if none.
        transform: of numbers, key of `TRANSFORMS`.
        loss: one of `LOSSES_OF` the kind; the kind's first, if none.
        class_weights: key of `CLASS_WEIGHTS`.
    """

    kind: QuestionName
    names: tuple[str, ...] = ()
    transform: TransformName = "z_score"
    loss: Literal[LossName, ""] = ""
    class_weights: ClassWeightsName = "none"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a loss or weights that the kind does not have."""
        if self.loss not in ("", *LOSSES_OF[self.kind]):
            losses = ", ".join(LOSSES_OF[self.kind])
            yield "loss", f"'{self.loss}': kind = '{self.kind}' has {losses}"
        if len(set(self.names)) < len(self.names):
            yield "names", f"{list(self.names)}: one stands twice; keep one"
        if self.kind == "numbers" and self.class_weights != "none":
            yield "class_weights", "numbers have no classes; take it out"


class WayConfig(Recipe):
    """How a model is made to answer.

    Attributes:
        name: one of `WAYS`.
        pool: which states make a sequence's vector, key of `carbon.inference.options.POOLS`.
        layer: whose states are read, from 1; the last if None, of `probe` the one that is best on
            the validation part.
        rank: of the adapters of `lora`.
        alpha: their scale, times 1 / rank; twice the rank if None.
        dropout: before the adapters.
        targets: names of the modules that have an adapter; every linear one of the decoder if none.
        learning_rate: the highest; that of `EFFORTS` if None.
        batch: sequences a step, over all processes; of `EFFORTS` if None.
        micro_batch: sequences read at once by a process; as many as fit the batch if None.
        epochs: most times that the train part is read; of `EFFORTS` if None.
        patience: looks at the validation part without a better score, after which learning ends.
        looks_per_epoch: at the validation part.
        weight_decay: of matrices.
        warmup_share: of the steps, over which the rate rises.
        clip: of the gradient's norm.
        augment: half of what is learned from is read as its reverse complement.
        strands: that are read for a prediction, key of `STRANDS_READ`; of both, the mean.
        too_long: key of `TOO_LONG`.
    """

    name: WayName = "lora"
    pool: Pool = "mean"
    layer: Count | None = None
    rank: Count = 8
    alpha: Positive | None = None
    dropout: ShareBelowOne = 0.05
    targets: tuple[str, ...] = ()
    learning_rate: Positive | None = None
    batch: Count | None = None
    micro_batch: Count | None = None
    epochs: Positive | None = None
    patience: Count = 5
    looks_per_epoch: Count = 2
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_share: ShareBelowOne = 0.06
    clip: Positive = 1.0
    augment: bool = True
    strands: Strands = "both"
    too_long: TooLongName = "refuse"

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        return self.learning_rate or EFFORTS[self.name].learning_rate

    @property
    def batch_sequences(self) -> int:
        """Sequences a step, over all processes."""
        return self.batch or EFFORTS[self.name].batch

    @property
    def most_epochs(self) -> float:
        """Times that the train part is read, unless learning ends before."""
        return self.epochs or EFFORTS[self.name].epochs

    @property
    def scale(self) -> float:
        """Alpha of the adapters."""
        return 2.0 * self.rank if self.alpha is None else self.alpha


class FinetuneConfig(Recipe):
    """A run.

    Attributes:
        model: a model folder, or the name of a bundled model.
        output: folder that is written.
        seeds: one run each; the folder holds that which is best on the validation part.
        data: where sequences and labels are.
        question: what is asked.
        way: how a model is made to answer.
        baselines: keys of `BASELINES` that answer beside it.
    """

    model: Name
    output: Name
    data: DataConfig
    question: QuestionConfig
    way: WayConfig = WayConfig()
    seeds: Annotated[tuple[Seed, ...], NotEmpty] = (0,)
    baselines: tuple[BaselineName, ...] = get_args(BaselineName)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield seeds of which two are alike."""
        if len(set(self.seeds)) < len(self.seeds):
            yield "seeds", f"{list(self.seeds)}: one stands twice; keep one"

    @property
    def output_folder(self) -> Path:
        """Where the result goes."""
        return Path(self.output)
