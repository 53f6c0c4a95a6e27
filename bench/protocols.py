"""Accuracy and cost of the protocols `centered` and `tiled`, by their options.

    python bench/protocols.py yeast VIII.fa.gz --annotation VIII.gtf.gz --region VIII --output FILE

The variants are those of `known_variants.py` without missense changes. A row of the tables is a
protocol with its options: AUROC of -delta, its difference from `centered` with the default window,
tokens with padding and CPU milliseconds a variant, and Spearman and the share of sign changes next
to `centered`. Intervals are 95 % over genes. Each row is a line of `--output`, and the same command
continues with the next one.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from known_variants import (
    COMPARISONS,
    Comparison,
    Known,
    comparisons_of,
    drawing_parser,
    drawn_variants,
)
from numpy.typing import NDArray

import carbon
from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import Reference, Variant
from carbon.inference import Model, VariantOptions
from carbon.inference.variants import Method, method_for, score_variants
from carbon.inference.variants.score import num_tokens
from carbon.metrics import auroc, rank_correlation
from carbon.progress import say
from carbon.uncertainty import Estimate, bootstrap, difference

COMPARED = tuple(name for name in COMPARISONS if "missense" not in name)
KINDS = {kind for name in COMPARED for kind in COMPARISONS[name]}
WINDOWS_BP = (256, 512, 1024, 2048)
DOWNSTREAM_BP = (96, 192, 384, 768, 1536)
OPTIONS = ("protocol", "window_bp", "downstream_bp", "least_context_bp")
_VARIANTS_PER_BLOCK = 512

Row = dict[str, Any]
"""The `OPTIONS` of a row; `variants`, a checksum of the scored variants; `deltas`, None without a
score; `tokens` and `cpu_ms`, means of a variant."""


def main() -> None:
    """Measure the rows that the output lacks, and print the tables."""
    parser = drawing_parser(__doc__)
    parser.add_argument("--output", type=Path, required=True, help="JSON lines of all rows")
    arguments = parser.parse_args()
    model = carbon.load(arguments.model)
    with drawn_variants(arguments) as drawn:
        known = {variant: of for variant, of in drawn.known.items() if of[0] in KINDS}
        rows = list(measured(model, drawn.genome, list(known), arguments.output))
    print_tables(rows, known)


def measured(
    model: Model, genome: Reference, variants: list[Variant], output: Path
) -> Iterator[Row]:
    """Yield all rows, `centered` with the default window first; measure what the output lacks."""
    texts = [model.runner.weights_sha256, *(each.to_text() for each in variants)]
    checksum = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.touch()
    rows: list[Row] = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    if any(row["variants"] != checksum for row in rows):
        raise SystemExit(f"{output}: has other variants or another model; name another output")
    for method in methods_of(model):
        options = {name: getattr(method, name) for name in OPTIONS}
        row = next((each for each in rows if options.items() <= each.items()), None)
        if row is None:
            row = options | {"variants": checksum} | scored(model, genome, variants, method)
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            say(f"{name_of(row)}: {row['tokens']:.0f} tokens, {row['cpu_ms']:.0f} ms a variant")
        yield row


def methods_of(model: Model) -> Iterator[Method]:
    """Yield the methods of all rows that fit the model's context."""
    runner, k = model.runner, model.runner.vocabulary.k
    full = method_for(runner, VariantOptions(protocol="centered"))
    yield full
    for window_bp in WINDOWS_BP:
        if window_bp < full.window_bp:
            yield method_for(runner, VariantOptions(protocol="centered", window_bp=window_bp))
    tile_bp = method_for(runner, VariantOptions()).window_bp
    contexts_bp = (None, *(tile_bp // part // k * k for part in (6, 3)))
    for context_bp, downstream_bp in product(contexts_bp, DOWNSTREAM_BP):
        options = VariantOptions(
            protocol="tiled", downstream_bp=downstream_bp, least_context_bp=context_bp
        )
        try:
            yield method_for(runner, options)
        except UserError as error:
            say(f"left out: {error}")


def scored(model: Model, genome: Reference, variants: list[Variant], method: Method) -> Row:
    """Return deltas and costs of a method."""
    runner = model.runner
    blocks = list(in_blocks(variants, _VARIANTS_PER_BLOCK))
    tokens = sum(num_tokens(runner, genome, block, method) for block in blocks)
    began = time.process_time()
    deltas = [each.delta for each in score_variants(runner, genome, variants, method)]
    seconds = time.process_time() - began
    number = len(variants)
    return {"deltas": deltas, "tokens": tokens / number, "cpu_ms": 1000 * seconds / number}


def name_of(row: Row) -> str:
    """Return a row's options as the first cells of a table."""
    values = (row["downstream_bp"] or "", row["least_context_bp"] or "")
    return f"| `{row['protocol']}`, {row['window_bp']} | {values[0]} | {values[1]} |"


def print_tables(rows: Sequence[Row], known: Known) -> None:
    """Print AUROC, costs and agreement of all rows, and differences from the first row."""
    comparisons = {name: each for name, each in comparisons_of(known).items() if name in COMPARED}
    deltas = [np.array(row["deltas"], float) for row in rows]
    options, dashes = "| protocol and window | downstream | least context |", "|---|---|---|"
    print(f"{options} {' | '.join(comparisons)} | tokens | ms | Spearman | sign changes |")
    print(f"{dashes}{'---|' * (len(comparisons) + 4)}")
    for row, each in zip(rows, deltas, strict=True):
        cells = [shown(auroc_of(each, compared)) for compared in comparisons.values()]
        cells += [f"{row['tokens']:.0f}", f"{row['cpu_ms']:.0f}", *agreement(each, deltas[0])]
        print(name_of(row), " | ".join(cells), "|")
    print(f"\n{options} {' | '.join(comparisons)} |")
    print(f"{dashes}{'---|' * len(comparisons)}")
    for row, each in zip(rows[1:], deltas[1:], strict=True):
        lead = [shown(auroc_of(each, compared, deltas[0])) for compared in comparisons.values()]
        print(name_of(row), " | ".join(lead), "|")
    for row, each in zip(rows, deltas, strict=True):
        if num_without := int(np.isnan(each).sum()):
            print(f"{name_of(row)} {num_without} of {len(each)} variants have no delta")


def auroc_of(
    deltas: NDArray[np.float64],
    compared: Comparison,
    others: NDArray[np.float64] | None = None,
) -> Estimate:
    """Return the AUROC of -delta, or its difference from the AUROC of other deltas.

    Variants without a delta are left out, of both.
    """
    values = [-each[compared.places] for each in (deltas, others) if each is not None]
    kept = np.flatnonzero(~np.isnan(values).any(axis=0))
    clusters = [compared.genes[at] for at in kept]
    first, *rest = (auroc(each[kept], compared.labels[kept]) for each in values)
    if not rest:
        return bootstrap(first, len(clusters), clusters=clusters)
    return difference(first, rest[0], len(clusters), clusters=clusters)


def shown(estimate: Estimate) -> str:
    """Return an estimate with its interval."""
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"


def agreement(deltas: NDArray[np.float64], others: NDArray[np.float64]) -> tuple[str, str]:
    """Return Spearman and the share of deltas of another sign, of variants that have both."""
    has = ~np.isnan([deltas, others]).any(axis=0)
    one, other = deltas[has], others[has]
    changes = float(np.mean(np.sign(one) != np.sign(other)))
    return f"{rank_correlation(one, other, np.ones(len(one))):.3f}", f"{100 * changes:.1f} %"


if __name__ == "__main__":
    main()
