"""Tokens and the distribution over the next one, as JSON values and tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from carbon.genome.alphabet import reverse_complement
from carbon.genome.interval import Strand
from carbon.inference.next_token import NextToken, all_kmers, kmer_index, near_misses
from carbon.tokenizer import BASES, K
from carbon.tokenizer.dna import Encoding, encode
from carbon.tokenizer.kmer import known_bases
from carbon.tokenizer.vocabulary import HYBRID, NATIVE
from demo.markup import escape, paragraph, table

_STRANDS: tuple[tuple[str, Strand], ...] = (("forward strand", "+"), ("reverse strand", "-"))
_ABOUT_PHASES = (
    "The last {bases} bases, cut into 6-mers at six phases. Moving the cut by one base changes "
    "every token. The model predicts the marked 6-mer from the tokens before it."
)
_COLUMNS = ("bases", "token", "known", "native id", "hybrid id")


def strand_readings(bases: str) -> list[dict[str, Any]]:
    """Return the tokens of DNA on each strand, in both vocabularies.

    Returns:
        For each strand `name` and `tokens`, each with `token`, `bases` (first and last, 1-based;
        empty for a prefix), `known` (six digits, 1 for a real and known base), `native id` and
        `hybrid id`.
    """
    return [{"name": name, "tokens": _tokens(bases, strand)} for name, strand in _STRANDS]


def _tokens(bases: str, strand: Strand) -> list[dict[str, Any]]:
    native, hybrid = (encode(bases, each, strand=strand) for each in (NATIVE, HYBRID))
    places = list(_places(bases, native))
    known = ["".join(map(str, bits)) for bits in known_bases(native.known).astype(int).tolist()]
    rows = zip(places, known, native.ids.tolist(), hybrid.ids.tolist(), strict=True)
    return [
        dict(zip(_COLUMNS, (span, letters, span and digits, *ids), strict=True))
        for (span, letters), digits, *ids in rows
    ]


def kmer_values(token: NextToken, kmer: str, fixed: str, most: int) -> dict[str, Any]:
    """Return expected bases, with and without fixed bases, and the losses of near misses.

    Args:
        token: the distribution.
        kmer: the true 6-mer.
        fixed: six letters, `.` for a free position.
        most: number of the likeliest 6-mers to list.

    Raises:
        UserError: `kmer` or `fixed` is not a 6-mer.
    """
    conditional, true = token.given(fixed), kmer_index(kmer)
    kmers = (all_kmers()[true], *near_misses(kmer))
    losses = {"cross_entropy_nats": token.cross_entropy_nats, "fns_nats": token.fns_nats}
    return {
        "context": token.context,
        "kmer": kmers[0],
        "fixed": conditional.fixed,
        "rank": int((token.probabilities > token.probabilities[true]).sum()) + 1,
        "probabilities": token.probabilities.tolist(),
        "marginals": token.marginals.tolist(),
        "conditional_probabilities": conditional.probabilities.tolist(),
        "conditional_marginals": conditional.marginals.tolist(),
        "top": [{"kmer": each, "probability": p} for each, p in conditional.ranked()[:most]],
        "losses": [
            {"kmer": each, **{name: float(nats[kmer_index(each)]) for name, nats in losses.items()}}
            for each in kmers
        ],
    }


def tokens_view(bases: str, readings: Sequence[Mapping[str, Any]]) -> str:
    """Return a sequence as tokens at six phases, and readings in tables that open."""
    lines = "<br>".join(_phase_line(bases, phase) for phase in range(min(K, len(bases))))
    tables = "".join(f"<div>{_table(reading)}</div>" for reading in readings)
    return (
        f"<h2>DNA becomes tokens</h2>{paragraph(_ABOUT_PHASES.format(bases=len(bases)))}"
        f'<div class="scroll frames" tabindex="0">{lines}</div>'
        f"<details><summary>Ids of the tokens</summary>"
        f'<div class="readings tall">{tables}</div></details>'
    )


def _phase_line(bases: str, phase: int) -> str:
    """Return a sequence as tokens in two alternating shades; the last one is marked if whole."""
    parts = [f"phase {phase}  {escape(bases[:phase])}"]
    for number, start in enumerate(range(phase, len(bases), K)):
        letters = bases[start : start + K]
        shown = "".join(
            letter if letter in BASES else f'<span class="unknown">{escape(letter)}</span>'
            for letter in letters
        )
        shade = "asked" if start + K == len(bases) else ("odd", "even")[number % 2]
        parts.append(f'<span class="{shade}">{shown}</span>')
    return "".join(parts)


def _table(reading: Mapping[str, Any]) -> str:
    """Return the tokens as a table, without columns that are empty for this reading."""
    tokens = reading["tokens"]
    columns = {name: [str(token[name]) for token in tokens] for name in _COLUMNS}
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    return table(tuple(filled), zip(*filled.values(), strict=True), reading["name"])


def _places(bases: str, encoding: Encoding) -> Iterator[tuple[str, str]]:
    """Yield the 1-based span of each token, and its letters as typed."""
    for number, (start, end) in enumerate(encoding.offsets_bp.tolist()):
        if number < encoding.num_prefix:
            yield "", "<dna>"
            continue
        letters = bases[start:end]
        yield (
            f"{start + 1}-{end}",
            letters if encoding.strand == "+" else reverse_complement(letters),
        )
