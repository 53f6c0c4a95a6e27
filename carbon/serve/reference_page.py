"""The reference of the server: its OpenAPI document, and a page that shows it without scripts."""

import json
import shlex
from html import escape
from typing import TYPE_CHECKING, Any

from carbon.console import option_help
from carbon.reports.render import html_page, html_section, html_table
from carbon.serve.schemas import ModelRequest

if TYPE_CHECKING:
    from carbon.serve.endpoints import Endpoint

_ERRORS = {
    400: "a field is unknown or invalid, or the request exceeds --most-items or --most-tokens",
    401: "the token is missing or wrong (--token-file)",
    408: "the request did not arrive in time (--timeout)",
    411: "the length of the body is missing",
    413: "the body is too long",
    503: "too many requests wait (--most-waiting) or connections are open (--most-connections)",
}
_SEND_TOKEN = " -H 'Authorization: Bearer TOKEN'"
_HEADER = ("field", "type", "default", "meaning")
_INTRODUCTION = (
    "Send JSON with <code>Content-Type: application/json</code>. Errors have OpenAI's form: "
    "<code>error.message</code> says what is wrong, and <code>error.param</code> names the field. "
    "<a href='openapi.json'>openapi.json</a> has this page for programs."
)


def operation(endpoint: "Endpoint[Any]") -> dict[str, Any]:
    """Return the keywords with which FastAPI describes an endpoint."""
    content = {"schema": _schema(endpoint.request), "example": endpoint.example}
    return {
        "summary": type(endpoint).__doc__,
        "responses": {status: {"description": meaning} for status, meaning in _ERRORS.items()},
        "openapi_extra": {
            "requestBody": {"required": True, "content": {"application/json": content}}
        },
    }


def _schema(kind: type[ModelRequest]) -> dict[str, Any]:
    """Return the JSON schema of a request, with the meaning of each field from the docstrings."""
    schema = kind.model_json_schema()
    meanings: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if issubclass(each, ModelRequest):
            meanings |= option_help(each)
    for name, field in schema["properties"].items():
        if name in meanings:
            field["description"] = meanings[name]
    return schema


def reference_page(document: dict[str, Any], address: str, *, has_token: bool) -> str:
    """Return a page of an OpenAPI document: each endpoint with its fields and a `curl` command.

    Args:
        document: of the application.
        address: URL of the server, as the reader of the page has it.
        has_token: the server requires a token.
    """
    options = _SEND_TOKEN if has_token else ""
    info = document["info"]
    sections = [
        _section(path, method, about, f"curl {shlex.quote(address.rstrip('/') + path)}{options}")
        for path, methods in document["paths"].items()
        for method, about in methods.items()
    ]
    errors = html_table([(str(status), meaning) for status, meaning in _ERRORS.items()])
    return html_page(
        f"{info['title']} {info['version']}: HTTP API",
        _INTRODUCTION,
        *sections,
        html_section("Errors", "", errors),
    )


def _section(path: str, method: str, about: dict[str, Any], curl: str) -> str:
    title = f"{method.upper()} {path}"
    if "requestBody" not in about:
        return html_section(title, escape(about["summary"]))
    content = about["requestBody"]["content"]["application/json"]
    schema, example = content["schema"], json.dumps(content["example"])
    rows = [
        (name, _type(field), _default(field), field.get("description", ""))
        for name, field in schema["properties"].items()
    ]
    command = f"{curl} --json {shlex.quote(example)}"
    shown = f"<pre><code>{escape(command)}</code></pre>"
    return html_section(title, escape(about["summary"]), shown, html_table(rows, _HEADER))


def _type(field: dict[str, Any]) -> str:
    """Return the type of a JSON schema in words."""
    if "anyOf" in field:
        return " or ".join(map(_type, field["anyOf"]))
    if "enum" in field:
        return ", ".join(map(str, field["enum"]))
    if "const" in field:
        return json.dumps(field["const"])
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    return str(field["type"])


def _default(field: dict[str, Any]) -> str:
    return json.dumps(field["default"]) if "default" in field else "required"
