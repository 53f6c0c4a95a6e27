"""The sections of the report on what is measured gene by gene."""

from collections.abc import Callable
from typing import Any

from eval.drawing import html_table, interval

_FRAMES = ("own", "+1", "+2", "other strand", "other strand +1", "other strand +2")


def _frame(result: dict[str, Any]) -> str:
    pairs = zip(result["by_frame"], result["markov_6"]["by_frame"], strict=True)
    rows = [(name, *map(str, pair)) for name, pair in zip(_FRAMES, pairs, strict=True)]
    return (
        f"<h2>Reading frame</h2><p>Of {result['num_samples']:,} genes of more than "
        f"{result['least_codons']} codons: in which frame does the model expect the fewest stop "
        f"codons? In their own for {interval(result)} of them, by a Markov model of order 6 for "
        f"{interval(result['markov_6'])}.</p>"
        + html_table(rows, ("frame", "genes, this model", "genes, Markov"))
    )


def _adaptation(result: dict[str, Any]) -> str:
    rows = [
        ("nats per base and codon adaptation index", interval(result)),
        ("the same, GC taken out", interval(result["without_gc"])),
        ("nats per base and GC", interval(result["with_gc"])),
        ("GC and codon adaptation index", interval(result["gc_with_index"])),
    ]
    return (
        f"<h2>Codon adaptation</h2><p>{result['num_samples']:,} genes, Spearman's correlation. "
        "Negative means that genes with the codons of highly expressed ones are likelier.</p>"
        + html_table(rows, ("between", "correlation"))
    )


def _consequences(result: dict[str, Any]) -> str:
    rows = []
    for kind, each in result["by_kind"].items():
        name = kind.replace("_", " ")
        rows.append((name, "all controls", f"{each['num_damaging']:,}", interval(each)))
        rows += [(name, control, "", interval(one)) for control, one in each["against"].items()]
    return (
        "<h2>Damage of known kind</h2><p>Damaging SNVs of the held-out genes against controls of "
        "the same trinucleotide change; intervals draw whole genes. 0.5 is chance.</p>"
        + html_table(rows, ("damage", "against", "variants", "AUROC"))
    )


GENE_SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "reading_frame": _frame,
    "codon_adaptation": _adaptation,
    "consequence_auroc": _consequences,
}
