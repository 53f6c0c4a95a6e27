"""Plain pages: `/api`, which describes the endpoints, and the answer to unknown addresses."""

import json
from collections.abc import Sequence

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from demo.fields import Field
from demo.markup import render, table
from demo.panel import Panel

_HEADER = ("parameter", "takes", "default", "meaning")


def api_page(panels: Sequence[Panel]) -> str:
    """Return the page `/api`."""
    endpoints = [(panel, Markup(_parameters(panel)), _argument(panel)) for panel in panels]
    return render("api.html", title="Use the demo from a program", endpoints=endpoints)


async def no_page(request: Request, error: HTTPException) -> Response:
    """Return a page that leads to the first one, or JSON to a program."""
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": error.detail}, 404)
    title = f"There is no page {request.url.path}"
    return HTMLResponse(render("plain.html", title=title), 404)


def _parameters(panel: Panel) -> str:
    rows = [(f.name, _kind(f), json.dumps(f.default), f.label) for f in panel.fields]
    return table(_HEADER, rows)


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


def _argument(panel: Panel) -> str:
    """Return the first field that a program can give without a file, as an argument."""
    first = next((f for f in panel.fields if f.kind != "files"), None)
    return f"{first.name}={first.default!r}, " if first else ""
