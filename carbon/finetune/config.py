"""The fine-tuning recipe: its tables, defaults and the names that it allows.

The module holds names and descriptions only. The code behind a name is looked up where it is used,
so that `--help` and a configuration need neither torch nor scikit-learn.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field

from carbon.inference.options import Pool, Strands
from carbon.io.config import Name, NotEmpty, Recipe


class FileFormat(NamedTuple):
    """A file format of training data.

    Attributes:
        description: a few words.
        endings: file name endings that select the format unless the recipe names one.
        windows: whether sequences are cut from a reference, so that each has a contig.
    """

    description: str
    endings: tuple[str, ...] = ()
    windows: bool = False


FORMATS: dict[str, FileFormat] = {
    "csv": FileFormat("columns of sequences, labels and optional names, separated by commas",
                      (".csv", ".csv.gz")),
    "tsv": FileFormat("the same, separated by tabs",
                      (".tsv", ".tsv.gz", ".txt", ".txt.gz", ".tab")),
    "parquet": FileFormat("the same; a label may be a list with a value for each base",
                          (".parquet",)),
    "datasets": FileFormat("a folder of the library datasets, or a Hugging Face hub id; its splits "
                           "are a column `split`"),
    "fasta": FileFormat("sequences; labels in `table`, or in record names after the last "
                        "`label_after`",
                        (".fa", ".fasta", ".fna", ".fa.gz", ".fasta.gz", ".fna.gz")),
    "bed": FileFormat("intervals of `reference` on their strand, or `window_bp` around their "
                      "middle; labels of every base run along the strand",
                      (".bed", ".bed.gz"), windows=True),
    "vcf": FileFormat("each ALT of a VCF or BCF in `window_bp` of `reference`; labels have one "
                      "value for each ALT or one for all, flags 1 or 0",
                      (".vcf", ".vcf.gz", ".vcf.bgz", ".bcf"), windows=True),
}  # fmt: skip

SPLIT_RULES: dict[str, str] = {
    "files": "`data.files` names a file for each split",
    "column": "`column` names the split (`train`, `valid`, `dev`, `test` and similar), or "
    "`validation` and `test` list its values",
    "contig": "contigs are assigned whole",
    "group": "examples with one value of `column` are assigned together, by a hash of it",
    "random": "each example is assigned by a hash of its name and `seed`; without names, by a hash "
    "of its sequence, equal on both strands",
    "homology": "clusters of homologous sequences are assigned whole",
}

HOMOLOGIES: dict[str, str] = {
    "auto": "`mmseqs2` if the program `mmseqs` is installed, else `kmers`",
    "mmseqs2": "alignments over at least half of the shorter sequence; at most 1,000 candidates of "
    "a sequence are aligned",
    "kmers": "shared 12-mers, at least eight, and identity^12 of the distinct 12-mers of the "
    "shorter sequence. The sequences of one 12-mer are compared with its first 200 only. Sequences "
    "under 19 bases are compared whole. Above 20 million bases, a sample of 24-mers is compared",
}

LEAKS: dict[str, str] = {
    "report": "count and report sequences that occur in two splits",
    "refuse": "end with an error",
    "drop": "remove them until no pair is detected: test takes precedence over validation, "
    "validation over train",
}

CLASS_WEIGHTS: dict[str, str] = {
    "none": "every example has the same weight",
    "balanced": "every class has the same total weight: rows / (classes x rows of the class); of "
    "several labels, each has the weight rows without / rows with it",
}

CALIBRATIONS: dict[str, str] = {
    "none": "probabilities as trained",
    "temperature": "logits divided by one number, for `labels` by one for each label; logits "
    "change at most 20-fold, and a note names the outputs that reach the bound",
    "platt": "a logistic curve of each logit",
    "isotonic": "a rising curve of log-odds; of several classes, each against the others, then "
    "normalised",
}

TOO_LONG: dict[str, str] = {
    "refuse": "end with an error that names the record",
    "truncate": "keep the first bases that fit",
    "tile": "average over windows that overlap by half: for `probe`, and in prediction",
}


METHODS: dict[str, str] = {
    "probe": "a linear probe on frozen states",
    "lora": "low-rank adapters (peft)",
    "full": "all weights",
}

VARIANT_INPUTS: dict[str, str] = {
    "alt": "the window with ALT alone; for a label of every base",
    "ref_and_difference": "vectors of both windows: REF, and ALT - REF",
    "sum_and_distance": "REF + ALT, and |ALT - REF|: the same if the alleles are exchanged",
}

BASELINES: dict[str, str] = {
    "constant": "the largest class, or the mean",
    "composition": "length, GC and unknown bases: a check for shortcuts",
    "kmers": "counts of 1- to 6-mers, both strands summed",
    "cnn": "a small convolutional network",
    "delta": "the base model's log-likelihood(ALT) - log-likelihood(REF); for a VCF only",
}


FormatName = Literal["csv", "tsv", "parquet", "datasets", "fasta", "bed", "vcf"]
SplitName = Literal["train", "validation", "test"]
SplitBy = Literal["files", "column", "contig", "group", "random", "homology"]
HomologyName = Literal["auto", "mmseqs2", "kmers"]
LeakName = Literal["report", "refuse", "drop"]
TaskTypeName = Literal["binary", "classes", "labels", "numbers", "bases", "tracks"]
LossName = Literal[
    "cross_entropy", "binary_cross_entropy", "mse", "huber", "correlation", "correlation_huber"
]
TransformName = Literal["z_score", "none", "log1p", "log1p_z_score", "asinh_z_score"]
ClassWeightsName = Literal["none", "balanced"]
CalibrationName = Literal["none", "temperature", "platt", "isotonic"]
MethodName = Literal["probe", "lora", "full"]
TooLongName = Literal["refuse", "truncate", "tile"]
BaselineName = Literal["constant", "composition", "kmers", "cnn", "delta"]
VariantInput = Literal["alt", "ref_and_difference", "sum_and_distance"]

SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
"""Training, model selection and the final measurement."""

HASHED: tuple[SplitBy, ...] = ("random", "group", "contig", "homology")
"""Split rules that use a hash of a name, so that shares or folds can be requested."""

_OF_CLASSES, _OF_LABELS = ("cross_entropy",), ("binary_cross_entropy",)
LOSSES_OF: Mapping[TaskTypeName, tuple[str, ...]] = {
    "binary": _OF_LABELS,
    "classes": _OF_CLASSES,
    "labels": _OF_LABELS,
    "numbers": ("mse", "huber", "correlation", "correlation_huber"),
    "bases": _OF_CLASSES,
    "tracks": ("mse", "huber"),
}
"""Losses of each task type, the default first."""


class TrainingDefaults(NamedTuple):
    """Learning rate, batch size and epochs of a trained method where a recipe does not set them.

    Attributes:
        learning_rate: peak learning rate, for models below 100 M parameters. For full fine-tuning
            of more than 10^9 parameters use a fifth of it.
        batch: sequences per optimizer step, over all processes.
        epochs: maximum number of passes over the train split.
    """

    learning_rate: float
    batch: int
    epochs: int


TRAINING_DEFAULTS: Mapping[MethodName, TrainingDefaults] = {
    "lora": TrainingDefaults(learning_rate=3e-4, batch=32, epochs=8),
    "full": TrainingDefaults(learning_rate=5e-5, batch=32, epochs=5),
}

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear modules of a layer, which get adapters by default."""

_TRAINED: tuple[MethodName, ...] = ("lora", "full")
METHODS_OF_KEY: Mapping[str, tuple[MethodName, ...]] = {
    **dict.fromkeys(("rank", "alpha", "dropout", "targets"), ("lora",)),
    **dict.fromkeys(("learning_rate", "batch", "micro_batch", "epochs", "patience"), _TRAINED),
    **dict.fromkeys(("validations_per_epoch", "weight_decay", "warmup_share"), _TRAINED),
    **dict.fromkeys(("clip", "augment"), _TRAINED),
    "cross_validate": ("probe",),
}
"""Methods that use a key of `[method]`; all methods use the other keys."""

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[float, Field(gt=0)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]


class SplitConfig(Recipe):
    """How examples are divided into train, validation and test.

    Attributes:
        by: key of `SPLIT_RULES`.
        column: column of the splits (`column`), groups (`group`) or contigs (`contig`; the contig
            of a BED or VCF record if no column is named).
        validation: values of the column that mark the validation split, or its contigs or groups,
            as text; of Parquet 1 is `"1"`, also in a column of floats, and true `"true"`.
        test: values that mark the test split.
        validation_share: share of all examples (groups, contigs) for validation, if none are named.
        test_share: share for test, if none are named.
        folds: 0, or the number of equal folds. One fold is the test split, the next is validation.
        fold: index of the test fold, from 0.
        seed: seed of the hashes.
    """

    by: SplitBy = "random"
    column: str = ""
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    validation_share: float = Field(default=0.1, ge=0)
    test_share: float = Field(default=0.1, ge=0)
    folds: int = Field(default=0, ge=0)
    fold: int = Field(default=0, ge=0)
    seed: int = 0

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield splits that cannot be made."""
        if self.validation_share + self.test_share >= 1:
            yield (
                "test_share",
                f"{self.test_share} and validation_share {self.validation_share}: leave examples "
                "for train",
            )
        if self.folds in (1, 2):
            yield "folds", f"{self.folds}: give 0, or 3 or more"
        if self.fold >= max(self.folds, 1):
            yield "fold", f"{self.fold}: give 0 to folds - 1"
        if self.folds and self.by not in HASHED:
            yield "folds", f"not with by = '{self.by}'; take it out"
        if self.folds and (self.validation or self.test):
            yield "folds", "folds determine the splits; take out validation and test"
        if self.by == "homology" and (self.column or self.validation or self.test):
            yield "by", "'homology' makes clusters itself; take out column, validation and test"
        if self.by in ("column", "group") and not self.column:
            yield "by", f"'{self.by}' needs the name of a column; give column"
        if twice := sorted(set(self.validation) & set(self.test)):
            yield "validation", f"{twice}: listed in validation and in test; keep one"


class DataConfig(Recipe):
    """Where sequences and labels are.

    Attributes:
        path: a file or folder, or an id of the Hugging Face hub.
        files: instead of `path`, a file for each split: train, validation, test.
        format: key of `FORMATS`; chosen by the file name's ending if empty.
        folder: base folder of relative paths in `path`, `files`, `table` and `tables`.
        table: labels of a FASTA: a CSV, TSV or Parquet file, joined by name if `name` is set, else
            in the order of the FASTA.
        tables: instead of `table`, one for each split of `files`.
        label_after: letters after whose last occurrence in a FASTA name the label begins.
        header: column names of a CSV or TSV without a header line.
        keep: for a column of a table, the values of the rows to read; other rows are skipped.
        below: for a column of a table, a number; rows with an equal or larger value are skipped.
        sequence: column of sequences.
        name: column of names; rows are numbered from 1 if empty.
        labels: columns of labels. Of a BED, column numbers from 1 or names in its first comment; of
            a VCF, keys of INFO.
        reference: FASTA that a BED or VCF refers to.
        tracks: for `task.type = "tracks"` and a BED, the bigWig file of each label; then `labels`
            is unused.
        contigs: mapping from the file's contig names to the reference's, as in all commands.
        window_bp: bases around the middle of a BED interval (0 takes the interval), or around a
            variant.
        variant_input: what is read of a variant of a VCF, key of `VARIANT_INPUTS`.
        consequence: key of INFO with the consequence class of a variant as one word, for
            `method.cross_validate`: one probe for each class.
        dataset: configuration of a hub dataset that has several.
        revision: hub commit to read.
        unknown: table cells that mark an unknown label.
        split: how examples are divided.
        leaks: key of `LEAKS`.
        homology: how homologous sequences are detected, for leaks and for `split.by =
            "homology"`: key of `HOMOLOGIES`.
        identity: share of equal bases from which two sequences count as homologous.
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
    tracks: dict[str, str] = Field(default_factory=dict)
    contigs: str = ""
    window_bp: int = Field(default=0, ge=0)
    variant_input: VariantInput = "ref_and_difference"
    consequence: str = ""
    dataset: str = ""
    revision: str = ""
    unknown: tuple[str, ...] = ("", "NA", "NaN", "nan", ".")
    split: SplitConfig = SplitConfig()
    leaks: LeakName = "report"
    homology: HomologyName = "auto"
    identity: float = Field(default=0.9, ge=0.7, le=1)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield files and tables that exclude one another."""
        if bool(self.path) == bool(self.files):
            yield "path", "give either path, or files for each split"
        for split in sorted(self.files.keys() - set(SPLITS)):
            yield f"files.{split}", f"is not a split; name one of {', '.join(SPLITS)}"
        if (self.split.by == "files") != bool(self.files):
            yield "files", "files and split.by = 'files' go together; give both or none"
        if self.tables and self.tables.keys() != self.files.keys():
            yield "tables", "give one for each split of files"
        if bool(self.table) + bool(self.tables) + bool(self.label_after) > 1:
            yield "table", "give one of table, tables and label_after"
        if len(set(self.labels)) < len(self.labels):
            yield "labels", f"{list(self.labels)}: duplicate; keep one"

    def for_split(self, split: str) -> "DataConfig":
        """Return the configuration of one split's file."""
        return self.replace(
            path=self.files[split],
            table=self.tables.get(split, self.table),
            files={},
            tables={},
            split=self.split.replace(by="random"),
        )

    def at(self, path: str) -> str:
        """Return a path of the data, resolved against `folder`."""
        return str(Path(self.folder) / path) if self.folder else path


class TaskConfig(Recipe):
    """The prediction task.

    Attributes:
        type: key of `TASK_TYPES`.
        names: class names as in the file, in output order (of two classes, the probability of the
            second is predicted); the sorted values of the column if empty.
        transform: transform of numbers, key of `TRANSFORMS`.
        loss: one of `LOSSES_OF` the type; its first if empty. `correlation` is 1 - Pearson's r,
            averaged over columns; `correlation_huber` adds 0.2 times the Huber loss.
        class_weights: key of `CLASS_WEIGHTS`.
        calibration: recalibration of probabilities, fitted to the validation split: key of
            `CALIBRATIONS`.
    """

    type: TaskTypeName
    names: tuple[str, ...] = ()
    transform: TransformName = "z_score"
    loss: Literal[LossName, ""] = ""
    class_weights: ClassWeightsName = "none"
    calibration: CalibrationName = "none"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield a loss or weights that the task type does not support."""
        if self.loss not in ("", *LOSSES_OF[self.type]):
            losses = ", ".join(LOSSES_OF[self.type])
            yield "loss", f"'{self.loss}': type = '{self.type}' has {losses}"
        if len(set(self.names)) < len(self.names):
            yield "names", f"{list(self.names)}: duplicate; keep one"
        for key in ("class_weights", "calibration") if self.type in ("numbers", "tracks") else ():
            if getattr(self, key) != "none":
                yield key, f"{self.type} have no classes; take it out"


class MethodConfig(Recipe):
    """How a model is fine-tuned.

    Attributes:
        name: key of `METHODS`.
        pool: states that form a sequence's vector, key of `carbon.inference.options.POOLS`.
        layer: layer whose states are used, from 1. None takes the last; `probe` then takes the
            layer with the best validation score.
        rank: rank of `lora` adapters.
        alpha: scale of the adapters, multiplied by 1 / rank; twice the rank if None.
        dropout: dropout rate before the adapters.
        targets: names of the modules that get an adapter; every linear module of the decoder if
            empty.
        learning_rate: peak learning rate; from `TRAINING_DEFAULTS` if None.
        batch: sequences per optimizer step, over all processes; from `TRAINING_DEFAULTS` if None.
        micro_batch: sequences per forward pass of a process; as many as fit the batch if None.
        epochs: maximum passes over the train split; from `TRAINING_DEFAULTS` if None.
        patience: early stopping: validation steps without a better score before training ends.
        validations_per_epoch: validation steps per epoch.
        weight_decay: weight decay of matrices.
        warmup_share: share of the steps over which the learning rate rises.
        clip: maximum norm of the gradient.
        augment: read half of the train split as reverse complements.
        strands: strands read for a prediction, key of `STRANDS_READ`; logits of both are averaged.
        too_long: key of `TOO_LONG`.
        cross_validate: for `probe` and two classes: also fit probes by nested cross-validation. A
            probe of all other chromosomes predicts each chromosome; leave-one-chromosome-out among
            them selects its strength. The layer is `layer`, or the last.
    """

    name: MethodName = "lora"
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
    validations_per_epoch: Count = 2
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_share: ShareBelowOne = 0.06
    clip: Positive = 1.0
    augment: bool = True
    strands: Strands = "both"
    too_long: TooLongName = "refuse"
    cross_validate: bool = False

    @property
    def rate(self) -> float:
        """Peak learning rate."""
        return self.learning_rate or TRAINING_DEFAULTS[self.name].learning_rate

    @property
    def batch_sequences(self) -> int:
        """Sequences per optimizer step, over all processes."""
        return self.batch or TRAINING_DEFAULTS[self.name].batch

    @property
    def most_epochs(self) -> float:
        """Maximum passes over the train split."""
        return self.epochs or TRAINING_DEFAULTS[self.name].epochs

    @property
    def scale(self) -> float:
        """Alpha of the adapters."""
        return 2.0 * self.rank if self.alpha is None else self.alpha

    def resolved(self) -> Self:
        """Return the configuration with the method's defaults as values."""
        values: dict[str, Any] = {}
        if self.name in _TRAINED:
            values |= {
                "learning_rate": self.rate,
                "batch": self.batch_sequences,
                "epochs": self.most_epochs,
            }
        if self.name == "lora":
            values |= {"alpha": self.scale, "targets": self.targets or LINEAR}
        return self.replace(**values)


SEARCHED = ("task.loss", "task.transform", "task.class_weights")
"""Keys outside of `[method]` that a search may vary: validation scores stay comparable."""
Value = bool | int | float | str | tuple[str, ...]


class FinetuneConfig(Recipe):
    """A fine-tuning run.

    Attributes:
        model: a model folder, or the name of a bundled model.
        output: folder to write.
        seeds: one run for each seed; the predictions of several are averaged, as an ensemble.
        data: sequences and labels.
        task: the prediction task.
        method: how the model is fine-tuned.
        baselines: keys of `BASELINES` to compare with.
        search: for dotted keys of `SEARCHED`, such as `method.rank`, the values to try. The
            combination with the best validation score is run.
    """

    model: Name
    output: Name
    data: DataConfig
    task: TaskConfig
    method: MethodConfig = MethodConfig()
    seeds: Annotated[tuple[Seed, ...], NotEmpty] = (0,)
    baselines: tuple[BaselineName, ...] = get_args(BaselineName)
    search: dict[str, Annotated[tuple[Value, ...], NotEmpty]] = Field(default_factory=dict)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield keys that exclude one another, and searched keys that change what is scored."""
        if self.method.cross_validate and (self.method.name, self.task.type) != ("probe", "binary"):
            yield "method.cross_validate", "is for method.name = 'probe' and task.type = 'binary'"
        if self.data.consequence and not self.method.cross_validate:
            yield "data.consequence", "is for method.cross_validate = true; take it out"
        if len(set(self.seeds)) < len(self.seeds):
            yield "seeds", f"{list(self.seeds)}: duplicate; keep one"
        if self.data.tracks and self.task.type != "tracks":
            yield "data.tracks", f"task.type is '{self.task.type}'; set it to 'tracks'"
        for key in self.search:
            if not key.startswith("method.") and key not in SEARCHED:
                yield f"search.{key}", f"give keys of method, or {', '.join(SEARCHED)}"
        if "method.too_long" in self.search and self.task.type in ("bases", "tracks"):
            yield "search.method.too_long", "selects the bases that are scored; take it out"

    def trials(self) -> list[dict[str, Any]]:
        """Return the combinations of `search`, values by dotted key, the last key fastest."""
        return [
            dict(zip(self.search, values, strict=True))
            for values in itertools.product(*self.search.values())
        ]

    def trial(self, values: Mapping[str, Any]) -> Self:
        """Return the run of one combination, without a search.

        Raises:
            ConfigError: a value is invalid.
        """
        table = self.to_table() | {"search": {}}
        for key, value in values.items():
            section, _, name = key.partition(".")
            table[section] = table[section] | {name: value}
        return type(self).from_table(table, "search")

    @property
    def output_folder(self) -> Path:
        """Folder to write."""
        return Path(self.output)
