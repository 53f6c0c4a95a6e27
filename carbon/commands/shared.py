"""Options of several commands, and checks that run before large imports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_type_hints

from cyclopts import ArgumentCollection, Group, Parameter, Token
from cyclopts.validators import Number

from carbon.errors import UserError
from carbon.inference.options import ConstraintOptions, SamplingOptions, VariantOptions
from carbon.io.tables import FORMATS, any_of
from carbon.parallel.options import WorkerOptions, loaded_device

if TYPE_CHECKING:
    from carbon.inference import Model

_NAMES = {
    "functions": "function",
    "goals": "goal",
    "grace_seconds": "grace",
    "least_kcal": "hairpin",
    "most_bp": "most-bp",
    "most_stale": "stale",
    "no_stop_frame": "no-stop",
    "overrides": "set",
    "probe_steps": "probe",
    "tags": "tag",
    "timeout_seconds": "timeout",
}


def option_name(name: str) -> str:
    """Return the name of a keyword as an option.

    >>> option_name("window_bp"), option_name("tags")
    ('window', 'tag')
    """
    return _NAMES.get(name, name.removesuffix("_bp").replace("_", "-"))


def offsets(hint: Any, tokens: Sequence[Token]) -> tuple[int, ...]:
    """Read offsets such as `0,2,4` or `all`."""
    text = tokens[-1].value
    if text == "all":
        return (0, 1, 2, 3, 4, 5)
    if not all(part in "012345" and len(part) == 1 for part in text.split(",")):
        raise ValueError(f"'{text}' is not a list of offsets such as 0,2,4 or all")
    return tuple(int(part) for part in text.split(","))


def _port(hint: Any, tokens: Sequence[Token]) -> int:
    text = tokens[-1].value
    if not text.isdigit() or int(text) > 65_535:
        raise ValueError(f"'{text}' is not a port; give 0 to 65535")
    return int(text)


def group(
    title: str, check: Callable[[ArgumentCollection], None] | None = None, is_last: bool = False
) -> Group:
    """Return a group of the help; groups are listed in order of creation, `is_last` at the end."""
    return Group.create_ordered(title, sort_key=int(is_last), validator=check)


MODEL = group("Model")
METHOD = group("Method")
GENES = group("Genes and contigs")
SAMPLING = group("Sampling")
CONSTRAINTS = group("Constraints, kept exactly")
WORK = group("Workers", is_last=True)

Natural = Annotated[int, Parameter(validator=Number(gte=0))]
"""An integer of 0 or more."""
Positive = Annotated[int, Parameter(validator=Number(gte=1))]
"""An integer of 1 or more."""
Port = Annotated[int, Parameter(converter=_port, n_tokens=1)]
Offsets = Annotated[tuple[int, ...], Parameter(converter=offsets, n_tokens=1, metavar="OFFSETS")]
Several = Annotated[tuple[str, ...], Parameter(consume_multiple=(1, 10**9))]
"""Words up to the next option: `--sites EcoRI BamHI`; the option may be repeated."""
File = Annotated[str, Parameter(allow_leading_hyphen=True, metavar="FILE")]
"""A path, or `-` for standard input."""

Table = Annotated[str, Parameter(help=f"a {any_of(FORMATS['table'])} to write.", metavar="FILE")]


def one_of(title: str, is_required: bool = False) -> Group:
    """Return a group of mutually exclusive options."""

    def check(arguments: ArgumentCollection) -> None:
        names = [argument.name for argument in arguments.filter_by(value_set=True)]
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)}: give one of them")
        if is_required and not names:
            raise ValueError(f"give one of {', '.join(argument.name for argument in arguments)}")

    return group(title, check)


def options(keys: type, under: Group, **hints: Any) -> Any:
    """Return the type of a parameter whose options are the keys of a `TypedDict`.

    Args:
        keys: the `TypedDict`; its docstring is the help.
        under: group of the help.
        **hints: types of keys that differ on a command line.
    """
    option_keys: Any = TypedDict(keys.__name__, get_type_hints(keys) | hints, total=False)  # type: ignore[misc]
    option_keys.__doc__ = keys.__doc__
    return Annotated[option_keys, Parameter(name="*", group=under)]


NONE: Any = {}
"""The default of `options`: omitted keywords take the defaults of the library."""

if TYPE_CHECKING:
    Sampling = SamplingOptions
    Constrained = ConstraintOptions
    VariantMethod = VariantOptions
else:
    Sampling = options(SamplingOptions, SAMPLING)
    Constrained = options(ConstraintOptions, CONSTRAINTS, forbid=Several, require=Several)
    VariantMethod = options(VariantOptions, METHOD, offsets=Offsets)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadingOptions:
    """Model and how to load it: keywords of `carbon.load`.

    Attributes:
        model: model folder, or the name of a bundled or Hub model.
        dtype: of weights and activations; auto is bfloat16 on a CUDA GPU, else float32.
        attention: sdpa, flash_attention_2, or auto.
        yarn: stretch the context by this factor.
    """

    model: str
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    attention: str = "auto"
    yarn: float | None = None

    def keywords(self, device: str) -> dict[str, Any]:
        """Return the keywords of `carbon.load` except for the model."""
        keywords = {"dtype": self.dtype, "attention": self.attention, "yarn": self.yarn}
        return {"device": device} | keywords

    def worker_keywords(self, workers: WorkerOptions) -> dict[str, Any]:
        """Return the keywords of `carbon.load` for a worker."""
        return self.keywords(loaded_device(workers))

    def load(self, device: str) -> "Model":
        """Load the model."""
        from carbon.inference import load

        return load(self.model, **self.keywords(device))


Loading = Annotated[LoadingOptions, Parameter(name="*", group=MODEL)]
Workers = Annotated[WorkerOptions, Parameter(name="*", group=WORK)]
WORKERS = WorkerOptions()
Device = Annotated[str, Parameter(group=MODEL, help="cpu, mps, cuda, cuda:1, or auto.")]
Tags = Annotated[tuple[str, ...], Parameter(help="metadata tag; may be repeated.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnnotationOptions:
    """Genes and contig names.

    Attributes:
        annotation: GFF3, GTF, BED or GenBank, plain or gzip: source of genes for
            consequences and kinds of variants.
        contigs: if a file uses other contig names than the reference: a table of its names and the
            reference's, or chr to add or remove 'chr' (and M for MT).
        genetic_code: NCBI translation table of CDS without transl_table in the annotation, such as
            4, or 1,Mito=3 with contigs of the reference; default: 1, and none for mitochondria.
    """

    annotation: Path | None = None
    contigs: str | None = None
    genetic_code: str | None = None

    def check(self) -> None:
        """Check the genetic code before large imports.

        Raises:
            UserError: the table is unknown, or no annotation is given.
        """
        from carbon.genome.alphabet import tables_chosen

        tables_chosen(self.genetic_code)
        if self.genetic_code and not self.annotation:
            raise UserError("--genetic-code: give the --annotation that it is for")


Genes = Annotated[AnnotationOptions, Parameter(name="*", group=GENES)]
NO_GENES = AnnotationOptions()
Contigs = Annotated[
    str | None,
    Parameter(
        metavar="TABLE|chr",
        help="if a file uses other contig names than the reference: a table of its names and the "
        "reference's, or chr to add or remove 'chr' (and M for MT).",
    ),
]


def check_inputs(model: str, *paths: str | Path | None) -> Path:
    """Check that the model and input files exist, before large imports.

    Returns:
        The model's folder.

    Raises:
        UserError: the model is unknown, its files contradict one another, or a file is absent.
    """
    from carbon.model import model_folder

    for path in paths:
        if path is not None and str(path) != "-" and not Path(path).exists():
            raise UserError(f"{path}: no such file")
    return model_folder(model).path
