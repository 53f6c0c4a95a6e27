"""One HTML page about one model: how it learned, what it recovers, what it finds damaging."""

import html
import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from carbon import __version__
from carbon.errors import ConfigError
from carbon.files import atomic_file
from eval.figures import loss_figure, recovery_figure, roc_figure

matplotlib.use("svg")
# Equal input gives equal bytes: no random identifiers, text kept as text.
matplotlib.rcParams.update({"svg.hashsalt": "carbon", "svg.fonttype": "none", "font.size": 11})

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #1a1a1a; background: #fff; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.2rem; }
table { border-collapse: collapse; } td, th { padding: .25rem .9rem .25rem 0; text-align: left; }
td:not(:first-child) { font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
.sequence { font: 14px/1.6 ui-monospace, monospace; overflow-wrap: anywhere; }
.A { color: #00714f; } .C { color: #0060a0; } .G { color: #8a5a00; } .T { color: #b8432f; }
small { color: #555; }
"""


def write_report(
    output: Path, *, title: str, run: Path, results: Path, generated: Path | None
) -> None:
    """Write the page.

    Raises:
        ConfigError: the run has no metrics.jsonl, or the results are not there.
    """
    metrics = _read_metrics(run / "metrics.jsonl")
    found = _read_results(results)
    sections = [_summary(found, metrics), _learning(metrics)]
    if "sequence_recovery" in found:
        sections.append(_recovery(found["sequence_recovery"]))
    if "heldout_likelihood" in found:
        sections.append(_likelihood(found["heldout_likelihood"]))
    if "variant_auroc" in found:
        sections.append(_variants(found["variant_auroc"]))
    if generated is not None:
        sections.append(_generated(generated.read_text(encoding="ascii")))
    page = (
        f"<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width'><title>{html.escape(title)}</title>"
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<small>Carbon {__version__}. Everything below was measured on what was held out from "
        f"training, unless it says otherwise; brackets are 95 % bootstrap intervals.</small>"
        + "".join(sections)
        + "</html>\n"
    )
    with atomic_file(output) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _read_metrics(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; give the folder of a training run")
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise ConfigError(f"{path}: is empty; train first")
    return [_parsed(line, f"{path} line {n}") for n, line in enumerate(lines, start=1)]


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: is not valid JSON ({error}); was it cut off?") from None
    return value


def _read_results(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; run `python -m eval run` first")
    return _parsed(path.read_text(encoding="utf-8"), str(path))


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def _interval(estimate: dict[str, Any], digits: int = 3) -> str:
    value, low, high = (estimate[key] for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...]) -> str:
    def line(cells: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line(header, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"


def _summary(found: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = []
    if recovery := found.get("sequence_recovery"):
        order = recovery["best_markov_order"]
        best = f"{_interval(recovery['markov'][order])} (order {order})"
        rows.append(("Sequence recovery, 30 bp", _interval(recovery), best))
    if likelihood := found.get("heldout_likelihood"):
        rows.append(
            (
                "Nats per base",
                _interval(likelihood),
                f"{_interval(likelihood['markov'][6])} (order 6)",
            )
        )
    if variants := found.get("variant_auroc"):
        rows.append(
            ("Variant AUROC", _interval(variants), f"{_interval(variants['markov_6'])} (order 6)")
        )
    tokens = f"{metrics[-1]['tokens']:,} tokens in {metrics[-1]['step']:,} steps"
    return f"<h2>In short</h2><p>Trained on {tokens}.</p>" + _table(
        rows, ("measure", "this model", "Markov model")
    )


def _learning(metrics: list[dict[str, Any]]) -> str:
    switch = switch_step(metrics)
    text = (
        f"At step {switch} the objective changes from cross-entropy to factorized nucleotide "
        "supervision (FNS)."
        if switch
        else "The objective does not change during this run."
    )
    return (
        "<h2>Loss per base</h2><p>On training rows, each point the mean of a stretch of steps. "
        f"{text} The chain is the likelihood of the sequence itself, base by base, and has one "
        "meaning on both sides of the switch; the marginals are what FNS trains. 1.386 is knowing "
        "nothing.</p>" + _svg(loss_figure(metrics, switch))
    )


def switch_step(metrics: list[dict[str, Any]]) -> int | None:
    """Return the first step under FNS after cross-entropy, or None."""
    for before, after in itertools.pairwise(metrics):
        if (before["objective"], after["objective"]) == ("ce", "fns"):
            return int(after["step"])
    return None


def _recovery(recovery: dict[str, Any]) -> str:
    ahead = recovery["ahead_of_best_markov"]
    verdict = (
        "above it by more than the 95 % interval"
        if ahead["low"] > 0
        else "not above it by more than the 95 % interval"
    )
    return (
        "<h2>Sequence recovery</h2>"
        f"<p>Given up to {recovery['most_prompt_bp']:,} bp, how many of the next "
        f"{recovery['target_bp']} bases does the most likely continuation get right? "
        f"{recovery['num_samples']:,} sites. Ahead of the best Markov model, site by site: "
        f"{_interval(ahead)}: {verdict}.</p>" + _svg(recovery_figure(recovery))
    )


def _likelihood(likelihood: dict[str, Any]) -> str:
    ahead = likelihood["ahead_of_order_6"]
    if ahead["low"] > 0:
        verdict = "The model beats the order-6 Markov model."
    elif ahead["high"] < 0:
        verdict = "The model does NOT beat the order-6 Markov model: it is worse."
    else:
        verdict = (
            "The model does NOT clearly beat the order-6 Markov model: zero is in the interval."
        )
    rows = [("this model", _interval(likelihood, 4))]
    rows += [(f"Markov, order {k}", _interval(m, 4)) for k, m in enumerate(likelihood["markov"])]
    return (
        f"<h2>Held-out nats per base</h2><p>Over {likelihood['num_bases']:,} bases of "
        f"{likelihood['num_samples']:,} records. Ahead of order 6 by {_interval(ahead, 4)} nats "
        f"per base. <strong>{verdict}</strong></p>" + _table(rows, ("model", "nats per base"))
    )


def _variants(variants: dict[str, Any]) -> str:
    rows = [(name, _interval(e)) for name, e in variants["by_effect"].items()]
    rows += [
        (f"all, against {name} only", _interval(e)) for name, e in variants["by_control"].items()
    ]
    return (
        f"<h2>Variants</h2><p>{variants['num_damaging']:,} damaging variants against "
        f"{variants['num_controls']:,} controls of the same trinucleotide changes, known by "
        "construction. The score is -delta; 0.5 is chance. Average precision "
        f"{variants['average_precision']:.3f}.</p>"
        + _svg(roc_figure(variants))
        + _table(rows, ("damaging variants", "AUROC"))
    )


def _generated(fasta: str) -> str:
    lines = fasta.splitlines()
    bases = "".join(line for line in lines if not line.startswith(">"))
    coloured = "".join(f"<span class='{base}'>{base}</span>" for base in bases)
    codes = np.array(list(bases))
    gc = float(np.isin(codes, ["G", "C"]).mean()) if len(codes) else 0.0
    return (
        f"<h2>Generated</h2><p>{len(bases):,} bp sampled from the model; GC {gc:.0%}.</p>"
        f"<p class='sequence'>{coloured}</p>"
    )
