"""The three kinds of view as Gradio components; `assets/demo.js` draws two of them."""

import gradio as gr

from demo.markup import escape
from demo.panel import View

SCRIPT = '<script src="/carbon/assets/demo.js"></script>'
_PLOTLY = '<script src="/carbon/plotly.js"></script>'
_FIGURE = '<div class="figure" role="group" aria-label="{label}"></div>'
_BASES = (
    '<div class="strip" tabindex="0" role="group" aria-label="{label}; the arrow keys move along"'
    '></div><div class="tip" role="status" aria-live="polite"></div><div class="key">probability '
    + "".join(f'<span class="p{n}">{10 * n}</span>' for n in range(10))
    + "100 %; paler: your bases</div>"
)


def component_of(view: View) -> gr.HTML:
    """Return the component of a view."""
    label = escape(view.label)
    if view.kind == "html":
        return gr.HTML(elem_id=f"view-{view.name}")
    scripts = SCRIPT + (_PLOTLY if view.kind == "figure" else "")
    template = {"figure": _FIGURE, "bases": _BASES}[view.kind].format(label=label)
    return gr.HTML(
        value=None,
        html_template=template,
        js_on_load=f"window.carbon.{view.kind}(element, props, trigger, watch)",
        head=scripts,
        elem_id=f"view-{view.name}",
    )
