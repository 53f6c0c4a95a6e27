"""Base class of panels: pages on which a visitor queries the model and views the answer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

import gradio as gr

from demo.fields import Field, Kind, Values, link_to
from demo.lab import Lab
from demo.markup import link_chip, part, render
from demo.preview import Card

MODEL = "base_model"  # name of the field that selects the model
Result = dict[str, Any]
"""What a program gets: numbers, texts and lists, ready for JSON."""

ViewKind = Literal["html", "figure", "bases"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an answer."""

    done: int
    total: int
    unit: str


SCRIPT = '<script src="/carbon/assets/demo.js"></script>'
_PLOTLY = '<script src="/carbon/plotly.js"></script>'


class View(NamedTuple):
    """Part of the page that shows a part of an answer.

    Attributes:
        name: key in the mapping that `show` returns.
        kind: markup, a Plotly figure, or bases with their probabilities.
        label: caption of a figure, and its name for screen readers; of bases, the name alone.
    """

    name: str
    kind: ViewKind = "html"
    label: str = ""

    def component(self) -> gr.HTML:
        """Return the Gradio widget; `assets/demo.js` draws figures and bases."""
        if self.kind == "html":
            return gr.HTML(elem_id=f"view-{self.name}")
        return gr.HTML(
            value=None,
            html_template=part(self.kind, self.label),
            js_on_load=f"window.carbon.{self.kind}(element, props, trigger, watch)",
            head=SCRIPT + (_PLOTLY if self.kind == "figure" else ""),
            elem_id=f"view-{self.name}",
        )


class Example(NamedTuple):
    """Field values worth showing; fields that are not named keep their defaults.

    Attributes:
        label: label of the link.
        values: values by field name.
        sentence: why the example is interesting.
    """

    label: str
    values: Mapping[str, Any]
    sentence: str = ""


class Pick(NamedTuple):
    """A click in a view that sets fields and requests a new answer.

    Attributes:
        view: name of the view.
        set: function from the picked item and the current values to the values that change.
        asks: whether the new values change the answer, and not only its display.
    """

    view: str
    set: Callable[[Any, Values], Values]
    asks: bool = True


class Panel(ABC):
    """One page of the demo; a subclass defines the inputs, the answer and its display.

    Attributes:
        name: name of its page and endpoint; by default the lower-case name of the class.
        title: title in the navigation; by default the name of the class.
        heading: headline of the page; by default the title.
        sentence: one sentence on what the panel shows.
        views: views of the answer, from top to bottom.
        hero: names of views that stand above the inputs, at full width.
        switches_model: whether selecting another model changes the answers.
        run_label: label of the button; by default the title.
        refresh_seconds: interval between automatic refreshes; None for no refresh.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    heading: ClassVar[str]
    sentence: str
    views: ClassVar[tuple[View, ...]]
    hero: ClassVar[tuple[str, ...]] = ()
    switches_model: ClassVar[bool] = True
    run_label: ClassVar[str]
    refresh_seconds: float | None = None

    def __init_subclass__(cls) -> None:
        """Set names and labels that the class does not define from the name of the class."""
        title = getattr(cls, "title", cls.__name__)
        defaults = dict.fromkeys(("title", "heading", "run_label"), title)
        for attribute, value in (defaults | {"name": cls.__name__.lower()}).items():
            if not hasattr(cls, attribute):
                setattr(cls, attribute, value)

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the fields, because the available choices change with time."""
        first = self.lab.first.shown_name
        switch = self.model_field(MODEL, "Model of this page", first)
        self.fields = (*self.make_fields(), *(switch if self.switches_model else ()))

    def model_field(self, name: str, label: str, default: str) -> tuple[Field, ...]:
        """Return a field that selects a model; empty if there are no other models."""
        first, allowed = self.lab.first.shown_name, self.lab.first.allowed
        if not allowed:
            return ()
        kind: Kind = "text" if allowed.any_folder else "choice"
        info = "or the path of a folder" if allowed.any_folder else ""
        names = tuple(dict.fromkeys((default, first, *allowed.sources)))
        return (Field(name, label, default, kind, names, info=info, asks=True),)

    def with_model(self, name: str) -> Self:
        """Return this panel for the model with this name."""
        lab = self.lab.with_model(name)
        if lab is self.lab:
            return self
        if type(self) not in lab.panels:
            lab.panels[type(self)] = type(self)(lab)
        panel = lab.panels[type(self)]
        assert isinstance(panel, type(self))
        return panel

    @abstractmethod
    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs; their defaults are an example that works immediately."""

    def examples(self) -> tuple[Example, ...]:
        """Return further examples, shown as links."""
        return ()

    @classmethod
    def is_available(cls, lab: Lab) -> bool:
        """Return whether the lab has what the page needs."""
        return True

    def picks(self) -> tuple[Pick, ...]:
        """Return the actions of clicks in the views."""
        return ()

    def buttons(self) -> Mapping[str, Callable[[Values, Result], Values]]:
        """Return further buttons: label to a function from values and answer to changed values."""
        return {}

    @abstractmethod
    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield progress or partial answers; the last item is the complete answer.

        Raises:
            UserError: the values are invalid; the message is a sentence.
        """

    @abstractmethod
    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the content of each view; views that are not named stay unchanged."""

    @abstractmethod
    def code(self, values: Values) -> Mapping[str, Any]:
        """Return the variables of the templates `NAME.py.jinja` and `NAME.sh.jinja`.

        They are a program and command lines that give the same answer, and have `model` too.
        """

    def questions(self, values: Values, result: Result) -> Sequence[tuple[str, str]]:
        """Return the next questions that an answer leads to, each with an address."""
        return ()

    def card(self, values: Values, result: Result) -> Card:
        """Return the preview of an answered state."""
        return Card(self.title, self.sentence)

    def python(self, values: Values) -> str:
        """Return a Python program that prints the same answer."""
        return self._rendered("py", values)

    def command(self, values: Values) -> str:
        """Return command lines that print or write the same answer."""
        return self._rendered("sh", values).rstrip("\n")

    def _rendered(self, language: str, values: Values) -> str:
        template = f"{self.name}.{language}.jinja"
        return render(template, model=self.lab.model_name, **self.code(values))

    @property
    def path(self) -> str:
        """Path of the page."""
        return f"/{self.name}"

    def link(self, values: Mapping[str, Any]) -> str:
        """Return the address that restores these values, relative to the server's root."""
        return link_to(self.path, self.fields, values)

    def example_links(self) -> str:
        """Return the links to the examples as markup."""
        return "".join(link_chip(self.link(e.values), e.label, e.sentence) for e in self.examples())
