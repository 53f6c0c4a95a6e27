"""All pages as one app, and the options of its server."""

import gzip
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from demo.api_page import api_page, no_page
from demo.lab import Lab
from demo.limits import Limits
from demo.page import Page, Shell
from demo.panel import Panel
from demo.panels import PANELS
from demo.preview import Card, Previews, draw_card
from demo.security import BodyLimits, OwnPages
from demo.turns import Turns

ASSETS = Path(__file__).parent / "assets"
_PLOTLY = ASSETS / "plotly-cartesian-4.1.1.min.js.gz"
_SYSTEM_FONTS = ["system-ui", "sans-serif"]
_MONO_FONTS = ["ui-monospace", "monospace"]
_QUIET = "#595963"  # contrast above 4.5:1 on white and on the light greys of fields
_READABLE = {
    "body_text_color_subdued": _QUIET,
    "block_info_text_color": _QUIET,
    "block_title_text_color": _QUIET,
    "button_primary_background_fill": "*primary_700",
}
_SESSIONS = 100  # Gradio keeps about a MiB and the last answer of each
_UNFIT = "a value is missing, or its field does not accept it; /api lists the accepted values"
_FOR_A_DAY = {"Cache-Control": "max-age=86400"}


class _App(gr.Blocks):
    """Blocks that report invalid values in a sentence instead of a traceback."""

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> list[Any]:
        try:
            values: list[Any] = await super().preprocess_data(*args, **kwargs)
            return values
        except gr.Error as error:
            raise gr.Error(error.message, print_exception=False) from None
        except Exception:
            raise gr.Error(_UNFIT, print_exception=False) from None


def make_panels(lab: Lab) -> tuple[Panel, ...]:
    """Return the panels that the lab has something for, in navigation order."""
    return tuple(panel(lab) for panel in PANELS if panel.is_available(lab))


def build(lab: Lab, limits: Limits) -> tuple[gr.Blocks, Mapping[str, Any]]:
    """Return the app with a page for each panel, the first at the root, and its launch options."""
    panels = make_panels(lab)
    first, *others = panels
    previews = Previews((panel.path, Card(panel.title, panel.sentence)) for panel in panels)
    pages = [(panel.path, panel.title) for panel in panels]
    shell = Shell(limits, Turns(), previews, pages)
    app = _App(title="Carbon", analytics_enabled=False, delete_cache=(600, 3600))
    with app:
        Page(app, first, shell)
    app.pages[0] = ("", first.title, True)
    for panel in others:
        with app.route(panel.title, panel.path) as page:
            Page(page, panel, shell)
    app.queue(max_size=limits.waiting, api_open=False)
    return app, _launch_options(lab, limits, panels, previews)


def _launch_options(
    lab: Lab, limits: Limits, panels: Sequence[Panel], previews: Previews
) -> Mapping[str, Any]:
    genes, api = lab.genome.gene_names, api_page(panels)
    return {
        "app_kwargs": {
            "exception_handlers": {404: no_page},
            "routes": [
                Route("/carbon/plotly.js", _plotly),
                Route("/carbon/genes.json", lambda _: JSONResponse(genes, headers=_FOR_A_DAY)),
                Route("/carbon/card.png", _picture(previews)),
                Mount("/carbon/assets", StaticFiles(directory=ASSETS)),
                Route("/api", lambda _: HTMLResponse(api)),
            ],
            "middleware": [
                Middleware(OwnPages, previews=previews),
                Middleware(BodyLimits, limits=limits),
            ],
        },
        "css_paths": [ASSETS / "demo.css"],
        "theme": gr.themes.Base(font=_SYSTEM_FONTS, font_mono=_MONO_FONTS).set(**_READABLE),
        "max_file_size": limits.upload_bytes,
        "max_threads": limits.waiting + 16,
        "state_session_capacity": _SESSIONS,
        "footer_links": [],
        "favicon_path": ASSETS / "icon.svg",
        "ssr_mode": False,
        "pwa": False,
        "show_error": False,
        "quiet": True,
        "enable_monitoring": False,
    }


async def _plotly(request: Request) -> Response:
    """Send the script of the figures compressed, which all current browsers accept."""
    script, headers = _PLOTLY.read_bytes(), dict(_FOR_A_DAY)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        script = gzip.decompress(script)
    return Response(script, media_type="text/javascript", headers=headers)


def _picture(previews: Previews) -> Callable[[Request], Response]:
    def respond(request: Request) -> Response:
        card = previews.card_of(request.query_params.get("state", "/"))
        if card is None:
            return Response("there is no such page", 404)
        return Response(draw_card(card), media_type="image/png")

    return respond
