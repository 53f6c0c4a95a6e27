"""Plain pages: `/api`, which describes the endpoints, and the answer to unknown addresses."""

import json
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from demo.fields import Field
from demo.markup import escape, table
from demo.panel import Panel

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
pre { overflow-x: auto; padding: .8em; border: 1px solid #8888; border-radius: .4em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: .2em .8em .2em 0; vertical-align: top; }
.number { text-align: right; }
"""
_INTRODUCTION = """<p>Every page of the demo is also an endpoint that returns numbers as JSON.
From Python use <code>gradio_client</code>; any other language posts to
<code>/gradio_api/call/v2/NAME</code> and reads <code>/gradio_api/call/NAME/EVENT_ID</code>.
Errors are sentences. Parameters that are not given keep their defaults.</p>"""


def api_page(panels: Sequence[Panel]) -> str:
    """Return the page `/api`."""
    return _page("Use the demo from a program", _INTRODUCTION + "".join(map(_section, panels)))


async def no_page(request: Request, error: HTTPException) -> Response:
    """Return a page that leads to the first one, or JSON to a program."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, 404)
    title = f"There is no page {escape(request.url.path)}"
    return HTMLResponse(_page(title, '<p><a href="/">Go to the first page</a></p>'), 404)


def _page(title: str, body: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{title}</h1>{body}</html>"
    )


def _section(panel: Panel) -> str:
    rows = [(f.name, _kind(f), json.dumps(f.default), f.label) for f in panel.fields]
    return (
        f'<h2 id="{panel.name}">/{panel.name}</h2><p>{escape(panel.sentence)}</p>'
        f"{table(('parameter', 'takes', 'default', 'meaning'), rows)}"
        f"<pre>{escape(_client_code(panel))}</pre>"
    )


def _kind(field: Field) -> str:
    match field.kind:
        case "integer" | "number":
            return f"{field.kind}, {field.span}"
        case "choice" | "choices":
            many = "a list of " if field.kind == "choices" else ""
            return many + " | ".join(choice or '""' for choice in field.choices)
        case "files":
            return "a list of handle_file(...): " + ", ".join(field.choices)
        case _:
            return f"text, {field.most:,.0f} letters at most"


def _client_code(panel: Panel) -> str:
    first = next((f for f in panel.fields if f.kind != "files"), None)
    argument = f"{first.name}={first.default!r}, " if first else ""
    return (
        "from gradio_client import Client\n\n"
        'client = Client("http://127.0.0.1:7860")\n'
        f'print(client.predict({argument}api_name="/{panel.name}"))'
    )
