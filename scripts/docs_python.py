"""The public names of `import carbon` as Markdown, read from the source without running it."""

from collections.abc import Iterator

import griffe

import carbon


def python_page() -> str:
    """Return the page: a signature and a docstring for each name."""
    package = griffe.load("carbon", resolve_aliases=True)
    names = [name for name in carbon.__all__ if not name.startswith("__")]
    parts = [part for name in names for part in _parts(package[name], f"carbon.{name}")]
    return (
        "# Python\n\nThe public names of `import carbon`, from their docstrings. "
        "The [walkthrough](../walkthrough.ipynb) uses most of them.\n" + "".join(parts)
    )


def _parts(named: griffe.Object | griffe.Alias, name: str) -> Iterator[str]:
    """Yield the section of a name, then those of a class's methods."""
    target = named.final_target if isinstance(named, griffe.Alias) else named
    if isinstance(target, griffe.Module):
        yield from _parts_of_module(target, name)
    elif isinstance(target, griffe.Function):
        yield _section(2, target, name)
    elif isinstance(target, griffe.Class):
        yield _section(2, target, name)
        for member in target.members.values():
            is_public = not member.name.startswith("_") and member.docstring
            if is_public and isinstance(member, griffe.Function):
                yield _section(3, member, f"{name}.{member.name}")


def _parts_of_module(module: griffe.Module, name: str) -> Iterator[str]:
    """Yield the function that a callable package is, or the public members of another module."""
    calls = [
        member.members["__call__"]
        for member in module.classes.values()
        if "__call__" in member.members
    ]
    functions = calls or [*module.classes.values(), *module.functions.values()]
    for each in functions:
        is_call = each.name == "__call__"
        if not each.is_alias and isinstance(each, (griffe.Function, griffe.Class)):
            yield _section(2, each, name if is_call else f"{name}.{each.name}")


def _section(level: int, named: griffe.Function | griffe.Class, name: str) -> str:
    summary, _, rest = (named.docstring.value if named.docstring else "").partition("\n\n")
    signature = _signature(named, name)
    code = f"```python\n{signature}\n```\n\n" if signature else ""
    more = f"\n```text\n{rest.rstrip()}\n```\n" if rest.strip() else ""
    return f"\n{'#' * level} {name}\n\n{code}{' '.join(summary.split())}\n{more}"


def _signature(named: griffe.Function | griffe.Class, name: str) -> str:
    """Return a signature without `self`; of a property, its type."""
    short = name.rpartition(".")[2]
    parameters = [each for each in named.parameters if each.name not in ("self", "cls")]
    if isinstance(named, griffe.Class):
        return f"{short}({', '.join(_parameters(parameters))})" if parameters else ""
    returned = f" -> {named.returns}" if named.returns else ""
    return f"{short}({', '.join(_parameters(parameters))}){returned}"


def _parameters(parameters: list[griffe.Parameter]) -> Iterator[str]:
    """Yield the text of each parameter, and `*` before the first that is for keywords alone."""
    kinds = griffe.ParameterKind
    prefixes: dict[griffe.ParameterKind | None, str] = {
        kinds.var_positional: "*",
        kinds.var_keyword: "**",
    }
    has_star = False
    for each in parameters:
        if each.kind is kinds.keyword_only and not has_star:
            yield "*"
        has_star = has_star or each.kind in (kinds.keyword_only, kinds.var_positional)
        text = f"{prefixes.get(each.kind, '')}{each.name}"
        text += f": {each.annotation}" if each.annotation else ""
        has_default = each.default is not None and each.kind not in prefixes
        yield f"{text} = {each.default}" if has_default else text
