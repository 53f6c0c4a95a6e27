"""What a panel is: a question that a visitor asks the model, and how its answer is shown."""

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Self

from demo.fields import Field, Kind, Values, link_to
from demo.lab import Lab
from demo.markup import link_chip

MODEL = "base_model"  # the field that switches it
Command = str | Sequence[object]  # words, or a line as it stands
Result = dict[str, Any]
"""What a program gets: numbers, texts and lists, ready for JSON."""

ViewKind = Literal["html", "figure", "bases"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an answer has come."""

    done: int
    total: int
    unit: str


class View(NamedTuple):
    """A place on the page where a part of an answer is shown.

    Attributes:
        name: key of what `show` returns.
        kind: markup, a Plotly figure, or bases with their probabilities.
        label: said to screen readers, and above it.
    """

    name: str
    kind: ViewKind
    label: str


class Example(NamedTuple):
    """Values that show something; what is not named keeps its default.

    Attributes:
        label: of the link.
        values: by the names of fields.
        sentence: why it is worth a look.
    """

    label: str
    values: Mapping[str, Any]
    sentence: str = ""


class Pick(NamedTuple):
    """A click in a view that sets fields and asks anew.

    Attributes:
        view: where it happens.
        set: what was picked, and the values before it, to the values that change.
        asks: whether they change the answer, and not only how it is shown.
    """

    view: str
    set: Callable[[Any, Values], Values]
    asks: bool = True


class Panel(ABC):
    """One page of the demo; a subclass says what is asked and how the answer is shown.

    Attributes:
        name: name of its page and endpoint; the name of the class in lower case if not given.
        title: title in the navigation; the name of the class if not given.
        sentence: what it shows, in one.
        invitation: what the primer's link to it says; the primer itself has none.
        more: examples that suit any model and genome.
        views: where the answer goes, from top to bottom.
        uses_model: whether it waits for its turn with the model.
        switches_model: whether another model changes what it answers.
        run_label: label of the button; the title if not given.
        refresh_seconds: how often the answer is asked for again; None if only when asked.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    sentence: ClassVar[str]
    invitation: ClassVar[str] = ""
    more: ClassVar[tuple[Example, ...]] = ()
    views: ClassVar[tuple[View, ...]]
    uses_model: ClassVar[bool] = True
    switches_model: ClassVar[bool] = True
    run_label: ClassVar[str]
    refresh_seconds: ClassVar[float | None] = None

    def __init_subclass__(cls) -> None:
        """Derive name, title and button label from the name of the class if it gives none."""
        defaults = {"name": cls.__name__.lower(), "title": cls.__name__}
        for attribute, value in defaults.items():
            if not hasattr(cls, attribute):
                setattr(cls, attribute, value)
        if not hasattr(cls, "run_label"):
            cls.run_label = cls.title

    def __init__(self, lab: Lab) -> None:
        """Keep what all panels share."""
        self.lab = lab
        self.refresh()

    def refresh(self) -> None:
        """Make the fields anew: what can be chosen changes with time."""
        first = self.lab.first.shown_name
        switch = self.model_field(MODEL, "Model of this page", first)
        self.fields = (*self.make_fields(), *(switch if self.switches_model else ()))

    def model_field(self, name: str, label: str, default: str) -> tuple[Field, ...]:
        """Return a choice of a model, where there are others."""
        first, offer = self.lab.first.shown_name, self.lab.first.offer
        if not offer:
            return ()
        kind: Kind = "text" if offer.any_folder else "choice"
        info = "or the path of a folder" if offer.any_folder else ""
        names = tuple(dict.fromkeys((default, first, *offer.sources)))
        return (Field(name, label, default, kind, names, info=info, asks=True),)

    def with_model(self, name: str) -> Self:
        """Return this panel for a model, which is told by its name."""
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
        """Return the inputs; their defaults are an example that works at once."""

    def examples(self) -> tuple[Example, ...]:
        """Return more of them, shown as links."""
        return self.more

    def picks(self) -> tuple[Pick, ...]:
        """Return what clicks in the views do."""
        return ()

    def buttons(self) -> Mapping[str, Callable[[Values, Result], Values]]:
        """Return more buttons: label to the values that change, from those and the answer."""
        return {}

    @abstractmethod
    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield how far it is, or what is known so far; the last is the answer.

        Raises:
            UserError: the question makes no sense, in a sentence.
        """

    @abstractmethod
    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return what each view shows; a view that is not named stays as it is."""

    @abstractmethod
    def python(self, values: Values) -> str:
        """Return a program that prints the same."""

    @abstractmethod
    def commands(self, values: Values) -> list[Command]:
        """Return command lines that print or write the same."""

    def command(self, values: Values) -> str:
        """Return the command lines as they are typed."""
        lines = self.commands(values)
        return "\n".join(x if isinstance(x, str) else shlex.join(map(str, x)) for x in lines)

    @property
    def path(self) -> str:
        """Where its page is."""
        return f"/{self.name}"

    def link(self, values: Mapping[str, Any]) -> str:
        """Return the address of a state, from the server's root."""
        return link_to(self.path, self.fields, values)

    def example_links(self) -> str:
        """Return the examples as markup."""
        return "".join(link_chip(self.link(e.values), e.label, e.sentence) for e in self.examples())
