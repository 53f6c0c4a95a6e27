"""Read GFF3 and GTF lines as features, in the order of the file, and interpret their attributes.

Formats: GFF3 1.26 (Sequence Ontology) and GTF 2.2, which are distinguished by the ninth column of
each line. Coordinates become 0-based and half-open, and attributes are decoded.

Lines are parsed in batches of thousands, column by column. If a line of a batch is malformed, the
batch is parsed line by line, so that the error names the line.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import lt
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from carbon.errors import GenomeError
from carbon.genome.alphabet import table_stated
from carbon.genome.genes import Span
from carbon.genome.interval import Strand
from carbon.genome.sequences import numbered_lines


class Feature(NamedTuple):
    """One line of a GFF3 or GTF.

    Attributes:
        attributes: column 9, decoded, by key in lower case. A key without a value maps to the empty
            string. Several values, also of a repeated key, are separated by commas. Only `parent`
            stays encoded, because an encoded comma is not a separator.
        where: file and line number, for messages.
        phase: column 8 (phase of GFF3, frame of GTF): number of bases before the first whole codon
            along the strand, 0 to 2; None if it is `.` or invalid.
    """

    contig: str
    kind: str
    start: int
    end: int
    strand: str
    attributes: Mapping[str, str]
    is_gtf: bool
    where: str
    phase: int | None = None

    @property
    def identifier(self) -> str:
        """Identifier of the feature, or else of its parent, or else file and line number."""
        names = ("transcript_id", "gene_id") if self.is_gtf else _NAMED
        return next((self.attributes[n] for n in names if n in self.attributes), self.where)

    @property
    def parents(self) -> list[str]:
        """Identifiers of the parents of a GFF3 line, decoded."""
        named = self.attributes.get("parent")
        return [unquote(p) for p in named.split(",") if p] if named else []


_NAMED = ("id", "parent", "locus_tag", "name")


def read_features(path: Path) -> Iterator[Feature]:
    """Yield the features of a GFF3 or GTF, plain or gzip, up to a FASTA section at its end.

    Raises:
        GenomeError: at the first malformed line.
    """
    for lines in _batches(path):
        yield from _by_columns(path, lines) or _by_lines(path, lines)


_LINES_AT_ONCE = 4096
_Lines = list[tuple[int, str]]  # line numbers and lines of features


def _batches(path: Path) -> Iterator[_Lines]:
    """Yield the lines of a file that are neither blank nor comments, in batches."""
    batch: _Lines = []
    broken = None
    try:
        for number, line in numbered_lines(path):
            if line.startswith(("##FASTA", ">")):
                break
            if not line.startswith("#") and line.strip():
                batch.append((number, line.rstrip("\r\n")))
            if len(batch) == _LINES_AT_ONCE:
                yield batch
                batch = []
    except GenomeError as error:
        broken = error
    if batch:
        yield batch
    if broken:
        raise broken


def _by_columns(path: Path, lines: _Lines) -> list[Feature] | None:
    """Parse lines column by column; None if a line is malformed or must be parsed on its own."""
    rows = [line.split("\t") for _, line in lines]
    if set(map(len, rows)) != {9}:
        return None
    contigs, _, kinds, firsts, lasts, _, strands, phases, texts = zip(*rows, strict=True)
    if not (_are_positions(firsts) and _are_positions(lasts)):
        return None
    starts, ends = [int(first) - 1 for first in firsts], list(map(int, lasts))
    if min(starts) < 0 or not all(map(lt, starts, ends)):
        return None
    are_gtf, attributes = zip(*map(_read_attributes, texts), strict=True)
    names = {contig: unquote(contig) for contig in set(contigs)}
    columns = (
        [name if gtf else names[name] for name, gtf in zip(contigs, are_gtf, strict=True)],
        *(kinds, starts, ends, strands, attributes, are_gtf),
        [f"{path} line {number}" for number, _ in lines],
        map(_PHASES.get, phases),
    )
    return list(map(_AS_FEATURE, zip(*columns, strict=True)))


def _are_positions(column: tuple[str, ...]) -> bool:
    """Return whether all values match `_POSITION`."""
    digits, sizes = "".join(column), set(map(len, column))
    return digits.isascii() and digits.isdigit() and sizes.issubset(range(1, _MOST_DIGITS + 1))


def _by_lines(path: Path, lines: _Lines) -> Iterator[Feature]:
    for number, line in lines:
        yield _parse_line(line, f"{path} line {number}")


def _parse_line(line: str, where: str) -> Feature:
    columns = line.split("\t")
    if len(columns) != 9:
        raise GenomeError(
            f"{where}: {len(columns)} columns, GFF3 and GTF have 9, split by tabs; is it one?"
        )
    contig, _, kind, first, last, _, strand, phase, text = columns
    are_numbers = _POSITION.fullmatch(first) and _POSITION.fullmatch(last)
    if not (are_numbers and 1 <= int(first) <= int(last)):
        shown = f"'{first[:_SHOWN]}' and '{last[:_SHOWN]}'"
        raise GenomeError(f"{where}: need 1 <= start <= end, got {shown}")
    is_gtf, attributes = _read_attributes(text)
    contig = contig if is_gtf else unquote(contig)
    start, end = int(first) - 1, int(last)
    where_and_phase = where, _PHASES.get(phase)
    return Feature(contig, kind, start, end, strand, attributes, is_gtf, *where_and_phase)


_AS_FEATURE = partial(tuple.__new__, Feature)  # as Feature._make, for columns of equal lengths
_PHASES = {"0": 0, "1": 1, "2": 2}
_MOST_DIGITS = 15
_POSITION = re.compile(f"[0-9]{{1,{_MOST_DIGITS}}}")
_SHOWN = 20  # letters of an invalid position in a message

_GTF_ATTRIBUTE = re.compile(r'\s*(\w+)(?: +(?:"([^"]*)"|([^";=\s][^";]*)))?\s*(?:;|$)')
_BEGINS_AS_GTF = re.compile(r'\s*(?:\w+\s*;\s*)*\w+ +(?:"[^"]*"|[^";=\s][^";]*)\s*(?:;|$)')


def _read_attributes(text: str) -> tuple[bool, dict[str, str]]:
    """Return whether a ninth column is in GTF format, and its attributes."""
    if _BEGINS_AS_GTF.match(text):
        return True, _gtf_attributes(text)
    return False, _gff3_attributes(text)


def _gtf_attributes(text: str) -> dict[str, str]:
    pieces = text.split('"')
    keys, unquoted, are_different = _gtf_layout(tuple(pieces[::2]))
    if not keys or len(pieces) % 2 == 0:
        pairs = [(m[1], m[2] or (m[3] or "").strip()) for m in _GTF_ATTRIBUTE.finditer(text)]
    else:
        values = pieces[1::2]
        for place, value in unquoted:
            values.insert(place, value)
        if are_different and "%" not in text:
            return dict(zip(keys, values, strict=True))
        pairs = list(zip(keys, values, strict=True))
    return _by_key([(key, unquote(value)) for key, value in pairs])


@lru_cache(maxsize=4096)
def _gtf_layout(
    outside_of_quotes: tuple[str, ...],
) -> tuple[list[str], list[tuple[int, str]], bool]:
    """Return the keys of lines that differ only in their quoted values.

    Returns:
        The keys, empty if there is other text between attributes, so that a quoted value could be
        mistaken for an attribute; unquoted values with their places among all; and whether all keys
        are different and in lower case.
    """
    text = '""'.join(outside_of_quotes)
    pairs, end = [], 0
    for match in _GTF_ATTRIBUTE.finditer(text):
        if match.start() != end:
            return [], [], False
        pairs.append((match[1], None if match[2] is not None else (match[3] or "").strip()))
        end = match.end()
    num_quoted = sum(value is None for _, value in pairs)
    is_whole = not text[end:].strip() and num_quoted == len(outside_of_quotes) - 1
    if not is_whole:
        return [], [], False
    unquoted = [(place, value) for place, (_, value) in enumerate(pairs) if value is not None]
    keys = [key for key, _ in pairs]
    return keys, unquoted, len({key.casefold() for key in keys} & set(keys)) == len(keys)


def _gff3_attributes(text: str) -> dict[str, str]:
    items = [item.partition("=") for item in text.split(";") if item and not item.isspace()]
    if "%" not in text:
        return _by_key([(key.strip(), value.strip()) for key, _, value in items])
    return _by_key([(key.strip(), _decoded(key, value)) for key, _, value in items])


def _decoded(key: str, value: str) -> str:
    # An escaped comma is not a separator, so Parent is split before decoding.
    if "%" not in value or _folded(key.strip()) == "parent":
        return value.strip()
    return unquote(value).strip()


def _by_key(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return values by keys in lower case.

    The values of a repeated key are joined by commas. If a line has both spellings of a key, the
    one with a capital letter counts, because GFF3 reserves it.
    """
    by_key = {_folded(key): value for key, value in pairs}
    if len(by_key) == len(pairs):
        return by_key
    spelled: dict[str, str] = {}
    for key, value in pairs:
        spelled[key] = f"{spelled[key]},{value}" if key in spelled else value
    return {_folded(key): spelled[key] for key in sorted(spelled, reverse=True)}


@lru_cache(maxsize=4096)
def _folded(key: str) -> str:
    return key.casefold()


Attributes = Mapping[str, str]
_NEGATIONS = frozenset({"false", "f", "no", "n", "none", "0", "."})
_BIOTYPES = ("gene_biotype", "gene_type", "biotype", "transcript_biotype", "transcript_type")
_SLIPPAGE, _TRANS_SPLICING = "ribosomal slippage", "trans splicing"
# Every line that sets a mark has one of these keys, except for the marks of a CDS alone.
MARK_KEYS = frozenset({
    "pseudo", "pseudogene", "exception", "ribosomal_slippage", "trans_splicing",
    "transl_except", "tag", "cds_start_nf", "cds_end_nf",
})  # fmt: skip


def is_set(attributes: Attributes, key: str) -> bool:
    """Return whether a key is present with any value, or none, except a negation such as `false`.

    >>> is_set({"pseudo": "True"}, "pseudo"), is_set({"pseudo": "false"}, "pseudo")
    (True, False)
    """
    value = attributes.get(key)
    return value is not None and _plain(value) not in _NEGATIONS


def is_pseudo(attributes: Attributes) -> bool:
    """Return whether a feature has a `pseudo` or `pseudogene` attribute that is set."""
    return is_set(attributes, "pseudo") or is_set(attributes, "pseudogene")


@lru_cache(maxsize=4096)
def is_pseudogene_type(name: str) -> bool:
    """Return whether a feature type or biotype is a pseudogene whose CDS is not translated.

    Polymorphic pseudogenes are translated in some individuals, and GENCODE has translated ones.

    >>> is_pseudogene_type("transcribed_processed_pseudogene"), is_pseudogene_type("gene")
    (True, False)
    """
    plain = _plain(name)
    if plain.startswith(("polymorphic", "translated")):
        return False
    return plain.endswith("pseudogene") or plain.startswith("pseudogenic")


def is_pseudogene(kind: str, attributes: Attributes) -> bool:
    """Return whether a gene or transcript is a pseudogene by its attributes, type or biotype."""
    types = (kind, *(attributes.get(key, "") for key in _BIOTYPES))
    return is_pseudo(attributes) or any(map(is_pseudogene_type, types))


def slips(attributes: Attributes) -> bool:
    """Return whether a CDS is marked with ribosomal slippage."""
    return is_set(attributes, "ribosomal_slippage") or _SLIPPAGE in _exceptions(attributes)


def is_trans_spliced(attributes: Attributes) -> bool:
    """Return whether a feature is marked as trans-spliced."""
    return is_set(attributes, "trans_splicing") or _TRANS_SPLICING in _exceptions(attributes)


def is_exceptional(attributes: Attributes) -> bool:
    """Return whether the codons of a CDS are unknown: it is pseudo or has an exception.

    Ribosomal slippage and trans-splicing do not count, because they yield a whole protein.
    """
    return is_pseudo(attributes) or bool(_exceptions(attributes) - {_SLIPPAGE, _TRANS_SPLICING})


def has_completed_stop(attributes: Attributes) -> bool:
    """Return whether the poly(A) tail completes the stop codon, which the genome lacks."""
    return "aa:term" in attributes.get("transl_except", "").casefold()


def has_recoded_codon(attributes: Attributes) -> bool:
    """Return whether `transl_except` names an amino acid, and not only a completed stop codon."""
    exceptions = attributes.get("transl_except", "").casefold()
    return exceptions.count("aa:") > exceptions.count("aa:term")


def ends_not_found(attributes: Attributes) -> tuple[bool, bool]:
    """Return whether tags mark the start, and the end, of a CDS as not found."""
    tags = _words(attributes, "tag")
    return tuple(f"{end} nf" in tags or is_set(attributes, f"{end.replace(' ', '_')}_nf")
                 for end in ("cds start", "cds end"))  # type: ignore[return-value]  # fmt: skip


def partial_ends(attributes: Attributes) -> tuple[bool, bool] | None:
    """Return whether a CDS extends beyond its left and its right end on the contig.

    Prodigal writes both as digits, `partial=10`; NCBI names the left end by `start_range` and the
    right end by `end_range`. None if the feature is partial at an unnamed end.
    """
    left, right = "start_range" in attributes, "end_range" in attributes
    digits = attributes.get("partial", "").strip("\"' ")
    if len(digits) == 2 and set(digits) <= {"0", "1"}:
        return left or digits[0] == "1", right or digits[1] == "1"
    return None if is_set(attributes, "partial") and not (left or right) else (left, right)


def _exceptions(attributes: Attributes) -> set[str]:
    return _words(attributes, "exception") - _NEGATIONS


def _words(attributes: Attributes, key: str) -> set[str]:
    """Return the values of a key in normalised spelling."""
    return {_plain(value) for value in attributes.get(key, "").split(",")} - {""}


@lru_cache(maxsize=4096)
def _plain(value: str) -> str:
    return value.casefold().replace("_", " ").replace("-", " ").strip("\"' ")


@dataclass(slots=True)
class CdsMarks:
    """Marks of a CDS, gathered from the lines of its transcript and gene.

    Attributes:
        genetic_code: NCBI translation table of the CDS, if stated.
        has_recoded_codon: whether `transl_except` names an amino acid.
        slips: whether a line is marked with ribosomal slippage.
        trans_spliced: whether a line is marked as trans-spliced.
    """

    genetic_code: int | None = None
    has_recoded_codon: bool = False
    slips: bool = False
    trans_spliced: bool = False
    _exceptional: bool = False
    _partial: bool = False  # at an unnamed end
    _no_start: bool = False
    _no_end: bool = False
    _phases_bp: dict[int, int | None] = field(default_factory=dict)  # by the 5' base of a span

    def see(self, feature: Feature, contig_bp: int, *, is_cds: bool = False) -> None:
        """Add the marks of a line; its contig of `contig_bp` may be circular."""
        attributes = feature.attributes
        if not MARK_KEYS.isdisjoint(attributes):
            self._exceptional |= is_exceptional(attributes)
            self.slips |= slips(attributes)
            self.trans_spliced |= is_trans_spliced(attributes)
            no_start, no_end = ends_not_found(attributes)
            self._no_start |= no_start
            self._no_end |= no_end or has_completed_stop(attributes)
        if table := attributes.get("transl_table"):
            self._see_table(table, feature.where)
        if is_cds:
            self._see_cds(feature)
            first = _first_base((feature.start, feature.end), feature.strand)
            self._phases_bp.setdefault(first % max(contig_bp, 1), feature.phase)

    def take(self, other: "CdsMarks") -> None:
        """Add the marks of UTRs of the same transcript, without marks of the ends of the CDS."""
        self._exceptional |= other._exceptional
        self.trans_spliced |= other.trans_spliced

    def see_gene(self, feature: Feature, *, is_coding: bool) -> None:
        """Add the marks that a line of a gene or transcript sets for the features below it.

        Types such as `processed_pseudogene` count only for coding transcripts.
        """
        attributes = feature.attributes
        if not MARK_KEYS.isdisjoint(attributes):
            self._exceptional |= is_pseudo(attributes)
            self.trans_spliced |= is_trans_spliced(attributes)
        if is_coding:
            self._exceptional |= is_pseudogene(feature.kind, attributes)
        table = attributes.get("transl_table")
        if table and self.genetic_code is None:
            self._see_table(table, feature.where)

    def _see_cds(self, feature: Feature) -> None:
        # On other lines these attributes describe the mRNA, whose CDS may be complete.
        attributes = feature.attributes
        ends = partial_ends(attributes)
        self._partial |= ends is None
        left, right = ends or (False, False)
        self._no_start |= left if feature.strand == "+" else right
        self._no_end |= right if feature.strand == "+" else left
        self.has_recoded_codon |= has_recoded_codon(attributes)

    def _see_table(self, table: str, where: str) -> None:
        stated = table_stated(table, where)
        if self.genetic_code not in (None, stated):
            raise GenomeError(
                f"{where}: transl_table={stated}, but {self.genetic_code} on another line of the "
                "transcript; keep one"
            )
        self.genetic_code = stated

    def phase_bp(self, cds: tuple[Span, ...], strand: Strand, contig_bp: int) -> int | None:
        """Return `Transcript.phase_bp` for ascending coding spans.

        None for trans-spliced parts, whose order is not known here.
        """
        return None if self.trans_spliced and cds else self.first_phase_bp(cds, strand, contig_bp)

    def first_phase_bp(self, cds: tuple[Span, ...], strand: Strand, contig_bp: int) -> int | None:
        """Return the phase of a CDS whose first span along the strand is read first."""
        if not cds:
            return 0
        first = _first_base(cds[0] if strand == "+" else cds[-1], strand)
        stated = self._phases_bp.get(first % max(contig_bp, 1))
        if self._exceptional or (stated is None and not self.has_start):
            return None
        return stated or 0

    @property
    def has_start(self) -> bool:
        """Whether no mark places the start of the CDS before its first annotated base."""
        return not (self._no_start or (self._partial and not self._no_end))

    @property
    def incomplete(self) -> bool:
        """Whether the CDS is marked as partial, pseudo or exceptional."""
        return self._exceptional or self._partial or self._no_start or self._no_end


def _first_base(span: Span, strand: str) -> int:
    return span[0] if strand == "+" else span[1] - 1
