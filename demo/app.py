"""All pages as one app, and the options of its server."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr
import plotly
from starlette.middleware import Middleware
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from demo.api_page import api_page
from demo.lab import Lab
from demo.limits import Limits
from demo.page import Page
from demo.panel import Panel
from demo.panels import PANELS
from demo.security import BodyLimits, OwnPages

ASSETS = Path(__file__).parent / "assets"
_PLOTLY = Path(plotly.__file__).parent / "package_data"
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
_UNFIT = "a value is missing, or is none that its field takes; /api lists what each takes"


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
    """Return all panels in navigation order."""
    return tuple(panel(lab) for panel in PANELS)


def build(lab: Lab, limits: Limits) -> gr.Blocks:
    """Return the app with a page for each panel; the first panel is at the root."""
    first, *others = make_panels(lab)
    app = _App(title="Carbon", analytics_enabled=False, delete_cache=(600, 3600))
    with app:
        Page(app, first, limits)
    app.pages[0] = ("", first.title, True)
    for panel in others:
        with app.route(panel.title, panel.path) as page:
            Page(page, panel, limits)
    app.queue(max_size=limits.waiting, api_open=False)
    return app


def launch_options(lab: Lab, limits: Limits) -> Mapping[str, Any]:
    """Return the keyword arguments of `gr.Blocks.launch`, for every way to start the server."""
    panels = make_panels(lab)
    cards = {panel.path: (panel.title, panel.sentence) for panel in panels}
    cards["/"] = cards.pop(panels[0].path)
    return {
        "app_kwargs": {
            "routes": [
                Mount("/carbon/assets", StaticFiles(directory=ASSETS)),
                Mount("/carbon/plotly", StaticFiles(directory=_PLOTLY)),
                Route("/api", api_page(panels)),
            ],
            "middleware": [
                Middleware(OwnPages, cards=cards),
                Middleware(BodyLimits, limits=limits),
            ],
        },
        "css_paths": [ASSETS / "demo.css"],
        "theme": gr.themes.Base(font=_SYSTEM_FONTS, font_mono=_MONO_FONTS).set(**_READABLE),
        "max_file_size": limits.upload_bytes,
        "state_session_capacity": _SESSIONS,
        "footer_links": [],
        "favicon_path": ASSETS / "icon.svg",
        "ssr_mode": False,
        "pwa": False,
        "show_error": False,
        "quiet": True,
        "enable_monitoring": False,
    }
