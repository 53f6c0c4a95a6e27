"""One HTML page about one model: how it learned, what it recovers, what it finds damaging."""

import html
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from carbon import __version__
from carbon.files import atomic_file
from carbon.objectives import objective_named
from eval.drawing import html_page, html_table, interval, svg_of
from eval.heldout.figures import Change, loss_figure, recovery_figure, roc_figure
from eval.heldout.gene_sections import GENE_SECTIONS
from eval.heldout.meaning import baselines_of, meaning_of
from eval.heldout.results import read_metrics, read_results


def write_report(
    output: Path, *, title: str, run: Path, results: Path, generated: Path | None
) -> None:
    """Write the page.

    Raises:
        ConfigError: the run has no metrics.jsonl, or the results are not there.
    """
    metrics = read_metrics(run / "metrics.jsonl")
    found = read_results(results)
    sections = [_summary(found, metrics), _learning(metrics)]
    if "sequence_recovery" in found:
        sections.append(_recovery(found["sequence_recovery"]))
    if "heldout_likelihood" in found:
        sections.append(_likelihood(found["heldout_likelihood"]))
    if "variant_auroc" in found:
        sections.append(_variants(found["variant_auroc"]))
    sections += [make(found[name]) for name, make in GENE_SECTIONS.items() if name in found]
    if generated is not None:
        sections.append(_generated(generated.read_text(encoding="ascii")))
    small = (
        f"Carbon {__version__}. Everything below was measured on what was held out from training, "
        "unless it says otherwise; brackets are 95 % bootstrap intervals."
    )
    page = html_page(title, small, "".join(sections))
    with atomic_file(output) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _svg(figure: Figure) -> str:
    return f"<figure>{svg_of(figure)}</figure>"


def _summary(found: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = []
    if recovery := found.get("sequence_recovery"):
        order = recovery["best_markov_order"]
        best = f"{interval(recovery['markov'][order])} (order {order})"
        rows.append(("Sequence recovery, 30 bp", interval(recovery), best))
    if likelihood := found.get("heldout_likelihood"):
        name = likelihood.get("best_markov", "order_6").replace("_", " ")
        best = f"{interval(baselines_of(likelihood)[name])} ({name})"
        rows.append(("Nats per base", interval(likelihood), best))
    if variants := found.get("variant_auroc"):
        rows.append(
            ("Variant AUROC", interval(variants), f"{interval(variants['markov_6'])} (order 6)")
        )
    tokens = f"{metrics[-1]['tokens']:,} tokens in {metrics[-1]['step']:,} steps"
    table = html_table(rows, ("measure", "this model", "Markov model"))
    good = "".join(f"<li>{html.escape(meaning_of(*each))}</li>" for each in found.items())
    return (
        f"<h2>In short</h2><p>Trained on {tokens}.</p>{table}<p>What a good number is:</p>"
        f"<ul>{good}</ul>"
    )


def _learning(metrics: list[dict[str, Any]]) -> str:
    changes = objective_changes(metrics)
    text = " ".join(
        f"At step {change.step} the objective changes from {change.before.label} to "
        f"{change.after.label}."
        for change in changes
    )
    text = html.escape(text) or "The objective does not change during this run."
    return (
        "<h2>Loss per base</h2><p>On training rows, each point the mean of a stretch of steps. "
        f"{text} The chain is the likelihood of the sequence itself, base by base, and has one "
        "meaning on both sides of the switch; the marginals are what FNS trains. 1.386 is knowing "
        "nothing.</p>" + _svg(loss_figure(metrics, changes))
    )


def objective_changes(metrics: list[dict[str, Any]]) -> list[Change]:
    """Return every change of the objective, in the order of steps.

    A run that went back over a change has lines of it twice; it is one change.
    """
    changes = {}
    for before, after in itertools.pairwise(metrics):
        if before["step"] < after["step"] and before["objective"] != after["objective"]:
            labels = objective_named(before["objective"]), objective_named(after["objective"])
            changes[after["step"]] = Change(after["step"], *labels)
    return list(changes.values())


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
        f"{interval(ahead)}: {verdict}.</p>" + _svg(recovery_figure(recovery))
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
    rows = [("this model", interval(likelihood, 4))]
    rows += [(f"Markov, {name}", interval(m, 4)) for name, m in baselines_of(likelihood).items()]
    against_best = ""
    if best := likelihood.get("best_markov"):
        against_best = (
            f" The best of all is {best.replace('_', ' ')}; ahead of it by "
            f"{interval(likelihood['ahead_of_best'], 4)}, and on "
            f"{interval(likelihood['share_ahead_of_best'])} of all {likelihood['resampled']}."
        )
    return (
        f"<h2>Held-out nats per base</h2><p>Over {likelihood['num_bases']:,} bases of "
        f"{likelihood['num_samples']:,} {likelihood.get('resampled', 'records')}. "
        f"Ahead of order 6 by {interval(ahead, 4)} nats "
        f"per base. <strong>{verdict}</strong>{against_best}</p>"
        + html_table(rows, ("model", "nats per base"))
    )


def _variants(variants: dict[str, Any]) -> str:
    rows = [(name, interval(e)) for name, e in variants["by_effect"].items()]
    rows += [
        (f"all, against {name} only", interval(e)) for name, e in variants["by_control"].items()
    ]
    return (
        f"<h2>Variants</h2><p>{variants['num_damaging']:,} damaging variants against "
        f"{variants['num_controls']:,} controls of the same trinucleotide changes, known by "
        "construction. The score is -delta; 0.5 is chance. Average precision "
        f"{variants['average_precision']:.3f}.</p>"
        + _svg(roc_figure(variants))
        + html_table(rows, ("damaging variants", "AUROC"))
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
