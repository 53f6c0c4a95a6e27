"""Variant notation and sequences as text, read in the names of a genome.

Variants: `VIII:451984 CA>C`, `chr-pos-ref-alt`, and coding positions of HGVS, `GENE:c.28A>T`.
Sequences: bases, or one FASTA record. An error names the first wrong letter.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from carbon.errors import GenomeError, TypedError, UserError
from carbon.genome.alphabet import DNA_LETTERS, IUPAC_DNA, as_dna, check_dna, reverse_complement
from carbon.genome.annotation import read_gene_file
from carbon.genome.contig_names import CHR, contig_names
from carbon.genome.fasta import Reference
from carbon.genome.genes import Annotation, Gene, Transcript, find_gene, near_names
from carbon.genome.interval import (
    Elements,
    Interval,
    Variant,
    as_utf8,
    read_elements,
    unexpected,
)
from carbon.genome.vcf import vcf_text
from carbon.progress import say

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
_SHOWN = 5  # transcripts in a message


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
    and `c.28+1G>A`. U becomes T, and case is ignored. In the name of a gene, all its transcripts
    with an annotated start must number the variant alike.

    Args:
        text: variant notation.
        reference: reference with the contigs; bases for c. positions are read from it.
        annotation: annotation with the genes for c. positions, or None.

    Raises:
        TypedError: the text has another form, or an unknown contig or gene; the message names the
            first wrong letter or similar names, or transcripts if those of a gene disagree.
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
    if note := _numbered_in(text, annotation):
        say(f"{where}: {note}")
    reference.check_ref(variant.contig, variant.position, variant.ref, where)
    return variant


def _numbered_in(text: str, annotation: Annotation | None) -> str:
    """Return which transcripts of a gene number its c. positions; empty if there is no choice."""
    coding = _CODING.match(as_utf8(text))
    if coding is None or annotation is None:
        return ""
    transcripts = find_gene(annotation, coding[1]).transcripts
    if len(transcripts) == 1 or any(t.transcript_id == coding[1] for t in transcripts):
        return ""
    names = [t.transcript_id for t in _numbering_transcripts(text, coding[1], annotation)]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"c. positions count in {', '.join(names[:_SHOWN])}{more}"


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


class _Place(NamedTuple):
    """A c. position, such as 28 or 28+1.

    Attributes:
        number: number of the base of the CDS, from 1.
        offset_bp: bases from there into an intron, along the contig; 0 for a base of the CDS.
        position: position on the contig.
        end: index of the end of its text.
    """

    number: int
    offset_bp: int
    position: int
    end: int


def _coding_variant(
    text: str, at: int, name: str, reference: Reference, annotation: Annotation
) -> Variant:
    def variant_in(transcript: Transcript) -> Variant:
        return _edited(text, at, transcript, reference)

    return same_variant(text, name, annotation, variant_in)


def same_variant(
    text: str, name: str, annotation: Annotation, variant_in: Callable[[Transcript], Variant]
) -> Variant:
    """Return the variant that is the same in all transcripts that a name may refer to.

    These are the transcript with the name, or all of the gene whose CDS has its start codon.

    Args:
        text: variant notation, for messages.
        name: of a gene or transcript.
        annotation: annotation with the gene.
        variant_in: returns the variant by the numbering of a transcript, or raises UserError.

    Raises:
        TypedError: no transcript fits, or they number the variant differently.
        UserError: `variant_in` raises it for all transcripts.
    """
    transcripts = _numbering_transcripts(text, name, annotation)
    outcomes = [_outcome(variant_in, transcript) for transcript in transcripts]
    variants = [each for each in outcomes if isinstance(each, Variant)]
    errors = [each for each in outcomes if isinstance(each, UserError)]
    if not variants:
        raise errors[0]
    if errors or len(set(variants)) > 1:
        pairs = zip(transcripts, outcomes, strict=True)
        names = tuple(t.transcript_id for t, each in pairs if isinstance(each, Variant))[:_SHOWN]
        raise TypedError(
            f"the {len(transcripts)} transcripts of gene '{name}' number this position "
            f"differently; name a transcript instead, such as {', '.join(names)}",
            text, 0, name, names,
        )  # fmt: skip
    return variants[0]


def _outcome(
    variant_in: Callable[[Transcript], Variant], transcript: Transcript
) -> Variant | UserError:
    try:
        return variant_in(transcript)
    except UserError as error:
        return error


def _numbering_transcripts(text: str, name: str, annotation: Annotation) -> tuple[Transcript, ...]:
    """Return the transcript with a name, or all of the gene whose CDS has its start codon."""
    gene = _gene(text, name, annotation)
    named = [t for t in gene.transcripts if t.transcript_id == name]
    fit = tuple(t for t in named or gene.transcripts if t.cds and t.has_start)
    if not fit:
        what = "transcript" if named else "gene"
        raise TypedError(
            f"{what} '{name}' has no annotated start; positions in its CDS are unknown",
            text,
            0,
            name,
        )
    return fit


def _gene(text: str, name: str, annotation: Annotation) -> Gene:
    try:
        return find_gene(annotation, name)
    except TypedError as error:
        raise TypedError(str(error), text, 0, name, error.near) from None


def _edited(text: str, at: int, transcript: Transcript, reference: Reference) -> Variant:
    """Return the variant of the c. positions and the edit from index `at` on."""
    left, right, at = _range(text, at, transcript)
    if substituted := _SUBSTITUTED.fullmatch(text, at):
        ref, alt = (_on_contig(bases, transcript) for bases in substituted.groups())
        if len(ref) != right - left:
            raise TypedError(
                f"letter {at + 1}: the length of REF is {len(ref)} and of its place "
                f"{right - left}; write both as in c.28T>A or c.28_29TA>GC",
                text, at,
            )  # fmt: skip
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


def _range(text: str, at: int, transcript: Transcript) -> tuple[int, int, int]:
    """Return start and end on the contig of one c. position or two, and the end of their text.

    HGVS counts `c.100_101` in bases of the transcript, so two bases of the CDS must lie as far
    apart on the contig. A position such as 101+5 exists in the genome alone.
    """
    first = last = _place(text, at, transcript, _FIRST)
    if text[first.end : first.end + 1] == "_":
        last = _place(text, first.end + 1, transcript, _LAST)
    shown = text[at : last.end]
    apart_bp = (last.position - first.position) * (1 if transcript.strand == "+" else -1)
    in_cds = not first.offset_bp and not last.offset_bp
    if (last.number < first.number) if in_cds else (apart_bp < 0):
        raise TypedError(
            f"letter {at + 1}: c.{shown} is reversed; write the smaller position first", text, at
        )
    if in_cds and apart_bp != last.number - first.number:
        raise TypedError(
            f"letter {at + 1}: c.{shown} is not one stretch of the genome, as between exons; give "
            "genomic coordinates, such as chr1:10 CAG>C",
            text, at,
        )  # fmt: skip
    left, right = sorted((first.position, last.position))
    return left, right + 1, last.end


def _place(
    text: str, at: int, transcript: Transcript, piece: tuple[str, re.Pattern[str]]
) -> _Place:
    """Return the c. position that begins at index `at`."""
    match = piece[1].match(text, at)
    if match is None:
        raise unexpected(piece[0], text, at, _EXAMPLES)
    try:
        base = cds_position(transcript, int(match[1]))
    except IndexError as error:
        raise TypedError(f"letter {at + 1}: {error}", text, at) from None
    offset_bp = int(match[2] or 0) * (1 if transcript.strand == "+" else -1)
    position = base + offset_bp
    edges = [end - 1 if offset_bp > 0 else start for start, end in transcript.exons]
    if offset_bp and base not in edges:
        raise TypedError(
            f"letter {at + 1}: {match[0]} does not count from the edge of an exon", text, at
        )
    beside = [intron for intron in transcript.introns if base in (intron[0] - 1, intron[1])]
    if offset_bp and not any(start <= position < end for start, end in beside):
        raise TypedError(
            f"letter {at + 1}: {match[0]} does not lie in an intron next to base {match[1]}",
            text, at,
        )  # fmt: skip
    return _Place(int(match[1]), offset_bp, position, match.end())


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
