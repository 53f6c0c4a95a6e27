"""Options of commands from the fields of dataclasses, and checks that run before large imports."""

from collections.abc import Callable, Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from cyclopts import ArgumentCollection, Group, Parameter, Token
from cyclopts.validators import Number

from carbon.errors import UserError
from carbon.inference import jobs, options
from carbon.inference.options import Option, input_files
from carbon.lazy import made_names
from carbon.parallel.options import WorkerOptions

_NAMES = {
    "functions": "function",
    "goals": "goal",
    "grace_seconds": "grace",
    "least_kcal": "hairpin",
    "most_bp": "most-bp",
    "most_stale": "stale",
    "neighbour_bp": "neighbour-bp",
    "no_stop_frame": "no-stop",
    "overrides": "set",
    "tags": "tag",
    "timeout_seconds": "timeout",
}
_ANY_NUMBER = 10**9
_SEARCH, _RULES = options.Group("Search"), options.Group("More rules")
_GROUPS = (
    options.INPUT.title,
    options.MODEL.title,
    options.METHOD.title,
    options.GENES.title,
    options.SAMPLING.title,
    options.CONSTRAINTS.title,
    _SEARCH.title,
    _RULES.title,
    "Variants",
    "Variants, in place of sequences",
    "Place",
    "Place, one of these",
    "Prompts, one of these",
    "What, one of these",
    "Percentiles",
    "Training",
    options.OUTPUT.title,
    "Workers",
)
"""Titles of groups of options in the order of the help."""


def option_name(name: str) -> str:
    """Return the name of a keyword as an option.

    >>> option_name("window_bp"), option_name("tags")
    ('window', 'tag')
    """
    return _NAMES.get(name, name.removesuffix("_bp").replace("_", "-"))


def group(title: str, check: Callable[[ArgumentCollection], None] | None = None) -> Group:
    """Return a group of the help."""
    return Group(title, sort_key=_GROUPS.index(title), validator=check)


@cache
def group_of(known: options.Group) -> Group:
    """Return a group of options for cyclopts."""

    def check(arguments: ArgumentCollection) -> None:
        names = [argument.name for argument in arguments.filter_by(value_set=True)]
        if len(names) > 1:
            raise ValueError(f"{' and '.join(names)}: give one of them")
        if known.is_required and not names:
            raise ValueError(f"give one of {', '.join(argument.name for argument in arguments)}")

    return group(known.title, check if known.takes_one else None)


def parameter(option: Option) -> Parameter:
    """Return an option of a field for cyclopts."""
    set_values: dict[str, Any] = {
        "name": option.name,
        "group": option.group and group_of(option.group),
        "metavar": option.metavar,
        "help": option.help,
        "allow_leading_hyphen": option.may_be_stdin,
    }
    chosen = {name: value for name, value in set_values.items() if value}
    if option.least is not None:
        chosen["validator"] = Number(gte=option.least)
    if option.is_list:
        chosen["consume_multiple"] = (1, _ANY_NUMBER)
    if option.is_hidden:
        chosen["show"] = False
    if parse := option.parse:

        def convert(hint: Any, tokens: Sequence[Token]) -> Any:
            return parse(tokens[-1].value)

        # a parser accepts more than the choices of its type
        chosen |= {"converter": convert, "n_tokens": 1, "show_choices": False}
    return Parameter(**chosen)


def as_options(hint: Any, plain: Any) -> Any:
    """Return a type for cyclopts: with a `Parameter` for each `Option`, and dataclasses flattened.

    Args:
        hint: a type.
        plain: the same without its annotations.
    """
    known = [parameter(option) for option in options.options_of(hint)]
    if is_dataclass(plain) and isinstance(plain, type):
        return Annotated[flattened(plain), Parameter(name="*"), *known]
    return Annotated[plain, *known] if known else plain


@cache
def flattened(job: Any, without: str = "") -> Any:
    """Return the fields of a dataclass, but one, for cyclopts, which makes objects of `job`."""
    hints, plain = get_type_hints(job, include_extras=True), get_type_hints(job)
    converted = [
        (
            each.name,
            as_options(hints[each.name], plain[each.name]),
            field(default=each.default, default_factory=each.default_factory),
        )
        for each in fields(job)
        if each.name != without
    ]
    namespace = {
        "__new__": lambda cls, **values: job(**values),
        # If pydantic is imported, cyclopts compares the value with the type.
        "__get_pydantic_core_schema__": lambda source, handler: handler(job),
        "__doc__": job.__doc__,
        "__module__": job.__module__,
    }
    return make_dataclass(job.__name__, converted, namespace=namespace, kw_only=True)


def _of_group(kind: type, under: options.Group) -> Any:
    return as_options(Annotated[kind, Option(group=under)], kind)


def _design_constraints() -> Any:
    fields_of_design = flattened(options.Constraints, without="protein")
    return Annotated[fields_of_design, Parameter(name="*", group=group_of(options.CONSTRAINTS))]


_JOBS = (
    jobs.BackgroundJob,
    jobs.DependencyJob,
    jobs.EmbedJob,
    jobs.GenerateJob,
    jobs.ScanJob,
    jobs.ScoreJob,
    jobs.VariantJob,
)

if TYPE_CHECKING:
    BackgroundJob = jobs.BackgroundJob
    DependencyJob = jobs.DependencyJob
    EmbedJob = jobs.EmbedJob
    GenerateJob = jobs.GenerateJob
    ScanJob = jobs.ScanJob
    ScoreJob = jobs.ScoreJob
    VariantJob = jobs.VariantJob
    DesignConstraints = options.Constraints
    Genes = options.AnnotationOptions
    Loading = jobs.LoadingOptions
    Natural = int
    Positive = int
    RuleOptions = options.RuleOptions
    SamplingRule = options.SamplingRule
    SearchOptions = options.SearchOptions
    Several = tuple[str, ...]
    Contigs = str | None
    Device = str
else:
    # Made when a command imports them: all of them take a third of the time of `--help`.
    __getattr__ = made_names(
        __name__,
        {kind.__name__: partial(as_options, kind, kind) for kind in _JOBS}
        | {
            "Genes": partial(_of_group, options.AnnotationOptions, options.GENES),
            "Loading": partial(_of_group, jobs.LoadingOptions, options.MODEL),
            "SamplingRule": partial(_of_group, options.SamplingRule, options.SAMPLING),
            "SearchOptions": partial(_of_group, options.SearchOptions, _SEARCH),
            "RuleOptions": partial(_of_group, options.RuleOptions, _RULES),
            "DesignConstraints": _design_constraints,
        },
    )
    Several = as_options(options.Words, tuple[str, ...])
    Natural = as_options(options.Natural, int)
    Positive = as_options(options.Positive, int)
    Contigs = as_options(jobs.Contigs, str | None)
    Device = Annotated[
        str, Parameter(group=group_of(options.MODEL), help="cpu, mps, cuda, cuda:1, or auto.")
    ]


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise ValueError(f"'{text}' is not a port; give 0 to 65535")
    return int(text)


WORK = group("Workers")
Port = Annotated[int, parameter(Option(parse=_port))]
File = Annotated[str, Parameter(allow_leading_hyphen=True, metavar="FILE")]
"""A path, or `-` for standard input."""
Table = Annotated[str, parameter(jobs.output_of("table"))]
Tags = Annotated[tuple[str, ...], Parameter(help="metadata tag; may be repeated.")]
Workers = Annotated[WorkerOptions, Parameter(name="*", group=WORK)]
WORKERS = WorkerOptions()


def one_of(title: str, is_required: bool = False) -> Group:
    """Return a group of mutually exclusive options."""
    return group_of(options.Group(title, takes_one=True, is_required=is_required))


def check_job(job: Any, *, carbon_only: bool = False) -> None:
    """Check that the model and the input files of a job exist, before large imports.

    Raises:
        UserError: as for `check_inputs`.
    """
    check_inputs(job.loading.model, *input_files(job), carbon_only=carbon_only)


def check_inputs(model: str, *paths: str | Path | None, carbon_only: bool = False) -> None:
    """Check that a model and some input files exist.

    Args:
        model: folder or name.
        *paths: input files.
        carbon_only: refuse models that are not Carbon's own.

    Raises:
        UserError: the model is unknown or of a refused kind, its files contradict one another, or a
            file is absent.
    """
    from carbon.model.folder import carbon_folder, model_folder

    for path in paths:
        if path is not None and str(path) != "-" and not Path(path).exists():
            raise UserError(f"{path}: no such file")
    (carbon_folder if carbon_only else model_folder)(model)
