"""The reference, read from the code: commands, recipe keys, file formats, names of the library.

`python scripts/docs_reference.py` writes the pages of `docs/reference/`.
"""

import argparse
import importlib
import inspect
import io
import json
import subprocess
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import griffe
from pydantic.fields import FieldInfo
from rich.console import Console

import carbon
from carbon.cli import COMMANDS, application
from carbon.commands import packages
from carbon.design.measures import MEASURES
from carbon.finetune.config import (
    BASELINES,
    CALIBRATIONS,
    CLASS_WEIGHTS,
    HOMOLOGIES,
    LEAKS,
    METHODS,
    METHODS_OF_KEY,
    SPLIT_RULES,
    TOO_LONG,
    VARIANT_INPUTS,
    FinetuneConfig,
    MethodConfig,
    MethodName,
)
from carbon.finetune.config import (
    FORMATS as LABEL_FORMATS,
)
from carbon.genome.consequence_terms import TERMS
from carbon.inference.variants.annotate import ANNOTATION, BACKGROUND
from carbon.inference.variants.formats import COLUMNS
from carbon.io.config import Recipe, inner_recipe
from carbon.io.tables import FORMATS
from carbon.tokenizer import TAGS
from data_pipeline.recipe import BuildConfig
from train.config import TrainConfig

RECIPES: dict[str, tuple[type[Recipe], str, str]] = {
    "Training": (TrainConfig, "torchrun --nproc-per-node N -m train --config FILE", "training.md"),
    "A corpus": (BuildConfig, "carbon corpus build --config FILE", "corpus.md"),
    "Labels": (FinetuneConfig, "carbon finetune --config FILE", "finetuning.md"),
}
VALUES_OF_KEYS: dict[str, Mapping[str, str]] = {
    "data.format": {name: each.description for name, each in LABEL_FORMATS.items()},
    "data.variant_input": VARIANT_INPUTS,
    "data.split.by": SPLIT_RULES,
    "data.leaks": LEAKS,
    "data.homology": HOMOLOGIES,
    "task.class_weights": CLASS_WEIGHTS,
    "task.calibration": CALIBRATIONS,
    "method.name": METHODS,
    "method.too_long": TOO_LONG,
    "baselines": BASELINES,
}
DESIGN_COLUMNS: dict[str, str] = {
    "name": "of the design",
    "NAME": "value of the scoring function NAME, one column for each",
    "front": "the Pareto front, from 1",
    "round": "the round that drew the design",
    "parent": "the design that it was made from",
    "nats_per_base": "mean negative log-likelihood after the prompt",
    "gc_content": "GC content, 0 to 1",
    "lowest_window_gc": "least GC content of the whole windows of `--gc-window`",
    "highest_window_gc": "greatest GC content of these windows",
    "longest_run_bp": "longest run of one base",
    "longest_repeat_bp": "longest repeat, on either strand; 0 if shorter than 5, at most 31",
    "lowest_fold_kcal": "lowest free energy of a fold, with `--hairpin`",
    "num_sites": "occurrences of `--sites` on both strands, 0; a palindrome counts once",
    "num_forbidden": "occurrences of `--forbid`, 0",
    "num_stops": "stop codons in the frame of `--no-stop`, 0",
    "required_at": "places of `--require`, from 1",
    "translation": "the encoded protein, with `--protein`",
    "edits_to_others": "least edit distance to another design, with `--least-edits`",
    "edits_to_start": "edit distance to `--start`",
    "nearest_record": "the record of `--records` that shares most 16-mers",
    "nearest_shared": "the share of 16-mers",
    "nearest_edits": "edit distance to the most similar stretch of the nearest record",
    "bases": "the design",
}
"""Columns of `carbon design`; every one of `MEASURES` among them."""
PREDICT_COLUMNS: dict[str, str] = {
    "name, bases": "FASTA and FASTQ: the record and its length; of a label of every base: "
    "`name`, `position`, `base`",
    "contig, start, end, name, strand": "BED: the interval; of a label of every base also "
    "`base_number` and `base`",
    "predicted": "the class, if there are classes",
    "predicted_NAME": "each output: a probability, or a number in the unit of the training table; "
    "of a VCF the prediction with ALT",
    "predicted_NAME_ref, predicted_NAME_delta": "VCF: the prediction with REF, and ALT - REF; not "
    "of a model that reads both alleles",
    "predicted_NAME_offset": "VCF and a label of every base: the base of the largest change, "
    "counted from POS",
    "sd_NAME": "FASTA, FASTQ and BED: standard deviation over the seeds of an ensemble",
}
PACKAGES = ("train.__main__", "data_pipeline.__main__", "eval.__main__",
            "demo.__main__")  # fmt: skip
_WIDTH = 94
_KINDS = {str: "text", int: "integer", float: "number", bool: "true or false"}
_NEEDS = {
    "": "always",
    "both": "`--strands both`",
    ANNOTATION: "`--annotation`",
    BACKGROUND: "`--background`",
}
SCHEMAS = {
    "A record of `carbon eval run`": "eval/results.schema.json",
    "`manifest.json` of a corpus": "data_pipeline/manifest.schema.json",
    "Lines of a run of `carbon train`": "train/runs/lines.schema.json",
}
WRITTEN = (
    ("`carbon score`, `next`, `predict`", "table", "sequences.md"),
    ("`carbon compare`", "table", "percentiles.md"),
    ("`carbon variants`, `predict` for a VCF", "variants", "variants.md"),
    ("`carbon scan`", "scan", "scanning.md"),
    ("`carbon dependency`", "dependency map", "dependency.md"),
    ("`carbon design`", "designs", "design.md"),
    ("`carbon embed`", "embeddings", "sequences.md"),
    ("`carbon embed --vcf`", "allele embeddings", "sequences.md"),
    ("`carbon background`", "background", "percentiles.md"),
    ("`carbon join`", "joined parts", "scale.md"),
    ("`carbon generate`", "FASTA", "generation.md"),
    ("`carbon tokenize`", "lines of ids; FASTA with `--decode`", "tokenizers.md"),
    ("`carbon finetune`", "a folder: `finetune.json`, `head.safetensors`, `report.html`, an "
     "adapter or a model", "finetuning.md"),
    ("`carbon rl`", "a folder: `summary.html`, `metrics.jsonl`, `samples/`, `adapter/`, `model/`",
     "design.md"),
    ("`carbon convert`", "a model folder, native or hybrid, or `.gguf`", "serving.md"),
    ("`carbon corpus build`", "a folder of Parquet files and `manifest.json`", "corpus.md"),
    ("`carbon train`", "a run folder: `metrics.jsonl`, `export/`, checkpoints", "training.md"),
    ("`carbon eval run`", "a record a task and model", "evaluation.md"),
)  # fmt: skip
"""What commands write: their name, a kind of `FORMATS` or words, and the guide."""


TREE_PAGES: dict[str, Callable[[Path], str]] = {
    "reference/commands.md": lambda root: "".join(_commands(root)),
    "reference/recipes.md": lambda root: "".join(_recipes()),
    "reference/formats.md": lambda root: "".join(_formats(root)),
    "reference/python.md": lambda root: "".join(_python()),
}
"""Pages that `docs/` holds, by their place there."""


def _table(heads: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [f"| {heads}", "|" + "---|" * heads.count("|")]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells), ""])


def _python() -> Iterator[str]:
    """Yield the public names of `import carbon`, read from the source without running it."""
    yield (
        "# Python\n\nThe public names of `import carbon`, from their docstrings. "
        "The [walkthrough](../walkthrough.ipynb) uses most of them.\n"
    )
    package = griffe.load("carbon", resolve_aliases=True)
    for name in (name for name in carbon.__all__ if not name.startswith("__")):
        found, where = package[name], f"carbon.{name}"
        named = found.final_target if isinstance(found, griffe.Alias) else found
        members = [member for member in named.members.values() if not member.is_alias]
        if not isinstance(named, griffe.Module):
            yield _section(2, named, where)
            for member in members if isinstance(named, griffe.Class) else ():
                is_public = not member.name.startswith("_") and member.docstring
                if is_public and isinstance(member, griffe.Function):
                    yield _section(3, member, f"{where}.{member.name}")
        elif calls := [c["__call__"] for c in named.classes.values() if "__call__" in c.members]:
            yield from (_section(2, call, where) for call in calls)  # a callable package
        else:
            for kind in (griffe.Class, griffe.Function):
                for member in members:
                    if isinstance(member, kind):
                        yield _section(2, member, f"{where}.{member.name}")


def _section(level: int, named: Any, name: str) -> str:
    """Return the signature of a function or class without `self`, and its docstring."""
    summary, _, rest = (named.docstring.value if named.docstring else "").partition("\n\n")
    signature = named.signature(name=name.rpartition(".")[2])
    has_any = isinstance(named, griffe.Function) or not signature.endswith("()")
    code = f"```python\n{signature}\n```\n\n" if signature and has_any else ""
    more = f"\n```text\n{rest.rstrip()}\n```\n" if rest.strip() else ""
    return f"\n{'#' * level} {name}\n\n{code}{' '.join(summary.split())}\n{more}"


def _commands(root: Path) -> Iterator[str]:
    yield ("# Commands\n\nEvery command with all its options, as `--help` prints them.\n")
    yield from _carbon_helps()
    for module in PACKAGES:
        yield from _helps(importlib.import_module(module)._parser())
    for script in sorted((root / "runs").glob("*.sh")):
        words = ["bash", str(script), "--help"]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        yield f"\n## runs/{script.name}\n\n```text\n{text}```\n"


def _carbon_helps() -> Iterator[str]:
    """Yield the help of `carbon`, then that of each of its commands."""
    app = application(imports_all=True)
    for name in ("", *COMMANDS):
        if name in packages.PACKAGES:  # have parsers of their own
            continue
        console = Console(file=io.StringIO(), width=_WIDTH)
        app.help_print([name] if name else [], console=console)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        text = "".join(f"{line.rstrip()}\n" for line in lines)
        yield f"\n{'###' if name else '##'} {f'carbon {name}'.strip()}\n\n```text\n{text}```\n"


def _helps(parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    """Yield the help of a command, then that of each of its subcommands."""
    formatter: Any = parser.formatter_class  # whose declared type knows no width
    parser.formatter_class = partial(formatter, width=_WIDTH)
    if not getattr(parser, "default_command", ""):  # whose help is that of the default
        yield f"\n{'#' * level} {parser.prog}\n\n```text\n{parser.format_help()}```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in action.choices.values():
                yield from _helps(verb, level + 1)


def _recipes() -> Iterator[str]:
    yield (
        "# Recipe keys\n\nThe keys of TOML recipes, with their types and defaults. A nested table "
        "is written `[data.split]`, an array of tables `[[phases]]`. `--set phases.0.tokens=1000` "
        "overrides one key.\n"
    )
    for name, (schema, command, page) in RECIPES.items():
        yield f"\n## {name}\n\n`{command}`; guide: [{page}](../{page}).\n"
        yield from _finetune_keys() if schema is FinetuneConfig else _tables_of(schema, "")


def _finetune_keys() -> Iterator[str]:
    """Yield one table of every key, with its default for each method."""
    methods = [MethodConfig(name=name).resolved() for name in typing.get_args(MethodName)]
    rows = []
    for key, schema, name in _dotted(FinetuneConfig):
        field = schema.model_fields[name]
        defaults = [_default(field)] * len(METHODS)
        if schema is MethodConfig:
            defaults = [_default_of(method, name) for method in methods]
        meaning = _descriptions_of(schema).get(name, "")
        rows.append((f"`{key}`", _takes(field.annotation), *defaults, meaning))
    yield "\nDefaults by method; a dash marks a key that the method does not use.\n\n"
    yield _table(f"key | takes | {' | '.join(f'`{name}`' for name in METHODS)} | |", rows)
    yield "\n### Values of these keys\n\n" + _table(
        "key | value | meaning |",
        (
            (f"`{key}`", f"`{value}`", meaning)
            for key, meanings in VALUES_OF_KEYS.items()
            for value, meaning in meanings.items()
        ),
    )


def _dotted(schema: type[Recipe], where: str = "") -> Iterator[tuple[str, type[Recipe], str]]:
    """Yield the dotted key of each value of a recipe, with its model and its name there."""
    for name, field in schema.model_fields.items():
        if nested := inner_recipe(field.annotation):
            yield from _dotted(nested, f"{where}{name}.")
        else:
            yield f"{where}{name}", schema, name


def _default_of(method: MethodConfig, name: str) -> str:
    """Return the default of a key for a method, `-` if the method does not use it."""
    if method.name not in METHODS_OF_KEY.get(name, tuple(METHODS)):
        return "-"
    value = getattr(method, name)
    return "chosen" if value is None else f"`{json.dumps(value)}`"


def _tables_of(schema: type[Recipe], where: str) -> Iterator[str]:
    """Yield the table of a recipe, then those of the recipes inside."""
    descriptions = _descriptions_of(schema)
    title = f"`{where}`" if where else "at the top"
    first = " ".join((inspect.getdoc(schema) or "").partition("\n\n")[0].split())
    yield f"\n### {schema.__name__}: {title}\n\n{first}\n\n"
    yield _table(
        "key | type | default | meaning |",
        (
            (f"`{name}`", _takes(field.annotation), _default(field), descriptions.get(name, ""))
            for name, field in schema.model_fields.items()
        ),
    )
    for name, field in schema.model_fields.items():
        if nested := inner_recipe(field.annotation):
            path = f"{where.strip('[]')}.{name}".lstrip(".")
            yield from _tables_of(
                nested, f"[{path}]" if field.annotation is nested else f"[[{path}]]"
            )


def _takes(hint: Any) -> str:
    """Return what a type holds, in the words of TOML."""
    nested = inner_recipe(hint)
    if nested:
        return nested.__name__ if hint is nested else f"array of {nested.__name__}"
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(f'`"{name}"`' for name in parts if name)
    if origin is typing.Annotated:
        return _takes(parts[0])
    if origin is tuple:
        return f"array of {_takes(parts[0])}"
    if origin is dict:
        return f"table of {_takes(parts[1])}"
    if parts:  # X | None
        return " or ".join(_takes(part) for part in parts if part is not type(None))
    return _KINDS[hint]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Recipe):
        return "its table"
    if value is None:
        return "depends"
    return f"`{json.dumps(value)}`"


@cache
def _descriptions_of(schema: type) -> dict[str, str]:
    """Return the description of each field: a docstring after it, or `Attributes` of the class.

    griffe reads the file as text, since Python keeps no docstring of a field.
    """
    path = Path(inspect.getfile(schema))
    module = griffe.visit(schema.__module__, path, path.read_text(encoding="utf-8"))
    found = module[schema.__name__]
    assert isinstance(found, griffe.Class)
    descriptions = {
        name: attribute.docstring.value
        for name, attribute in found.attributes.items()
        if attribute.docstring
    }
    if found.docstring:
        for section in found.docstring.parse("google", warnings=False):
            if isinstance(section, griffe.DocstringSectionAttributes):
                descriptions |= {each.name: each.description for each in section.value}
    return {name: " ".join(text.split()) for name, text in descriptions.items()}


def _formats(root: Path) -> Iterator[str]:
    yield "# File formats\n\nThe files that Carbon writes, and JSON schemas to validate them.\n\n"
    yield _table(
        "written by | endings | described in |",
        (
            (command, ", ".join(f"`{ending}`" for ending in FORMATS.get(kind, ())) or kind,
             f"[{page}](../{page})")
            for command, kind, page in WRITTEN
        ),
    )  # fmt: skip
    yield (
        "\n## Columns and INFO fields of scored variants\n\nA table has a row for each ALT: "
        "`contig`, `position` (from 1), `id`, `ref`, `alt`, and these columns. A VCF has the INFO "
        "fields, with a value for each ALT ([details](../variants.md#columns-and-info-fields)).\n\n"
    )
    yield _table(
        "column | INFO field | type | meaning | written with |",
        (
            (f"`{name}`", f"`CARBON_{name.upper()}`", _KINDS[column.kind], column.meaning,
             _NEEDS.get(column.needs, f"`--scores {column.needs}`"))
            for name, column in COLUMNS.items()
        ),
    )  # fmt: skip
    assert DESIGN_COLUMNS.keys() >= MEASURES.keys()
    for command, guide, columns in (
        ("design", "design.md", DESIGN_COLUMNS),
        ("predict", "finetuning.md", PREDICT_COLUMNS),
    ):
        yield f"\n## Columns of `carbon {command}`\n\nGuide: [{guide}](../{guide}).\n\n"
        yield _table("column | meaning |", ((f"`{name}`", text) for name, text in columns.items()))
    yield (
        "\n## Consequences of variants\n\nSequence Ontology terms, the most severe first, as in "
        "Ensembl's VEP ([rules](../consequences.md)).\n\n"
    )
    terms = ((f"`{term.name}`", term.accession, term.label) for term in TERMS.values())
    yield _table("term | accession | meaning |", terms)
    yield (
        "\n## Metadata tags\n\nThe codes are in the columns `species_type` and `gene_type` of a "
        "corpus ([use](../tokenizers.md#metadata-tags)).\n\n"
    )
    yield _table(
        "code | tag | of | native id | in the released models |",
        (
            (f"`{tag.code}`", f"`{tag.text}`", tag.kind, f"{tag.native_id}",
             "yes" if tag.released else "no")
            for tag in TAGS
        ),
    )  # fmt: skip
    for title, path in SCHEMAS.items():
        schema = (root / path).read_text(encoding="utf-8")
        yield f"\n## {title}\n\nJSON Schema, draft 2020-12 (`{path}`):\n\n```json\n{schema}```\n"


def write_tree(root: Path) -> None:
    """Write the pages of `docs/reference/`."""
    for place, made in TREE_PAGES.items():
        (root / "docs" / place).write_text(made(root), encoding="utf-8")


if __name__ == "__main__":
    write_tree(Path(__file__).resolve().parents[1])
