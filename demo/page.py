"""A panel as a Gradio page: inputs, buttons, views, and the events between them."""

import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import gradio as gr
from markupsafe import Markup

from carbon.errors import TypedError, UserError
from demo.fields import Field, Values, checked_values, upload_paths
from demo.lab import Lab
from demo.limits import Limits
from demo.markup import link_chip, part, share_box
from demo.panel import MODEL, SCRIPT, Panel, Progress, Result
from demo.preview import Card, Previews
from demo.turns import Turns, Waiting
from demo.uploads import without_folders

_LOG = logging.getLogger("carbon.demo")
_UNEXPECTED = "an unexpected error occurred; the server's log has the details"
_LETTERS_AROUND = 24  # shown on each side of a wrong letter
_POLITE = ' role="status"'
_SECONDS_BETWEEN_VIEWS = 0.2  # drawing takes longer than computing if the model is small
_SHOW_ADDRESS = "(link) => carbon.showAddress(link, '%sState')"
Updates = dict[gr.components.Component, Any]
"""New values of components; the others stay as they are."""


class Shell(NamedTuple):
    """What all pages share.

    Attributes:
        limits: limits on requests.
        turns: queue before the model.
        previews: cards of the states that were answered.
        pages: path and title of each page, in the order of the navigation.
    """

    limits: Limits
    turns: Turns
    previews: Previews
    pages: Sequence[tuple[str, str]]


class Page:
    """Adds a panel's widgets to the open page and handles their events."""

    def __init__(self, page: gr.Blocks, panel: Panel, shell: Shell) -> None:
        self.panel, self.shell = panel, shell
        self.views: dict[str, gr.HTML] = {}
        gr.HTML(part("pages", shell.pages, panel.path))
        self.details = gr.HTML(model_details(panel.lab), elem_classes="details")
        gr.HTML(part("title", panel.heading, panel.sentence), elem_classes="title")
        self._add_views(hero=True)
        with gr.Column() if panel.hero else gr.Row():
            with gr.Column(scale=1, min_width=300, elem_classes="question"):
                self._add_question()
            with gr.Column(scale=3, min_width=320, elem_classes="answer"):
                self._add_answer()
        self.result = gr.State(time_to_live=3600)
        about = (self.python, self.command, self.questions, self.share, self.link, self.result)
        self.answer: list[gr.components.Component] = [*self.views.values(), *about]
        self._events(page)

    def _add_question(self) -> None:
        self.inputs = self._inputs()
        with gr.Row(elem_classes="buttons"):
            self.run = gr.Button(self.panel.run_label, variant="primary")
            self.more = {label: gr.Button(label) for label in self.panel.buttons()}
            self.stop = gr.Button("Stop", elem_id="stop")
        self.links = gr.HTML(
            part("links", "Examples", Markup(self.panel.example_links())),
            head=SCRIPT,
            js_on_load="window.carbon.links(trigger)",
        )

    def _add_answer(self) -> None:
        self.status = gr.HTML(elem_id="status")
        self._add_views(hero=False)
        self.questions = gr.HTML(elem_id="questions")
        self.share = gr.HTML(elem_id="share")
        with gr.Accordion("Show the code", open=False):
            self.python = gr.Code(language="python", label="Python", interactive=False)
            self.command = gr.Code(language="shell", label="Command line", interactive=False)
        self.link = gr.Textbox(visible=False)

    def _add_views(self, *, hero: bool) -> None:
        for view in self.panel.views:
            if (view.name in self.panel.hero) == hero:
                self.views[view.name] = view.component()

    def _inputs(self) -> dict[str, gr.components.Component]:
        fields = self.panel.fields
        components = {field.name: field.component() for field in fields if not field.more}
        behind = [field for field in fields if field.more]
        if behind:
            with gr.Accordion("More settings", open=False):
                components |= {field.name: field.component() for field in behind}
        return {field.name: components[field.name] for field in fields}

    def _events(self, page: gr.Blocks) -> None:
        turn: dict[str, Any] = {
            "concurrency_id": "answers",
            "concurrency_limit": self.shell.limits.waiting,
        }
        quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        inputs = list(self.inputs.values())
        outputs = [self.status, self.details, *self.answer]
        ask = {"fn": self._ask, "inputs": inputs, "outputs": outputs, **turn, **quiet}
        asked: list[Any] = [self.run.click(**ask)]
        for field, widget in zip(self.panel.fields, inputs, strict=True):
            if isinstance(widget, gr.Textbox):
                asked.append(widget.submit(**ask))
            elif isinstance(widget, gr.Dropdown | gr.Radio) and field.asks:
                asked.append(widget.input(**ask))
        restored = [*inputs, *outputs]
        opened = [
            page.load(self._open, None, restored, **turn, **quiet),
            self.links.select(self._follow, inputs, restored, **turn, **quiet),
        ]
        for label, button in self.more.items():
            change = button.click(self._changed_by(label), [self.result, *inputs], inputs, **quiet)
            asked.append(change.success(**ask))
        for pick in self.panel.picks():
            picked = self.views[pick.view].select(
                self._picked_by(pick.set), inputs, inputs, **quiet
            )
            redraw = {"fn": self._redraw, "inputs": [self.result, *inputs]}
            asked.append(picked.success(**ask if pick.asks else ask | redraw))
        if self.panel.refresh_seconds:
            ticks = gr.Timer(self.panel.refresh_seconds).tick
            opened.append(ticks(**ask | {"fn": self._ask_again}))
        for event, way in (*((e, "push") for e in asked), *((e, "replace") for e in opened)):
            event.success(None, self.link, self.link, js=_SHOW_ADDRESS % way, **quiet)
        # Show this only after cancelling: an event that was still running would overwrite it.
        stopped = self.stop.click(None, cancels=[*asked, *opened], **quiet)
        stopped.then(lambda: _status("Stopped."), None, self.status, queue=False, **quiet)
        gr.Button(visible=False).click(
            self._program(),
            inputs,
            gr.JSON(visible=False),
            api_name=self.panel.name,
            api_description=self.panel.sentence,
            **turn,
        )

    def _named(self, values: Sequence[Any]) -> Values:
        return dict(zip(self.inputs, values, strict=True))

    def _panel(self, values: Mapping[str, Any]) -> Panel:
        """Return the panel of the model that this visitor selected; other visitors keep theirs."""
        return self.panel.with_model(str(values.get(MODEL) or self.panel.lab.shown_name))

    def _values(self, values: Sequence[Any]) -> Values:
        named = self._named(values)
        return checked_values(self._panel(named).fields, named)

    def _ask(self, request: gr.Request, *values: Any) -> Iterator[Updates]:
        """Answer the values of the widgets; yield updates as they become available."""
        yield {self.status: _status("Working ...", busy=True)}
        yield from self._reply(request, self._named(values))

    def _reply(
        self, request: gr.Request, values: Values, uploads: Values | None = None
    ) -> Iterator[Updates]:
        """Answer values, or show the error in place of the answer.

        Restoring a state passes its uploads, and updates the widgets first.
        """
        try:
            self.shell.limits.admit(_address(request))
            panel = self._panel(values)
            if uploads is not None:
                panel.refresh()
            checked = checked_values(panel.fields, values)
            if uploads is not None:
                shown = (_in_widget(f, checked[f.name], bool(uploads)) for f in panel.fields)
                widgets = dict(zip(self.inputs.values(), shown, strict=True))
                yield widgets | {self.status: _status("Working ...", busy=True)}
            yield from self._answered(panel, checked)
        except Exception as error:
            more = self._wrong_part(error, values)
            status = _status(self._sentence(error, values), wrong=True, more=more)
            yield {self.status: status, **dict.fromkeys(self.answer)}

    def _ask_again(self, request: gr.Request, *values: Any) -> Iterator[Updates]:
        """Refresh the answer periodically; screen readers announce only errors."""
        for updates in self._reply(request, self._named(values)):
            yield updates | {self.status: updates[self.status].replace(_POLITE, "")}

    def _open(self, request: gr.Request) -> Iterator[Updates]:
        """Restore the state in the page's address, and answer it."""
        yield from self._restored(request, request.query_params, {})

    def _follow(self, event: gr.EventData, request: gr.Request, *values: Any) -> Iterator[Updates]:
        """Restore the state of a link to this page, keep the uploads, and answer it."""
        query = dict(parse_qsl(event._data["picked"].removeprefix("?"), keep_blank_values=True))
        yield from self._restored(request, query, self._named(values))

    def _restored(
        self, request: gr.Request, query: Mapping[str, str], values: Values
    ) -> Iterator[Updates]:
        uploads = {f.name: values.get(f.name) for f in self.panel.fields if f.kind == "files"}
        restored = {f.name: query[f.name] for f in self.panel.fields if f.name in query}
        yield from self._reply(request, restored | uploads, values and uploads)

    def _answered(self, panel: Panel, values: Values) -> Iterator[Updates]:
        shown_at = time.monotonic()
        result: Result = {}
        for item in self._items(panel, values):
            if isinstance(item, Waiting):
                yield {self.status: _status(f"Waiting, {item.before} before you", busy=True)}
                continue
            result = result if isinstance(item, Progress) else item
            if time.monotonic() - shown_at < _SECONDS_BETWEEN_VIEWS:
                continue
            if isinstance(item, Progress):
                yield {self.status: part("progress", item)}
            else:
                working = {self.status: _status("Working ...", busy=True)}
                yield working | self._shown(panel, values, item)
            shown_at = time.monotonic()
        redrawn = any(not pick.asks for pick in self.panel.picks())
        stored = result if self.more or redrawn else None
        yield {self.status: _DONE, self.result: stored} | self._complete(panel, values, result)

    def _items(self, panel: Panel, values: Values) -> Iterator[Progress | Result | Waiting]:
        return self.shell.turns.take(self.shell.limits.timed(panel.answer(values)))

    def _redraw(self, result: Result | None, *values: Any) -> Updates:
        """Show the last answer again, as the current values display it."""
        if result is None:
            return self._as_updates({})
        return self._complete(self._panel(self._named(values)), self._values(values), result)

    def _shown(self, panel: Panel, values: Values, result: Result) -> Updates:
        """Return the details of the model, and the views."""
        shown = panel.show(values, result)
        views: Updates = {self.views[name]: content for name, content in shown.items()}
        return {self.details: model_details(panel.lab), **views}

    def _complete(self, panel: Panel, values: Values, result: Result) -> Updates:
        """Return the views, code, command, next questions, the box to share the state, its link.

        Links leave uploads out, so a state with uploads has the preview of its page.
        """
        shown = self._shown(panel, values, result)
        link, card = panel.link(values), Card(panel.title, panel.sentence)
        if not any(values[field.name] for field in panel.fields if field.kind == "files"):
            card = panel.card(values, result)
            if link.partition("?")[0] == panel.path:  # Start leads to other pages
                self.shell.previews.store(link, card)
        chips = "".join(link_chip(to, label) for label, to in panel.questions(values, result))
        asks = part("links", "Next questions", Markup(chips)) if chips else ""
        return shown | {
            self.python: panel.python(values),
            self.command: panel.command(values),
            self.questions: asks,
            self.share: share_box(link, card.title, card.sentence),
            self.link: link,
        }

    def _changed_by(self, label: str) -> Callable[..., Updates]:
        change = self.panel.buttons()[label]

        def pressed(result: Result | None, *values: Any) -> Updates:
            return self._as_updates(change(self._values(values), result) if result else {})

        return pressed

    def _picked_by(self, change: Callable[[Any, Values], Values]) -> Callable[..., Updates]:
        def picked(event: gr.EventData, *values: Any) -> Updates:
            return self._as_updates(change(event._data["picked"], self._values(values)))

        return picked

    def _sentence(self, error: Exception, values: Values) -> str:
        """Return the message for the visitor, without folders; unexpected errors go to the log."""
        if isinstance(error, UserError):
            uploads = (values.get(f.name) for f in self.panel.fields if f.kind == "files")
            files = [*chain.from_iterable(map(upload_paths, uploads))]
            return without_folders(str(error), [*files, *self.panel.lab.genome.shown_files])
        _LOG.error("a panel failed", exc_info=error)
        return _UNEXPECTED

    def _wrong_part(self, error: Exception, values: Values) -> str:
        """Return the text with the wrong letter marked, and links that insert a near name."""
        if not isinstance(error, TypedError):
            return ""
        line, at, end = error.text, error.at, error.at + max(1, len(error.wrong))
        parts = line[max(0, at - _LETTERS_AROUND) : at], line[at:end] or " ", line[end:]
        near = [(self.panel.link(self._respelled(values, error.wrong, n)), n) for n in error.near]
        return part("wrong_part", *(each[:_LETTERS_AROUND] for each in parts), near)

    def _respelled(self, values: Values, wrong: str, name: str) -> Values:
        """Return the values with a wrong name replaced in every text field."""
        texts = (field.name for field in self.panel.fields if field.kind in ("text", "input"))
        typed = {key: values[key] for key in texts if values.get(key)}
        return values | {key: text.replace(wrong, name, 1) for key, text in typed.items()}

    def _as_updates(self, changed: Values) -> Updates:
        return {self.inputs[name]: value for name, value in changed.items()} or gr.skip()

    def _program(self) -> Callable[..., Result]:
        """Return the endpoint: the panel's answer alone, with parameters named after the fields."""

        def endpoint(request: gr.Request, *values: Any) -> Result:
            result: Result = {}
            asked: Values = {}
            try:
                self.shell.limits.admit(_address(request))
                asked |= self._named(values)
                panel = self._panel(asked)
                for item in self._items(panel, self._values(values)):
                    if not isinstance(item, Progress | Waiting):
                        result = item
                return result
            except Exception as error:
                raise gr.Error(self._sentence(error, asked), print_exception=False) from None

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        request = inspect.Parameter("request", kind, annotation=gr.Request)
        # Uploads have no value on the page; only None makes a client's argument optional.
        defaults = {f.name: None if f.kind == "files" else f.default for f in self.panel.fields}
        named = [inspect.Parameter(name, kind, default=v) for name, v in defaults.items()]
        vars(endpoint)["__signature__"] = inspect.Signature([request, *named])
        return endpoint


def model_details(lab: Lab) -> str:
    """Return a one-line description of the model, which opens to its size, data and hours."""
    about = lab.about
    genome = " and ".join(file.rpartition("/")[2] for file in lab.genome.shown_files)
    simulated = "; it is a simulated genome" if lab.is_simulated else ""
    pairs: list[tuple[str, str]] = [("genome", f"{genome}{simulated}")]
    description = ""
    if about:
        hours = f"about {about.hours:.2g}" if about.hours is not None else "not recorded"
        pairs = [
            ("training data", about.trained_on or "not recorded"),
            ("parameters", f"{about.num_parameters:,}"),
            ("context", f"{about.context_bp:,} bases"),
            ("hours of training", hours),
            *pairs,
        ]
        description = f": {about.what}" if about.what else ""
    suffix = " · a simulated genome" if simulated else ""
    return part("model", lab.shown_name + description + suffix, pairs)


def _address(request: gr.Request) -> str:
    return request.client.host if request.client else "unknown"


def _in_widget(field: Field, value: Any, keeps_files: bool) -> Any:
    if field.kind == "choice":
        return gr.update(value=value, choices=field.named_choices)
    if field.kind == "files":
        return gr.skip() if keeps_files else None
    return value


def _status(text: str, *, wrong: bool = False, busy: bool = False, more: str = "") -> str:
    """Return the status line; `busy` adds a bar that moves, and shows the Stop button."""
    at = time.monotonic_ns()  # makes the page update even if the text stays the same
    return part("status", text, wrong, busy, Markup(more), at)


_DONE = part("done")
