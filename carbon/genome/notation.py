"""Variants and sequences as people type them, read in many ways; else the first wrong letter."""

import re
from collections.abc import Mapping

from carbon.errors import TypedError
from carbon.genome.alphabet import IUPAC_DNA, reverse_complement
from carbon.genome.contig_names import CHR, contig_names
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, Transcript, find_gene, near_names
from carbon.genome.interval import Interval, Variant

_BASES = f"[{IUPAC_DNA}{IUPAC_DNA.lower()}]+"
_EXAMPLES = "such as chr1:10 A>T, chr1-10-A-T or GENE:c.28A>T"
_TO_T = str.maketrans("Uu", "Tt")
_CODING = re.compile(r"\s*(\S+?)\s*:\s*c\.")
# What stands in a variant one behind the other: what it is called in messages, and how it looks.
_GENOMIC = (
    ("a position, from 1", re.compile(r"(?:[:\-\s]\s*(?:g\.)?)?(0*[1-9][\d,]{0,14})")),
    ("REF, in bases", re.compile(rf"[:\-\s]*({_BASES})")),
    ("> and ALT", re.compile(r"\s*(>|[:\-/]|\s)")),
    ("ALT, in bases", re.compile(rf"\s*({_BASES})")),
    ("nothing more", re.compile(r"\s*($)")),
)
_PLACE = r"([1-9]\d{0,8})([+-]\d{1,8})?"
_FIRST = ("a position in the CDS, from 1", re.compile(_PLACE))
_LAST = ("a second position", re.compile(_PLACE))
_EDIT = "G>T, del, dup, insACGT or delinsACGT"
_SUBSTITUTED = re.compile(r"([ACGTUacgtu]+)>([ACGTUacgtu]+)")
_CHANGED = re.compile(r"(delins|ins|del|dup)([ACGTUacgtu]*)")


def read_bases(text: str) -> str:
    """Return the bases of typed DNA or RNA, in their case: bare, or one record of FASTA.

    U is T; blanks, and numbers at the start of a line as GenBank writes them, are passed over.

    >>> read_bases(">a gene" + chr(10) + "AUG gcc")
    'ATGgcc'

    Raises:
        TypedError: a letter is no base, or there are several records.
    """
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(">"):
            if found:
                raise TypedError(f"line {number} begins a second sequence; give one", line, 0)
            continue
        bases = re.sub(r"^\s*\d+(?=\s)", lambda digits: " " * len(digits[0]), line)
        for at, letter in enumerate(bases):
            if not (letter.isspace() or (letter.isascii() and letter.upper() in IUPAC_DNA)):
                where = f"letter {at + 1}" if "\n" not in text else f"line {number} letter {at + 1}"
                raise TypedError(
                    f"{where}: {letter!r} is not a DNA letter (ACGT, U, N and IUPAC codes)",
                    line, at,
                )  # fmt: skip
        found.append("".join(bases.split()).translate(_TO_T))
    return "".join(found)


def read_variant(text: str, reference: Reference, annotation: Annotation | None) -> Variant:
    """Return a typed variant in the names of the reference.

    Read are `chr1:10 A>T`, `chr1 10 A T`, `chr1-10-A-T`, `chr1:10:A:T` and `chr1:g.10A>T`, with or
    without `chr`, and `10A>T` where the reference has one contig; and of the coding positions of
    HGVS `NAME:c.28A>T`, `c.28del`, `c.28_30dup`, `c.28_29insACG`, `c.28delinsAC` and `c.28+1G>A`,
    of a gene or transcript. U is T, and either case is read.

    Args:
        text: what was typed.
        reference: whose contigs are named; c. positions are read from it.
        annotation: whose genes c. positions are counted in; None where there is none.

    Raises:
        TypedError: it is something else; where the first wrong letter stands, and near names.
        GenomeError: there are several genes of a name.
    """
    text = text.strip()
    if coding := _CODING.match(text):
        if annotation is None:
            raise TypedError("there is no annotation to count c. positions in", text, 0)
        return _coding_variant(text, coding.end(), coding[1], reference, annotation)
    contig, at = _contig(text, reference.contig_lengths_bp)
    position, ref, _, alt, _ = _pieces(text, at, _GENOMIC)
    place = int(position.replace(",", "")) - 1
    return Variant(contig, place, *(each.upper().translate(_TO_T) for each in (ref, alt)))


def cds_position(transcript: Transcript, number: int) -> int:
    """Return where the base of this number of a CDS, from 1 along the strand, stands on the contig.

    >>> cds_position(Transcript("t", "c", "-", ((10, 20),), ((12, 15), (17, 19)), False, ""), 3)
    14

    Raises:
        IndexError: the CDS has no such base.
    """
    forward = transcript.strand == "+"
    left = number - 1
    for start, end in transcript.cds if forward else reversed(transcript.cds):
        if 0 <= left < end - start:
            return start + left if forward else end - 1 - left
        left -= end - start
    raise IndexError(f"the CDS has {transcript.cds_length_bp} bases, not {number}")


def _contig(text: str, lengths_bp: Mapping[str, int]) -> tuple[str, int]:
    """Return the contig that is named first, by the reference's name, and where its name ends."""
    names = {name: name for name in lengths_bp} | contig_names(CHR, lengths_bp)
    known = (n for n in names if text.startswith(n) and re.match(r"[:\-\s]", text[len(n) :]))
    if name := max(known, key=len, default=None):
        return names[name], len(name)
    if re.match(r"(?:g\.)?\d[\d,]*\s*[A-Za-z]", text) and len(lengths_bp) == 1:
        return next(iter(lengths_bp)), 2 if text.startswith("g.") else 0
    word = re.split(r"[:\s]|-(?=\d)", text)[0]
    near = near_names(word, lengths_bp)
    hint = f"near names: {', '.join(near)}" if near else f"write a variant {_EXAMPLES}"
    raise TypedError(f"there is no contig '{word}'; {hint}", text, 0, word, near)


def _pieces(text: str, at: int, pieces: tuple[tuple[str, re.Pattern[str]], ...]) -> list[str]:
    """Return what stands in a text from `at` on, one piece behind the other."""
    found: list[str] = []
    for name, pattern in pieces:
        match = pattern.match(text, at)
        if match is None:
            raise _expected(name, text, at)
        found.append(match[1])
        at = match.end()
    return found


def _expected(name: str, text: str, at: int) -> TypedError:
    """Return the error of a text in which something else stands than is expected."""
    at += len(text[at:]) - len(text[at:].lstrip(" \t:"))
    stands = f"{text[at]!r} stands where" if at < len(text) else "it ends where"
    return TypedError(f"letter {at + 1}: {stands} {name} should; {_EXAMPLES}", text, at)


def _coding_variant(
    text: str, at: int, name: str, reference: Reference, annotation: Annotation
) -> Variant:
    transcript = _transcript(text, name, annotation)
    first, at = _place(text, at, transcript, _FIRST)
    last = first
    if text[at : at + 1] == "_":
        last, at = _place(text, at + 1, transcript, _LAST)
    left, right = min(first, last), max(first, last) + 1
    if substituted := _SUBSTITUTED.fullmatch(text, at):
        ref, alt = (_on_contig(bases, transcript) for bases in substituted.groups())
        if transcript.strand == "-":
            left = right - len(ref)
        right = left + len(ref)
        return _checked(text, at, transcript, reference, left, right, ref, alt)
    if not (changed := _CHANGED.fullmatch(text, at)):
        raise _expected(_EDIT, text, at)
    kind, bases = changed[1], _on_contig(changed[2], transcript)
    old = reference.fetch(Interval(transcript.contig, left, right)).upper()
    if kind.endswith("ins"):
        if not bases or (kind == "ins" and right - left != 2):
            why = "names no bases" if not bases else "stands between two neighbours, as c.28_29ins"
            raise TypedError(f"letter {at + 1}: an insertion {why}", text, at)
        left, old = (left + 1, "") if kind == "ins" else (left, old)
    elif bases and bases != old:
        return _checked(text, at + 3, transcript, reference, left, right, bases, "")
    elif kind == "dup":
        left, old, bases = right, "", old
    else:
        bases = ""
    return _anchored(reference, transcript.contig, left, old, bases)


def _transcript(text: str, name: str, annotation: Annotation) -> Transcript:
    """Return the transcript of a name, or the first of a gene's with a CDS that has its start."""
    try:
        gene = find_gene(annotation, name)
    except TypedError as error:
        raise TypedError(str(error), text, 0, name, error.near) from None
    fit = [t for t in gene.transcripts if t.cds and t.has_start]
    named = [t for t in fit if t.transcript_id == name]
    if not fit:
        raise TypedError(f"gene '{name}' has no CDS with its start codon", text, 0, name)
    return (named or fit)[0]


def _place(
    text: str, at: int, transcript: Transcript, piece: tuple[str, re.Pattern[str]]
) -> tuple[int, int]:
    """Return where a c. position stands on the contig, and where its text ends."""
    match = piece[1].match(text, at)
    if match is None:
        raise _expected(piece[0], text, at)
    try:
        place = cds_position(transcript, int(match[1]))
    except IndexError as error:
        raise TypedError(f"letter {at + 1}: {error}", text, at) from None
    offset = int(match[2] or 0) * (1 if transcript.strand == "+" else -1)
    edges = [end - 1 if offset > 0 else start for start, end in transcript.exons]
    if offset and place not in edges:
        raise TypedError(
            f"letter {at + 1}: {match[0]} does not count from the edge of an exon", text, at
        )
    if offset and any(start <= place + offset < end for start, end in transcript.exons):
        raise TypedError(f"letter {at + 1}: {match[0]} does not lie in an intron", text, at)
    return place + offset, match.end()


def _on_contig(bases: str, transcript: Transcript) -> str:
    bases = bases.upper().translate(_TO_T)
    return bases if transcript.strand == "+" else reverse_complement(bases)


def _checked(
    text: str, at: int, transcript: Transcript, reference: Reference,
    left: int, right: int, ref: str, alt: str,
) -> Variant:  # fmt: skip
    """Return a substitution whose REF stands in the reference."""
    there = reference.fetch(Interval(transcript.contig, left, right)).upper()
    if there != ref:
        read = _on_contig(there, transcript)
        raise TypedError(
            f"letter {at + 1}: the reference has {read} there, read along {transcript.strand}",
            text, at,
        )  # fmt: skip
    return Variant(transcript.contig, left, ref, alt)


def _anchored(reference: Reference, contig: str, start: int, ref: str, alt: str) -> Variant:
    """Return a variant with a base before it, as a VCF writes what is inserted or deleted."""
    if ref and alt:
        return Variant(contig, start, ref, alt)
    if start:
        base = reference.fetch(Interval(contig, start - 1, start)).upper()
        return Variant(contig, start - 1, base + ref, base + alt)
    end = len(ref)
    base = reference.fetch(Interval(contig, end, end + 1)).upper()
    return Variant(contig, 0, ref + base, alt + base)
