"""The texts of the primer: four short sections, each above a figure."""

from collections.abc import Iterable, Sequence
from typing import Any

from carbon.genome import translate
from carbon.tokenizer import K, encode_kmers
from demo.markup import escape
from demo.words import many

_CODON_BP = 3
_SHIFT_BP = 2


def splicing(gene: dict[str, Any] | None) -> str:
    """Return the section on splicing, from the summary of a gene by `described`."""
    example = ""
    if gene:
        ends = ", ".join(gene["introns"])
        example = (
            f"{gene['name']} has {many(len(gene['introns']), 'intron')} with the ends {ends}. "
            f"Of its {gene['length_bp']:,} bases {gene['coding_bp']:,} encode the protein."
        )
    return _section(
        "1. A gene is copied and cut",
        "DNA is a text of four letters: A, C, G and T. A gene is a stretch that the cell copies "
        "into RNA. Some copies are cut: introns are removed and exons joined. Most introns begin "
        "with GT and end with AG.",
        example,
    )


def tokens(bases: str) -> str:
    """Return the section on codons and 6-mers, with the bases cut in both ways."""
    codons = _cut(bases, _CODON_BP)
    kmers, shifted = _cut(bases, K), _cut(bases[_SHIFT_BP:], K)
    return _section(
        "2. The cell reads threes, the model reads sixes",
        "The cell reads three letters at a time: each codon stands for one amino acid. The model "
        "reads the same letters in tokens of six. Nothing in DNA marks where the first token "
        "begins, so the same letters give other tokens when the first two are left out.",
        markup=_dna(codons, "codons, with their amino acids", translate("".join(codons)))
        + _dna(kmers, "6-mers, with their numbers", _numbers(kmers))
        + _dna(shifted, "6-mers from the third letter on", _numbers(shifted)),
    )


def guess(best: str, bases: str) -> str:
    """Return the section on the prediction of the last 6-mer of these bases."""
    return _section(
        "3. The model guesses what comes next",
        "A language model gives every token a probability. Here it has read "
        f"{len(bases) - K} letters of the genome and guesses the next six. The likeliest of 4,096 "
        f"is {best}; the genome has {bases[-K:]}. In training, each wrong guess changes the model "
        "a little.",
    )


def _section(title: str, *paragraphs: str, markup: str = "") -> str:
    body = "".join(f"<p>{escape(part)}</p>" for part in paragraphs if part)
    return f'<section class="primer"><h2>{escape(title)}</h2>{body}{markup}</section>'


ALIKE = _section(
    "4. What the model finds alike",
    "Inside the model, every piece of DNA is a list of numbers. On this map, pieces of the genome "
    "lie close together if the model finds them alike. It was never given the labels.",
)


def _cut(bases: str, length_bp: int) -> list[str]:
    return [bases[at : at + length_bp] for at in range(0, len(bases) - length_bp + 1, length_bp)]


def _numbers(kmers: Sequence[str]) -> list[str]:
    return [str(int(encode_kmers(kmer).indices[0])) for kmer in kmers]


def _dna(parts: Iterable[str], label: str, below: Sequence[str]) -> str:
    """Return pieces of DNA coloured by base, with small text under each."""
    pieces = []
    for part, under in zip(parts, below, strict=True):
        bases = "".join(f'<span class="{escape(base)}">{escape(base)}</span>' for base in part)
        pieces.append(f"<span>{bases}<small>{escape(under)}</small></span>")
    return f'<div class="dna"><b>{escape(label)}</b>{"".join(pieces)}</div>'
