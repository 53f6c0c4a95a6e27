"""HTML reports, figures and model cards of runs.

- `render`: HTML pages by jinja2 (`templates/`), with one stylesheet (`style.css`).
- `figures`: the palette, styles and files of all figures.
- `card`: Markdown for model cards.
"""
