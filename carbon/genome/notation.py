"""Variant notation and sequences as text, read in the names of a genome.

Variants: `VIII:451984 CA>C`, `chr-pos-ref-alt`, and coding positions of HGVS, `GENE:c.28A>T`.
Sequences: bases, or one FASTA record. An error names the first wrong letter.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from carbon.errors import GenomeError, TypedError
from carbon.genome.alphabet import DNA_LETTERS, IUPAC_DNA, as_dna, check_dna, reverse_complement
from carbon.genome.annotation import read_gene_file
from carbon.genome.contig_names import CHR, contig_names
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, Transcript, find_gene, near_names
from carbon.genome.interval import (
    Elements,
    Interval,
    Variant,
    as_utf8,
    read_elements,
    unexpected,
)
from carbon.genome.vcf import vcf_text

_BASES = f"[{IUPAC_DNA}{IUPAC_DNA.lower()}]+"
_EXAMPLES = "such as chr1:10 A>T, chr1-10-A-T or GENE:c.28A>T"
_CODING = re.compile(r"\s*(\S+?)\s*:\s*c\.")
_GENOMIC: Elements = (
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
    """Return the bases of DNA or RNA, in the case of the text: plain, or one FASTA record.

    U becomes T. Blanks, and numbers at the start of a line as in GenBank, are skipped.

    >>> read_bases(">a gene" + chr(10) + "AUG gcc")
    'ATGgcc'

    Raises:
        TypedError: a letter is not a DNA letter, or there are several records.
    """
    lines: list[str] = []
    for number, line in enumerate(read_lines(text), start=1):
        if not line.startswith(">"):
            lines.append(line)
        elif lines:
            raise TypedError(f"line {number} begins a second sequence; give one", line, 0)
    return "".join(lines)


def read_lines(text: str) -> Iterator[str]:
    """Yield the lines of FASTA: headers, and bases as `read_bases` returns them.

    Raises:
        TypedError: a letter is not a DNA letter.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"line {number}" if "\n" in text else ""
        yield line if line.startswith(">") else _read_line(line, where)


def _read_line(line: str, where: str) -> str:
    """Return the bases of a line; a number at its start and blanks are skipped."""
    bases = re.sub(r"^\s*\d+(?=\s)", lambda digits: " " * len(digits[0]), line)
    check_dna(bases, where, DNA_LETTERS.union(filter(str.isspace, bases)))
    return as_dna("".join(bases.split()))


def read_variant(text: str, reference: Reference, annotation: Annotation | None) -> Variant:
    """Return the variant that a text denotes, with the contig names of the reference.

    Accepted are `chr1:10 A>T`, `chr1 10 A T`, `chr1-10-A-T`, `chr1:10:A:T` and `chr1:g.10A>T`, with
    or without `chr`, and `10A>T` if the reference has one contig. Coding positions of HGVS refer to
    a gene or transcript: `NAME:c.28A>T`, `c.28del`, `c.28_30dup`, `c.28_29insACG`, `c.28delinsAC`
    and `c.28+1G>A`. U becomes T, and case is ignored.

    Args:
        text: variant notation.
        reference: reference with the contigs; bases for c. positions are read from it.
        annotation: annotation with the genes for c. positions, or None.

    Raises:
        TypedError: the text has another form, or an unknown contig or gene; the message names the
            first wrong letter or similar names.
        GenomeError: several genes have the name.
    """
    text = as_utf8(text).strip()
    if coding := _CODING.match(text):
        if annotation is None:
            raise TypedError(
                "there is no annotation to count c. positions in; give one (--annotation)", text, 0
            )
        return _coding_variant(text, coding.end(), coding[1], reference, annotation)
    contig, at = _contig(text, reference.contig_lengths_bp)
    position, ref, _, alt, _ = read_elements(text, at, _GENOMIC, _EXAMPLES)
    place = int(position.replace(",", "")) - 1
    return Variant(contig, place, *(as_dna(each.upper()) for each in (ref, alt)))


def write_vcf_of_texts(
    path: Path,
    texts: Sequence[str],
    fasta: Path,
    annotation: Path | None = None,
    contigs: str | None = None,
    genetic_code: str | None = None,
) -> None:
    """Write variant notation as a sorted VCF with the contigs of a reference.

    Args:
        path: VCF to write. ID is the notation, if VCF allows it there.
        texts: variant notation, as for `read_variant`.
        fasta: reference.
        annotation: annotation, which is read only if a text has c. positions.
        contigs: option for `contig_names`, for the annotation.
        genetic_code: NCBI translation table, as for `read_annotation`.

    Raises:
        GenomeError: a text is not a variant of the reference, or REF disagrees with it.
    """
    with Reference(fasta) as reference:
        genes = None
        if annotation and any(map(_CODING.match, texts)):
            names = contig_names(contigs, reference.contig_lengths_bp)
            genes = read_gene_file(annotation, reference, names, genetic_code)
        variants = [(_checked_variant(text, reference, genes), text) for text in texts]
        rank = {contig: number for number, contig in enumerate(reference.contig_lengths_bp)}
        variants.sort(key=lambda each: (rank[each[0].contig], each[0].position))
        path.write_text(vcf_text(variants, reference.contig_lengths_bp), encoding="utf-8")


def _checked_variant(text: str, reference: Reference, annotation: Annotation | None) -> Variant:
    where = f"--variant '{text}'"
    try:
        variant = read_variant(text, reference, annotation)
    except GenomeError as error:
        raise GenomeError(f"{where}: {error}") from None
    reference.check_ref(variant.contig, variant.position, variant.ref, where)
    return variant


def cds_position(transcript: Transcript, number: int) -> int:
    """Return the position on the contig of a base of a CDS, numbered from 1 along the strand.

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
    """Return the reference's name of the contig at the start of a text, and its end there."""
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
        raise unexpected(_EDIT, text, at, _EXAMPLES)
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
    """Return the transcript with a name, or the gene's first whose CDS has its start codon."""
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
    """Return the position of a c. position on the contig, and the end of its text."""
    match = piece[1].match(text, at)
    if match is None:
        raise unexpected(piece[0], text, at, _EXAMPLES)
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
    bases = as_dna(bases.upper())
    return bases if transcript.strand == "+" else reverse_complement(bases)


def _checked(
    text: str, at: int, transcript: Transcript, reference: Reference,
    left: int, right: int, ref: str, alt: str,
) -> Variant:  # fmt: skip
    """Return a substitution; raises TypedError if REF differs from the reference."""
    bases = reference.fetch(Interval(transcript.contig, left, right)).upper()
    if bases != ref:
        read = _on_contig(bases, transcript)
        raise TypedError(
            f"letter {at + 1}: the reference has {read} there, read along {transcript.strand}",
            text, at,
        )  # fmt: skip
    return Variant(transcript.contig, left, ref, alt)


def _anchored(reference: Reference, contig: str, start: int, ref: str, alt: str) -> Variant:
    """Return a variant; an insertion or deletion gets the base before it, as in a VCF."""
    if ref and alt:
        return Variant(contig, start, ref, alt)
    if start:
        base = reference.fetch(Interval(contig, start - 1, start)).upper()
        return Variant(contig, start - 1, base + ref, base + alt)
    end = len(ref)
    base = reference.fetch(Interval(contig, end, end + 1)).upper()
    return Variant(contig, 0, ref + base, alt + base)
