"""Inputs of a panel, described once for the page, for links and for programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import gradio as gr

from carbon.errors import UserError
from demo.letters import check_is_protein
from demo.uploads import GENOME_ENDINGS

Kind = Literal[
    "input", "text", "lines", "protein", "integer", "number", "choice", "choices", "files",
]  # fmt: skip
Values = dict[str, Any]

MOST_FILES = 4
_GZIP = b"\x1f\x8b"  # a FASTA reader would decompress it, to any size
_SHOWN = 40  # letters of an invalid value that the message shows
_FEW = 4  # most choices that are shown side by side instead of in a list
INPUT = "input"  # name of the main field of a page, whose value goes along to other pages
MOST_INPUT = 20_000


@dataclass(frozen=True, slots=True)
class Field:
    """One input.

    Attributes:
        name: name in links, in code and for programs.
        label: label on the page.
        default: value in the panel's first example.
        kind: type of input; `input` is what `demo.inputs.detect` recognises; `protein` is not
            DNA; `files` are uploads, which links do not restore.
        choices: choices of `choice` and `choices`; suggested beginnings of a `text`; or allowed
            endings of `files`.
        least: smallest number.
        most: largest number; for a text, its maximum length.
        info: a line under the label.
        more: show the input under "More settings".
        asks: selecting a choice requests an answer immediately.
    """

    name: str
    label: str
    default: Any
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 200
    info: str = ""
    more: bool = False
    asks: bool = False

    def component(self) -> gr.components.Component:
        """Return the Gradio widget."""
        label: dict[str, Any] = {"label": self.label, "info": self.info or None}
        match self.kind:
            case "text" if self.choices:
                return gr.Dropdown(
                    list(self.choices), value=self.default, allow_custom_value=True, **label
                )
            case "input":
                return gr.Textbox(self.default, lines=1, max_lines=6, elem_id=INPUT, **label)
            case "text" | "lines" | "protein":
                lines = 1 if self.kind in ("text", "protein") else 2
                return gr.Textbox(self.default, lines=lines, max_lines=8, **label)
            case "integer" | "number":
                whole = self.kind == "integer"
                step = 1 if whole else 0.05
                return gr.Slider(self.least, self.most, self.default, step=step, **label)
            case "choice" if len(self.choices) <= _FEW:
                return gr.Radio(self.named_choices, value=self.default, **label)
            case "choice":
                return gr.Dropdown(self.named_choices, value=self.default, **label)
            case "choices":
                return gr.CheckboxGroup(list(self.choices), value=list(self.default), **label)
            case "files":
                return gr.File(
                    label=f"{self.label} ({', '.join(self.choices)})",
                    file_count="multiple",
                    file_types=list(self.choices),
                    height=120,
                )

    def checked(self, value: Any) -> Any:
        """Return a validated value; programs and links can send anything.

        Raises:
            UserError: the value is not allowed; the message says which values are.
        """
        match self.kind:
            case "input" | "text" | "lines":
                return self._text(value)
            case "protein":
                check_is_protein(self._text(value))
                return self._text(value)
            case "integer" | "number":
                return self._number(value)
            case "choice":
                return self._choice(value)
            case "choices":
                chosen = value.split(",") if isinstance(value, str) else value or []
                return [self._choice(one) for one in chosen if one != ""]
            case "files":
                return self._files(value)

    @property
    def named_choices(self) -> list[tuple[str, str]]:
        """Return each choice with its display name."""
        return [(choice or "none", choice) for choice in self.choices]

    @property
    def span(self) -> str:
        """Allowed range of a number, in words."""
        return f"{self.least:g} to {self.most:,.7g}"

    def in_link(self, value: Any) -> str:
        """Return a value as text that `checked` accepts."""
        return ",".join(value) if self.kind == "choices" else str(value)

    def _text(self, value: Any) -> str:
        text = "" if value is None else str(value).strip()
        if len(text) > self.most:
            raise UserError(f"{self.label}: {len(text):,} letters; give {self.most:,.0f} at most")
        return text

    def _number(self, value: Any) -> float | int:
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise UserError(f"{self.label}: '{str(value)[:_SHOWN]}' is not a number") from None
        if not self.least <= number <= self.most:
            raise UserError(f"{self.label}: {number:g} is out of range; give {self.span}")
        if self.kind == "integer" and number != int(number):
            raise UserError(f"{self.label}: give a whole number, not {number:g}")
        return int(number) if self.kind == "integer" else number

    def _choice(self, value: Any) -> str:
        if str(value) not in self.choices:
            raise UserError(
                f"{self.label}: there is no '{str(value)[:_SHOWN]}'; give one of "
                f"{', '.join(filter(None, self.choices))}"
            )
        return str(value)

    def _files(self, value: Any) -> list[str]:
        paths = upload_paths(value)
        if len(paths) > MOST_FILES:
            raise UserError(f"{self.label}: {len(paths)} files; give {MOST_FILES} at most")
        for path in paths:
            if not path.lower().endswith(self.choices):
                raise UserError(f"{self.label}: give files that end in {', '.join(self.choices)}")
            with open(path, "rb") as upload:
                if upload.read(len(_GZIP)) == _GZIP:
                    raise UserError(f"{self.label}: {Path(path).name} is compressed; unpack it")
        return paths


def upload_paths(value: Any) -> list[str]:
    """Return the paths in a value of a field of files: a list, one path, or nothing."""
    return [str(path) for path in ([value] if isinstance(value, str) else value or [])]


def input_field(default: str, label: str = "Gene, region, variant or DNA", info: str = "") -> Field:
    """Return the main field of a page."""
    return Field(INPUT, label, default, "input", most=MOST_INPUT, info=info)


def genome_field() -> Field:
    """Return the field of a visitor's own genome."""
    info = "one GenBank file, or FASTA with or without annotation"
    return Field("genome", "Your own genome", [], "files", GENOME_ENDINGS, more=True, info=info)


def input_link(path: str, text: str) -> str:
    """Return the address of a page for a text in its main field."""
    return f"{path}?{urlencode({INPUT: text})}"


def checked_values(fields: tuple[Field, ...], values: Mapping[str, Any]) -> Values:
    """Return a value for every field; a missing value is the default.

    Raises:
        UserError: a value is not allowed.
    """
    return {field.name: field.checked(values.get(field.name, field.default)) for field in fields}


def link_to(path: str, fields: tuple[Field, ...], values: Mapping[str, Any]) -> str:
    """Return the address that restores the values, without default values and uploads."""
    changed = {
        field.name: field.in_link(values[field.name])
        for field in fields
        if field.kind != "files" and values.get(field.name, field.default) != field.default
    }
    return f"{path}?{urlencode(changed)}" if changed else path
