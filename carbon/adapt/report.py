"""One HTML page about a run of `carbon adapt`: how good, beside what, how learned, where wrong."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from carbon import __version__
from carbon.adapt.examples import PARTS
from carbon.adapt.findings import (
    Findings,
    estimate_text,
    number_text,
    read_findings,
    read_predictions,
    spoken,
)
from carbon.adapt.report_pictures import (
    answer_figure,
    calibration_figure,
    confusion_figure,
    groups_figure,
    layers_figure,
    loss_figure,
    numbers_figure,
    score_figure,
    sizes_figure,
)
from carbon.console import shown
from carbon.io.files import atomic_file
from carbon.pages import (
    Row,
    html_answer,
    html_figure,
    html_page,
    html_paragraph,
    html_section,
    html_table,
    svg_of,
)

REPORT = "report.html"
_MOST_SCORES, _MOST_NUMBERS, _MOST_CLASSES = 40, 6, 40


def write_report(folder: Path, name: str | None = None) -> Path:
    """Write `report.html` into the folder of a run and return its path.

    Args:
        folder: that `carbon adapt` wrote.
        name: to call the run by; the folder's own, if none is given.

    Raises:
        ModelError: it is no such folder, or one of another version, or damaged.
    """
    findings = read_findings(folder, name)
    sections = (
        _answer(findings),
        _scores(findings),
        _learning(findings),
        _predictions(folder, findings),
        _groups(findings),
        _worst(findings),
        _data(findings),
        _settings(findings),
    )
    small = (
        f"Carbon {__version__}. Brackets are 95 % intervals by bootstrap, "
        f"{findings.results['drawn_together']} drawn whole. The test part was measured once."
    )
    with atomic_file(folder / REPORT) as temporary:
        page = html_page(findings.name, small, *sections)
        temporary.write_text(page, encoding="utf-8")
    return folder / REPORT


def _section(title: str, *parts: str) -> str:
    return html_section(title, "", *parts) if any(parts) else ""


def _picture(figure: Figure, caption: str = "") -> str:
    return html_figure(svg_of(figure), caption)


def _answer(findings: Findings) -> str:
    picture = _picture(answer_figure(findings.results["test"], findings.first))
    return html_answer(findings.answer()) + picture


def _scores(findings: Findings) -> str:
    tested, against = findings.results["test"], findings.results["model_minus"]
    names = list(tested["model"])[:_MOST_SCORES]
    left_out = len(tested["model"]) - len(names)
    rows = [(spoken(n), *(estimate_text(of[n]) for of in tested.values())) for n in names]
    parts = [html_table(rows, ("test part", *tested))]
    if against:
        rows = [(spoken(n), *(estimate_text(of[n]) for of in against.values())) for n in names]
        parts += [
            "<h3>Model minus baseline, on the same draws</h3>",
            html_table(rows, ("test part", *(f"minus {name}" for name in against))),
            html_paragraph(
                "A difference whose interval leaves out 0 is more than the choice of test examples "
                "explains. Of a mean squared error less is better."
                if findings.results["kind"] == "numbers"
                else "A difference whose interval leaves out 0 is more than the choice of test "
                "examples explains."
            ),
        ]
    if left_out:
        parts.append(html_paragraph(f"{left_out:,} more scores are in results.json."))
    return _section("Scores", *parts)


def _learning(findings: Findings) -> str:
    seeds, first = findings.results["seeds"], findings.first
    if findings.manifest.way == "probe":
        learned_from = "6-mers" if findings.manifest.question.per_base else "examples"
        return _section("Learning", *_probed(seeds[0], first, learned_from))
    captions = (
        "Loss; of the train part the mean since the look before, with dropout where there is any.",
        "Score of the validation part; a ring is the look that was kept.",
    )
    figures = loss_figure(seeds), score_figure(seeds, first)
    rows = [(str(seed["seed"]), f"{seed['step']:,}", number_text(seed["score"])) for seed in seeds]
    header = ("seed", "step kept", f"{spoken(first)}, validation part")
    kept = "The folder holds the seed that is best on the validation part." if rows[1:] else ""
    pictures = [_picture(f, caption) for f, caption in zip(figures, captions, strict=True)]
    return _section(
        "Learning", *pictures, html_table(rows, header), html_paragraph(kept) if kept else ""
    )


def _probed(seed: dict[str, Any], first: str, rows: str) -> list[str]:
    """Return what a probe has in place of curves: layers, and shares of the train part."""
    parts = []
    if len(seed["layers"]) > 1:
        figure = layers_figure(seed["layers"], seed["layer"], first)
        parts.append(_picture(figure, "By layer; a ring is the one that was kept."))
    if len(seed["sizes"]) > 1:
        caption = f"By {rows} learned from, at the layer that was kept."
        parts.append(_picture(sizes_figure(seed["sizes"], first, rows), caption))
    return parts


def _predictions(folder: Path, findings: Findings) -> str:
    """Return confusion and calibration, or what was predicted by what was measured."""
    details, question = findings.results["details"], findings.manifest.question
    parts = []
    if (found := details["confusion"]) and len(question.names) <= _MOST_CLASSES:
        caption = "Confusion: of each true class, the share that is said to be which."
        parts.append(_picture(confusion_figure(found, question.names), caption))
    if found := details["calibration"]:
        caption = (
            f"Calibration of {_CERTAINTY[question.kind]}, in ten bins of equally many. Their mean "
            f"distance from the line is {found['error']:.3f}."
        )
        parts.append(_picture(calibration_figure(found["bins"]), caption))
    if question.of_kind.is_number:
        labels, said = read_predictions(folder, findings)
        columns = zip(question.names, labels.T, said.T, strict=True)
        parts += [_picture(numbers_figure(*column)) for column in list(columns)[:_MOST_NUMBERS]]
    return _section("Predictions", *parts)


_CERTAINTY = {
    "binary": "the probability of the second class",
    "classes": "the probability of the class that is said",
    "labels": "the probability of each label",
    "bases": "the probability of the class that is said",
}


def _groups(findings: Findings) -> str:
    groups = findings.results["details"]["groups"]
    if not groups:
        return ""
    shown_names = [name for name in ("model", findings.best_baseline()) if name]
    figure = groups_figure(groups, shown_names, findings.first)
    caption = "The largest groups of the test part, and their examples."
    return _section("By group", _picture(figure, caption))


def _worst(findings: Findings) -> str:
    worst = findings.results["details"]["worst"]
    if not worst:
        return ""
    has_groups = any(each["group"] for each in worst)
    header = ("name", *(["group"] if has_groups else []), "bp", *_said_of(findings), "loss")
    rows = [
        (
            each["name"],
            *([each["group"]] if has_groups else []),
            f"{each['bases']:,}",
            *_said(findings, each),
            number_text(each["loss"]),
            each["begins"],
        )
        for each in worst
    ]
    loss = (
        "The loss is the squared error in variances of the test part, the mean over numbers."
        if findings.manifest.question.of_kind.is_number
        else "The loss is the cross-entropy in nats, the mean over labels or bases."
    )
    table = html_table(rows, (*header, "begins with"))
    return _section("Worst examples", table, html_paragraph(loss))


def _said_of(findings: Findings) -> Row:
    question = findings.manifest.question
    if question.per_base:
        return ()
    names = "" if question.of_kind.one_column else f" ({', '.join(question.names[:_MOST_NUMBERS])})"
    return f"label{names}", "predicted"


def _said(findings: Findings, example: dict[str, Any]) -> Row:
    """Return what an example is and what was predicted; nothing of a label of every base."""
    question = findings.manifest.question
    if question.per_base:
        return ()
    if not question.of_kind.one_column:
        return _values(example["label"]), _values(example["prediction"])
    said = example["prediction"]
    probabilities = said if len(said) > 1 else [1 - said[0], said[0]]
    most = max(range(len(probabilities)), key=lambda n: probabilities[n])
    label = question.names[int(example["label"][0])]
    return label, f"{question.names[most]} ({probabilities[most]:.3f})"


def _values(values: Sequence[float | None]) -> str:
    few = ["unknown" if v is None else number_text(v) for v in values[:_MOST_NUMBERS]]
    return ", ".join(few) + (", ..." if len(values) > len(few) else "")


def _data(findings: Findings) -> str:
    results = findings.results
    files = [(each["role"], each["name"], each["sha256"]) for each in results["files"]]
    told = "".join(f"<li>{html.escape(line)}</li>" for line in results["told"])
    return _section(
        "Data and split",
        html_table(label_rows(findings), ("", *PARTS)),
        f"<ul>{told}</ul>",
        html_table(files, ("role", "file", "SHA-256")) if files else "",
        html_paragraph(f"SHA-256 of all sequences and their parts: {results['split_sha256']}."),
    )


def label_rows(findings: Findings) -> list[Row]:
    """Return rows of a table: examples of each part, and labels of each name."""
    results = findings.results
    rows = [("examples", *(f"{results['examples'][part]:,}" for part in PARTS))]
    for name in findings.manifest.question.names[:_MOST_SCORES]:
        values = [results["labels"][part][name] for part in PARTS]
        rows.append((name, *map(_label_text, values)))
    return rows


def _label_text(value: Any) -> str:
    if isinstance(value, dict):
        mean, sd = (v if v is None else number_text(v) for v in (value["mean"], value["sd"]))
        return f"mean {mean}, SD {sd}" if mean else "none known"
    return f"{value:,}"


def _settings(findings: Findings) -> str:
    return _section("Model and settings", html_table(setting_rows(findings), ("setting", "value")))


def setting_rows(findings: Findings) -> list[Row]:
    """Return rows of a table: the model, and what it was adapted with."""
    way, manifest, question = findings.config.way, findings.manifest, findings.manifest.question
    rows: list[tuple[str, Any]] = [
        ("base model", findings.base),
        ("SHA-256 of its weights", manifest.base_sha256),
        ("question", question.kind),
        ("loss", question.loss),
        ("class weights", findings.config.question.class_weights),
        ("way", way.name),
        ("pool", manifest.pool),
        ("layer", manifest.layer or "last"),
        ("strands of a prediction", manifest.strands),
        ("sequences that are too long", manifest.too_long),
    ]
    if question.transforms:
        rows.append(("transform", findings.config.question.transform))
    if way.name == "lora":
        rows += [("rank", way.rank), ("alpha", way.scale), ("dropout", way.dropout)]
    if way.name != "probe":
        rows += [
            ("highest learning rate", f"{way.rate:g}"),
            ("sequences a step", way.batch_sequences),
            ("most epochs", f"{way.most_epochs:g}"),
            ("patience, looks", way.patience),
            ("weight decay", f"{way.weight_decay:g}"),
            ("reverse complements in learning", "half" if way.augment else "none"),
            ("seeds", ", ".join(map(str, findings.config.seeds))),
        ]
    return [(name, shown(value)) for name, value in rows]
