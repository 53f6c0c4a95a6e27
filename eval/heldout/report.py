"""One HTML page about one model: how it learned, what it recovers, what it finds damaging."""

import html
import itertools
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from carbon import __version__
from carbon.io.files import atomic_file
from carbon.losses.objectives import objective_named
from carbon.uncertainty import verdict
from eval.drawing import (
    html_answer,
    html_figure,
    html_page,
    html_section,
    html_table,
    interval,
    svg_of,
)
from eval.heldout.figures import Change, loss_figure, recovery_figure, roc_figure
from eval.heldout.gene_sections import GENE_SECTIONS
from eval.heldout.meaning import baselines_of, meaning_of
from eval.heldout.overlap import overlap_clause
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
    if "sequence_recovery" in found:
        sections = [_answer(found, metrics), _summary(found), _learning(metrics)]
        sections.append(_recovery(found["sequence_recovery"]))
    else:  # the answer has no picture of its own: that of the loss stands behind it
        sections = [_answer(found, metrics), _learning(metrics), _summary(found)]
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
    page = html_page(title, small, *sections)
    with atomic_file(output) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _answer(found: dict[str, Any], metrics: list[dict[str, Any]]) -> str:
    """Say what the model has learned, beside counting bases, and draw what it recovers."""
    tokens = f"{metrics[-1]['tokens']:,} tokens in {metrics[-1]['step']:,} steps"
    overlap = overlap_clause(found.get("overlap_with_train"))
    sentences = [f"Trained on {tokens}, the model was measured on held-out DNA: {overlap}."]
    if likelihood := found.get("heldout_likelihood"):
        sentences.append(
            f"It needs {interval(likelihood, 4)} nats per base, less is better. "
            f"{order_6_verdict(likelihood)}"
        )
        sentences.append(best_verdict(likelihood))
    if variants := found.get("variant_auroc"):
        sentences.append(
            "It ranks a damaging variant above a control in "
            f"{variants['value']:.0%} of pairs, where half is chance."
        )
    if recovery := found.get("sequence_recovery"):
        best = recovery["markov"][recovery["best_markov_order"]]["value"]
        sentences.append(
            f"Of the next {recovery['target_bp']} bases it gets {recovery['value']:.1%} right, the "
            f"best Markov model {best:.1%}. {_recovery_verdict(recovery)}"
        )
        return html_answer(sentences) + html_figure(svg_of(recovery_figure(recovery)), _RECOVERED)
    return html_answer(sentences)


_RECOVERED = "Share of the next bases that are right, with 95 % intervals."


def _summary(found: dict[str, Any]) -> str:
    rows: list[tuple[str, ...]] = []
    if recovery := found.get("sequence_recovery"):
        order = recovery["best_markov_order"]
        best = f"{interval(recovery['markov'][order])} (order {order})"
        rows.append(("Sequence recovery, 30 bp", interval(recovery), best))
    if likelihood := found.get("heldout_likelihood"):
        name = likelihood["best_markov"].replace("_", " ")
        best = f"{interval(baselines_of(likelihood)[name])} ({name})"
        rows.append(("Nats per base", interval(likelihood), best))
    if variants := found.get("variant_auroc"):
        rows.append(
            ("Variant AUROC", interval(variants), f"{interval(variants['markov_6'])} (order 6)")
        )
    table = html_table(rows, ("measure", "this model", "Markov model"))
    good = "".join(f"<li>{html.escape(meaning_of(*each))}</li>" for each in found.items())
    return html_section("In short", "", table, f"<p>What a good number is:</p><ul>{good}</ul>")


def _learning(metrics: list[dict[str, Any]]) -> str:
    changes = objective_changes(metrics)
    text = " ".join(
        f"At step {change.step} the objective changes from {change.before.label} to "
        f"{change.after.label}."
        for change in changes
    )
    text = html.escape(text) or "The objective does not change during this run."
    text = (
        f"On training rows, each point the mean of a stretch of steps. {text} The chain is the "
        "likelihood of the sequence itself, base by base, and has one meaning on both sides of the "
        "switch; the marginals are what FNS trains. 1.386 is knowing nothing."
    )
    return html_section("Loss per base", text, html_figure(svg_of(loss_figure(metrics, changes))))


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
    text = (
        f"Given up to {recovery['most_prompt_bp']:,} bp, how many of the next "
        f"{recovery['target_bp']} bases does the most likely continuation get right? "
        f"{recovery['num_samples']:,} sites; the picture is at the top. Site by site: "
        f"{_recovery_verdict(recovery)}"
    )
    return html_section("Sequence recovery", text)


def _recovery_verdict(recovery: dict[str, Any]) -> str:
    ahead = recovery["ahead_of_best_markov"]
    return verdict("The model", "the best Markov model", ahead, interval)


def order_6_verdict(likelihood: dict[str, Any]) -> str:
    """Return a sentence on whether the model is ahead of counts of 7-mers."""
    ahead = likelihood["ahead_of_order_6"]
    return verdict("The model", "the order-6 Markov model", ahead, partial(interval, digits=4))


def best_verdict(likelihood: dict[str, Any]) -> str:
    """Return a sentence on whether the model is ahead of the best Markov model."""
    name = likelihood["best_markov"].replace("_", " ")
    ahead = likelihood["ahead_of_best"]
    return verdict(
        "The model", f"the best Markov model ({name})", ahead, partial(interval, digits=4)
    )


def _likelihood(likelihood: dict[str, Any]) -> str:
    rows = [("this model", interval(likelihood, 4))]
    rows += [(f"Markov, {name}", interval(m, 4)) for name, m in baselines_of(likelihood).items()]
    text = (
        f"Over {likelihood['num_bases']:,} bases of {likelihood['num_samples']:,} "
        f"{likelihood['resampled']}. <strong>{order_6_verdict(likelihood)} "
        f"{best_verdict(likelihood)}</strong> On {interval(likelihood['share_ahead_of_best'])} of "
        f"the {likelihood['resampled']} it has fewer nats than the best Markov model."
    )
    return html_section(
        "Held-out nats per base", text, html_table(rows, ("model", "nats per base"))
    )


def _variants(variants: dict[str, Any]) -> str:
    rows = [(name, interval(e)) for name, e in variants["by_effect"].items()]
    rows += [
        (f"all, against {name} only", interval(e)) for name, e in variants["by_control"].items()
    ]
    text = (
        f"{variants['num_damaging']:,} damaging variants against {variants['num_controls']:,} "
        "controls of the same trinucleotide changes, known by construction. The score is -delta; "
        f"0.5 is chance. Average precision {variants['average_precision']:.3f}."
    )
    picture = html_figure(svg_of(roc_figure(variants)))
    return html_section("Variants", text, picture, html_table(rows, ("damaging variants", "AUROC")))


def _generated(fasta: str) -> str:
    lines = fasta.splitlines()
    bases = "".join(line for line in lines if not line.startswith(">"))
    coloured = "".join(f"<span class='{base}'>{base}</span>" for base in bases)
    codes = np.array(list(bases))
    gc = float(np.isin(codes, ["G", "C"]).mean()) if len(codes) else 0.0
    return html_section(
        "Generated",
        f"{len(bases):,} bp sampled from the model; GC {gc:.0%}.",
        f"<p class='sequence'>{coloured}</p>",
    )
