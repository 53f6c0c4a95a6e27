"""A panel as a Gradio page: inputs, buttons, views, and the events between them."""

import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import gradio as gr

from carbon.errors import TypedError, UserError
from demo.fields import Field, Values, checked_values
from demo.limits import Limits
from demo.markup import escape, link_chip
from demo.models import model_card
from demo.panel import MODEL, Panel, Progress, Result
from demo.uploads import without_folders
from demo.views import SCRIPT, component_of

_LOG = logging.getLogger("carbon.demo")
_BROKEN = "something went wrong on this side; what it was is in the server's log"
_LETTERS_BESIDE = 24  # shown on each side of a wrong letter
_POLITE = ' role="status"'
_SECONDS_BETWEEN_VIEWS = 0.2  # drawing takes longer than computing if the model is small
_SHOW_ADDRESS = "(link) => carbon.showAddress(link, '%sState')"


class Page:
    """Adds a panel's widgets to the open page and handles their events."""

    def __init__(self, page: gr.Blocks, panel: Panel, limits: Limits) -> None:
        """Create the widgets and connect their events."""
        self.panel, self.limits = panel, limits
        with gr.Row():
            self.card = gr.HTML(model_card(panel.lab))
            switch = [f.component() for f in panel.fields if f.name == MODEL]
        self.links = gr.HTML(
            f"<h1>{escape(panel.title)}</h1><p>{escape(panel.sentence)}</p>"
            f"<nav aria-label='Examples'>{panel.example_links()}</nav>",
            head=SCRIPT,
            js_on_load="window.carbon.links(trigger)",
        )
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                self.inputs = [*self._inputs(), *switch]
                with gr.Row():
                    self.run = gr.Button(panel.run_label, variant="primary")
                    self.more = {label: gr.Button(label) for label in panel.buttons()}
                    self.stop = gr.Button("Stop")
            with gr.Column(scale=3, min_width=320, elem_classes="answer"):
                self.status = gr.HTML(elem_id="status")
                self.views = {view.name: component_of(view) for view in panel.views}
                with gr.Accordion("Show the code", open=False):
                    self.python = gr.Code(language="python", label="Python", interactive=False)
                    self.command = gr.Code(
                        language="shell", label="Command line", interactive=False
                    )
                self.link = gr.Textbox(
                    label="Link to this state", interactive=False, buttons=["copy"]
                )
        self.result = gr.State(time_to_live=3600)
        self._events(page)

    def _inputs(self) -> list[gr.components.Component]:
        made = {field.name: field for field in self.panel.fields if field.name != MODEL}
        first = {name: field.component() for name, field in made.items() if not field.more}
        behind = [field for field in made.values() if field.more]
        if behind:
            with gr.Accordion("More settings", open=False):
                first |= {field.name: field.component() for field in behind}
        return [first[name] for name in made]

    @property
    def _outputs(self) -> list[gr.components.Component]:
        return [
            self.status,
            self.card,
            *self.views.values(),
            self.python,
            self.command,
            self.link,
            self.result,
        ]

    def _events(self, page: gr.Blocks) -> None:
        turn: dict[str, Any] = {
            "concurrency_id": "model" if self.panel.uses_model else "light",
            "concurrency_limit": 1 if self.panel.uses_model else 4,
        }
        quiet: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        ask = {"fn": self._ask, "inputs": self.inputs, "outputs": self._outputs, **turn, **quiet}
        asked: list[Any] = [self.run.click(**ask)]
        for field, typed in zip(self.panel.fields, self.inputs, strict=True):
            if isinstance(typed, gr.Textbox):
                asked.append(typed.submit(**ask))
            elif isinstance(typed, gr.Dropdown | gr.Radio) and field.asks:
                asked.append(typed.input(**ask))
        restored = [*self.inputs, *self._outputs]
        opened = [
            page.load(self._open, None, restored, **turn, **quiet),
            self.links.select(self._follow, self.inputs, restored, **turn, **quiet),
        ]
        for label, button in self.more.items():
            change = button.click(
                self._changed_by(label), [self.result, *self.inputs], self.inputs, **quiet
            )
            asked.append(change.success(**ask))
        for pick in self.panel.picks():
            picked = self.views[pick.view].select(
                self._picked_by(pick.set), self.inputs, self.inputs, **quiet
            )
            redraw = {"fn": self._redraw, "inputs": [self.result, *self.inputs]}
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
            self.inputs,
            gr.JSON(visible=False),
            api_name=self.panel.name,
            api_description=self.panel.sentence,
            **turn,
        )

    def _named(self, given: Sequence[Any]) -> Values:
        return dict(zip((field.name for field in self.panel.fields), given, strict=True))

    def _panel(self, given: Mapping[str, Any]) -> Panel:
        """Return the panel of the model that this visitor selected; other visitors keep theirs."""
        return self.panel.with_model(str(given.get(MODEL) or self.panel.lab.shown_name))

    def _values(self, given: Sequence[Any]) -> Values:
        named = self._named(given)
        return checked_values(self._panel(named).fields, named)

    def _ask(self, request: gr.Request, *given: Any) -> Iterator[list[Any]]:
        """Answer the values of the widgets; yield outputs as they become available."""
        yield from self._told(request, self._named(given))

    def _told(
        self, request: gr.Request, given: Values, kept: Values | None = None
    ) -> Iterator[list[Any]]:
        """Answer values, or show the error in place of the answer.

        Restoring a state passes its uploads as `kept`; the outputs then start with the widgets.
        """
        unchanged = [] if kept is None else [gr.skip() for _ in self.panel.fields]
        try:
            self.limits.admit(_address(request))
            panel = self._panel(given)
            if kept is not None:
                panel.refresh()
            values = checked_values(panel.fields, given)
            if kept is not None:
                shown = [_in_widget(f, values[f.name], bool(kept)) for f in panel.fields]
                yield [*shown, _status("Waiting ..."), *self._unchanged()]
            for outputs in self._answered(panel, values):
                yield [*unchanged, *outputs]
        except Exception as error:
            told = _status(self._sentence(error), wrong=True, more=self._shown_wrong(error, given))
            yield [*unchanged, told, gr.skip(), *([None] * len(self._outputs[2:]))]

    def _ask_again(self, request: gr.Request, *given: Any) -> Iterator[list[Any]]:
        """Refresh the answer periodically; screen readers announce only errors."""
        for status, *shown in self._ask(request, *given):
            yield [status.replace(_POLITE, ""), *shown]

    def _open(self, request: gr.Request) -> Iterator[list[Any]]:
        """Restore the state in the page's address, and answer it."""
        yield from self._restored(request, request.query_params, {})

    def _follow(self, event: gr.EventData, request: gr.Request, *given: Any) -> Iterator[list[Any]]:
        """Restore the state of a link to this page, keep the uploads, and answer it."""
        query = dict(parse_qsl(event._data["picked"].removeprefix("?"), keep_blank_values=True))
        yield from self._restored(request, query, self._named(given))

    def _restored(
        self, request: gr.Request, query: Mapping[str, str], kept: Values
    ) -> Iterator[list[Any]]:
        files = {f.name for f in self.panel.fields if f.kind == "files"}
        given = {f.name: query[f.name] for f in self.panel.fields if f.name in query}
        uploads = {name: kept.get(name) for name in files}
        yield from self._told(request, given | uploads, kept)

    def _answered(self, panel: Panel, values: Values) -> Iterator[list[Any]]:
        start = shown_at = time.monotonic()
        result: Result = {}
        for item in self.limits.timed(panel.answer(values)):
            result = result if isinstance(item, Progress) else item
            if time.monotonic() - shown_at < _SECONDS_BETWEEN_VIEWS:
                continue
            if isinstance(item, Progress):
                yield [_bar(item), *self._unchanged()]
            else:
                yield [_status("Working ..."), *_shown(panel, values, item), *[gr.skip()] * 4]
            shown_at = time.monotonic()
        redrawn = any(not pick.asks for pick in self.panel.picks())
        kept = result if self.more or redrawn else None
        status = _status(f"{time.monotonic() - start:.2f} s")
        yield [status, *_shown(panel, values, result), *_code(panel, values), kept]

    def _redraw(self, result: Result | None, *given: Any) -> list[Any]:
        """Show the last answer again, as the current values display it."""
        if result is None:
            return [gr.skip(), *self._unchanged()]
        values, panel = self._values(given), self._panel(self._named(given))
        return [gr.skip(), *_shown(panel, values, result), *_code(panel, values), gr.skip()]

    def _unchanged(self) -> list[Any]:
        return [gr.skip() for _ in self._outputs[1:]]

    def _changed_by(self, label: str) -> Callable[..., list[Any]]:
        change = self.panel.buttons()[label]

        def pressed(result: Result | None, *given: Any) -> list[Any]:
            values = self._values(given)
            return self._as_updates(change(values, result) if result else {})

        return pressed

    def _picked_by(self, change: Callable[[Any, Values], Values]) -> Callable[..., list[Any]]:
        def picked(event: gr.EventData, *given: Any) -> list[Any]:
            return self._as_updates(change(event._data["picked"], self._values(given)))

        return picked

    def _sentence(self, error: Exception) -> str:
        """Return the message for the visitor; unexpected errors go to the log."""
        if isinstance(error, UserError):
            return without_folders(str(error), self.panel.lab.genome.shown_files)
        _LOG.error("a panel failed", exc_info=error)
        return _BROKEN

    def _shown_wrong(self, error: Exception, given: Values) -> str:
        """Return the text with its first wrong letter marked, and links to likely corrections."""
        if not isinstance(error, TypedError):
            return ""
        line, at, end = error.text, error.at, error.at + max(1, len(error.wrong))
        parts = line[max(0, at - _LETTERS_BESIDE) : at], line[at:end] or " ", line[end:]
        before, wrong, behind = (escape(part[:_LETTERS_BESIDE]) for part in parts)
        links = "".join(
            link_chip(self.panel.link(self._respelled(given, error.wrong, name)), name)
            for name in error.near
        )
        shown = f"<pre>{before}<mark>{wrong}</mark>{behind}</pre>"
        return shown + (f"<p>Did you mean {links}</p>" if links else "")

    def _respelled(self, given: Values, wrong: str, name: str) -> Values:
        """Return the values with a wrong name replaced in every text field."""
        typed = (field.name for field in self.panel.fields if field.kind == "text")
        return given | {key: given[key].replace(wrong, name, 1) for key in typed if given.get(key)}

    def _as_updates(self, changed: Values) -> list[Any]:
        return [changed.get(field.name, gr.skip()) for field in self.panel.fields]

    def _program(self) -> Callable[..., Result]:
        """Return the endpoint: the panel's answer alone, with parameters named after the fields."""

        def endpoint(request: gr.Request, *given: Any) -> Result:
            try:
                self.limits.admit(_address(request))
                result: Result = {}
                panel = self._panel(self._named(given))
                for item in self.limits.timed(panel.answer(self._values(given))):
                    if not isinstance(item, Progress):
                        result = item
                return result
            except Exception as error:
                raise gr.Error(self._sentence(error), print_exception=False) from None

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        request = inspect.Parameter("request", kind, annotation=gr.Request)
        # Uploads have no value on the page; only None makes a client's argument optional.
        defaults = {f.name: None if f.kind == "files" else f.default for f in self.panel.fields}
        named = [inspect.Parameter(name, kind, default=v) for name, v in defaults.items()]
        vars(endpoint)["__signature__"] = inspect.Signature([request, *named])
        return endpoint


def _shown(panel: Panel, values: Values, result: Result) -> list[Any]:
    """Return the model card and the views."""
    shown = panel.show(values, result)
    return [model_card(panel.lab), *(shown.get(view.name, gr.skip()) for view in panel.views)]


def _code(panel: Panel, values: Values) -> list[str]:
    return [panel.python(values), panel.command(values), panel.link(values)]


def _address(request: gr.Request) -> str:
    return request.client.host if request.client else "unknown"


def _in_widget(field: Field, value: Any, keeps_files: bool) -> Any:
    if field.kind == "choice":
        return gr.update(value=value, choices=field.named_choices)
    if field.kind == "files":
        return gr.skip() if keeps_files else None
    return value


def _status(text: str, *, wrong: bool = False, more: str = "") -> str:
    style, role = ("status wrong", ' role="alert"') if wrong else ("status", _POLITE)
    # The timestamp makes the page update even if an answer takes exactly as long as the last one.
    return f'<div class="{style}" data-at="{time.monotonic_ns()}"{role}>{escape(text)}{more}</div>'


def _bar(progress: Progress) -> str:
    done, total = progress.done, progress.total
    return (
        f'<div class="status"{_POLITE}>{done:,} of {total:,} {escape(progress.unit)}'
        f'<progress max="{total}" value="{done}"></progress></div>'
    )
