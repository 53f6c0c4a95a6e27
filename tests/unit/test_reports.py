"""Pages of `carbon.reports`: escaped, self-contained, and part of the wheel."""

from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from markupsafe import Markup

from carbon.reports import render
from carbon.reports.figures import BLUE, axes_of, save_picture, svg_of

ROOT = Path(__file__).parents[2]
EVIL = "<script>alert('&')</script>"


@pytest.mark.parametrize(
    "made",
    [
        render.html_page(EVIL, ""),
        render.html_figure("<svg></svg>", EVIL),
        render.html_table([(EVIL, 1)], (EVIL, "n")),
        render.html_answer([EVIL, EVIL]),
        render.html_section(EVIL, ""),
        render.render_page(
            "rl.html", EVIL, EVIL, summary=[EVIL], rewards=Markup("<svg></svg>"),
            curves=[{"svg": "", "caption": EVIL}], samples=[(EVIL, "ACGT")],
        ),
    ],
)  # fmt: skip
def test_text_is_escaped(made):
    assert "<script" not in made and "&lt;script&gt;alert(" in made and "&amp;" in made


def test_a_page_needs_no_other_file():
    figure, axes = axes_of(2, 2)
    axes.plot([0, 1], color=BLUE)
    svg = svg_of(figure)
    assert svg == svg_of(figure) and "var(--blue)" in svg and BLUE not in svg
    page = render.html_page("t", "", render.html_grid([render.html_figure(svg)]))
    assert page.count("<style") - svg.count("<style") == 1 and "var(--blue)" in page
    assert not any(
        address in page for address in ("http:", "https:", "<link", "<script", "@import")
    )


def test_equal_figures_give_equal_files(tmp_path):
    for ending in (".png", ".svg", ".pdf"):
        for name in "ab":
            figure, axes = axes_of(2, 2)
            axes.plot([0, 1], color=BLUE)
            save_picture(figure, tmp_path / f"{name}{ending}")
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_the_wheel_has_templates_and_stylesheet():
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    files = [*(ROOT / "carbon/reports/templates").iterdir(), ROOT / "carbon/reports/style.css"]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= packed
