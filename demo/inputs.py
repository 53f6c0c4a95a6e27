"""Recognise what a visitor typed: a gene, a region, a variant, bases, FASTA or GenBank."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from carbon.errors import TypedError, UserError
from carbon.genome import Interval, Variant, reverse_complement
from carbon.genome.alphabet import DNA_LETTERS
from carbon.genome.contig_names import CHR, contig_names
from carbon.genome.genes import Gene, Transcript, find_gene, near_names
from carbon.genome.genome import Genome
from carbon.genome.notation import same_variant
from carbon.tokenizer import K
from demo.coding import CHANGE, first_coding_bases, read_change, variant_of_change
from demo.letters import check_is_dna, looks_like_protein

InputKind = Literal["gene", "region", "variant", "bases", "fasta", "genbank"]

_LEAST_BASES = 6  # letters; shorter texts are names
_REGION = re.compile(r"(?P<contig>[^:\s]+):(?P<first>[\d,]+)(?:-|\.\.)(?P<last>[\d,]*)")
_CODING = re.compile(r"(?P<gene>\S+?)\s*:?\s*(?P<change>c\.\s*\S+)", re.IGNORECASE)
_PROTEIN = re.compile(
    rf"(?:(?P<gene>\S+?)[:\s]\s*)?(?P<change>{CHANGE.pattern})(?:\s+(?:of|in)\s+(?P<of>\S+))?"
)
_GENOMIC = re.compile(
    r"(?:(?P<contig>\S+?)[:\-\s]\s*)?(?:g\.)?(?P<position>\d[\d,]*)[:\-\s]*"
    r"(?P<ref>[A-Za-z]+)(?:\s*[>:\-/]\s*|\s+)(?P<alt>[A-Za-z]+)"
)
_ROW = re.compile(
    r"(?P<contig>\S+)\s+(?P<position>\d+)\s+\S+\s+(?P<ref>[A-Za-z]+)\s+(?P<alt>[A-Za-z,]+)(?:\s.*)?"
)
_RSID = re.compile(r"rs\d+", re.IGNORECASE)
# Chromosomes of the yeast assembly R64: I is NC_001133, and XVI NC_001148.
_YEAST_LENGTHS_BP = (
    230218, 813184, 316620, 1531933, 576874, 270161, 1090940, 562643,
    439888, 745751, 666816, 1078177, 924431, 784333, 1091291, 948066,
)  # fmt: skip
_FIRST_YEAST_ACCESSION = 1133
_ROMAN = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X",
          "XI", "XII", "XIII", "XIV", "XV", "XVI")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Detected:
    """What a text denotes.

    Attributes:
        kind: kind of the text.
        text: the text with the names of the genome, which every page reads in the same way.
        genome: genome that the text refers to: the open genome, or a pasted one.
        interval: the gene, the region, or the place of the variant; for pasted sequences the first
            gene, or the first contig if there are no genes.
        gene: the gene, or the first gene that overlaps the interval; None if there is none.
        variant: the variant; None for other kinds.
    """

    kind: InputKind
    text: str
    genome: Genome
    interval: Interval
    gene: Gene | None = None
    variant: Variant | None = None

    @property
    def bases(self) -> str:
        """Bases of the interval on the forward strand, in upper case."""
        return self.genome.reference.fetch(self.interval).upper()

    def opening_bases(self, length_bp: int) -> str:
        """Return the DNA that the model continues, or of which it predicts the last bases.

        Of a gene, the first `length_bp` coding bases, or bases on its strand if it has too few; of
        a variant, the reference bases up to a 6-mer that begins at it, at most `length_bp` before
        it; otherwise all bases of the region or sequence. In upper case.
        """
        reference = self.genome.reference
        if self.variant:
            start, contig = self.variant.position, self.variant.contig
            place = self.interval.widened(length_bp, reference.contig_lengths_bp[contig])
            return reference.fetch(place).upper()[: start - place.start + K]
        if self.kind != "gene" or self.gene is None:
            return self.bases
        transcripts = self.gene.transcripts
        if transcripts and (first := first_coding_bases(reference, transcripts[0], length_bp)):
            return first
        along = self.bases if self.gene.strand == "+" else reverse_complement(self.bases)
        return along[:length_bp]


def detect(text: str, genome: Genome, paste: Callable[[str], Genome], gene: str = "") -> Detected:
    """Recognise a text, in any case.

    Args:
        text: a gene, a region, a variant, bases, FASTA or GenBank.
        genome: genome that contains genes, regions and variants.
        paste: function that opens pasted bases, FASTA or GenBank as a genome.
        gene: gene of a protein change without a gene, such as `E52*`.

    Raises:
        UserError: the text is a protein, or it has none of these forms; the message says which
            forms are accepted, or lists near names.
        GenomeError: the place is not in the genome, or pasted text is malformed.
    """
    text = text.strip()
    if not text:
        raise UserError("nothing is given; type a gene, a region, a variant or DNA")
    readers = (read for matches, read in _FORMS if matches(text, genome))
    # The message on an unknown gene lists near names.
    return next(readers, _read_gene)(text, genome, paste, gene)


def contig_aliases(lengths_bp: Mapping[str, int]) -> dict[str, str]:
    """Return the contig's name for each other spelling in lower case: `chr8`, `8`, `nc_001140`."""
    names = {name.casefold(): name for name in lengths_bp}
    for name, own in contig_names(CHR, lengths_bp).items():
        names.setdefault(name.casefold(), own)
    for number, roman in enumerate(_ROMAN):
        contig = names.get(roman.casefold())
        if contig and len(roman) > 1:  # X alone is a sex chromosome elsewhere
            for spelled in (f"{number}", f"chr{number}"):
                names.setdefault(spelled, contig)
    for number, length_bp in enumerate(_YEAST_LENGTHS_BP, start=_FIRST_YEAST_ACCESSION):
        same = [name for name, own_bp in lengths_bp.items() if own_bp == length_bp]
        names |= {f"nc_{number:06}": name for name in same}
    return names


def gene_named(genome: Genome, name: str) -> Gene:
    """Return the gene with a name or identifier, in any case.

    Raises:
        TypedError: the gene does not exist; the message lists similar names.
        UserError: the genome has no genes.
    """
    if genome.annotation is None:
        raise UserError(f"'{name}': no genes are known here; give bases or contig:first-last")
    return find_gene(genome.annotation, _spelled_name(genome, name))


def _names(genome: Genome) -> dict[str, str]:
    """Return every name of a gene or transcript, by its lower-case spelling."""
    genes = genome.annotation.genes if genome.annotation else ()
    own = (t.transcript_id for gene in genes for t in gene.transcripts)
    names = [*own, *(gene.gene_id for gene in genes), *(gene.name for gene in genes)]
    return {name.casefold(): name for name in names}


def _spelled_name(genome: Genome, name: str) -> str:
    return _names(genome).get(name.casefold(), name)


def _contig(genome: Genome, name: str | None) -> str:
    """Return the reference's name of a contig; without a name, its only contig."""
    lengths_bp = genome.reference.contig_lengths_bp
    if name is None:
        return next(iter(lengths_bp)) if len(lengths_bp) == 1 else ""
    aliases = contig_aliases(lengths_bp)
    contig = aliases.get(name.casefold()) or aliases.get(name.casefold().partition(".")[0])
    if contig is None:
        near = near_names(name, lengths_bp) or tuple(lengths_bp)[:5]
        hint = f"; the genome has {', '.join(near)}"
        raise TypedError(f"there is no contig '{name}'{hint}", name, 0, name, near)
    return contig


def _are_letters(text: str, genome: Genome) -> bool:
    """Return whether a text is bases or a protein, and not a name."""
    letters = re.sub(r"^\s*\d+(?=\s)|\s", "", text, flags=re.MULTILINE)
    is_dna = len(letters) >= _LEAST_BASES and not set(letters) - DNA_LETTERS
    return is_dna or "\n" in text or looks_like_protein(letters)


def _read_gene(text: str, genome: Genome, paste: object, gene: str) -> Detected:
    own = gene_named(genome, text)
    return Detected("gene", _spelled_name(genome, text), genome, own.interval, own)


def _read_region(text: str, genome: Genome, paste: object, gene: str) -> Detected:
    match = _REGION.fullmatch(text)
    if match:
        first, last = (match[name].replace(",", "") for name in ("first", "last"))
        if last and int(first) > int(last):
            raise UserError(f"{text}: the range is reversed; give {match['contig']}:{last}-{first}")
        text = f"{_contig(genome, match['contig'])}:{first}-{last}"
    else:
        text = _contig(genome, text)
    interval = genome.place(text, 0, max(genome.reference.contig_lengths_bp.values()))
    shown = interval.to_region() if match else text
    return Detected("region", shown, genome, interval, _first_gene(genome, interval))


def _read_row(text: str, genome: Genome, paste: object, gene: str) -> Detected:
    match = _ROW.fullmatch(text)
    assert match is not None
    if "," in match["alt"]:
        raise UserError(f"{text}: has several ALT alleles; give one of {match['alt']}")
    return _at(genome, match["contig"], match["position"], match["ref"], match["alt"])


def _read_genomic(text: str, genome: Genome, paste: object, gene: str) -> Detected:
    match = _GENOMIC.fullmatch(text)
    if match is None or not _contig(genome, match["contig"]):
        return _detected(genome, genome.variant(text))  # whose message names the wrong letter
    return _at(genome, *match.group("contig", "position", "ref", "alt"))


def _at(genome: Genome, contig: str | None, position: str, ref: str, alt: str) -> Detected:
    place = f"{_contig(genome, contig)}:{position.replace(',', '')}"
    return _detected(genome, genome.variant(f"{place} {ref.upper()}>{alt.upper()}"))


def _read_coding(text: str, genome: Genome, paste: object, gene: str) -> Detected:
    match = _CODING.fullmatch(text)
    assert match is not None
    own, name = gene_named(genome, match["gene"]), _spelled_name(genome, match["gene"])
    change = match["change"].replace(" ", "").lower()
    return _detected(genome, genome.variant(f"{name}:{change}"), own)


def _read_protein_change(text: str, genome: Genome, paste: object, gene: str) -> Detected:
    match = _PROTEIN.fullmatch(text)
    assert match is not None
    name, change = match["of"] or match["gene"] or gene, read_change(match["change"])
    assert change is not None
    if not name:
        raise UserError(f"{text}: in which gene? give GENE {text}")
    own, spelled = gene_named(genome, name), _spelled_name(genome, name)
    assert genome.annotation is not None  # it has the gene

    def variant_in(transcript: Transcript) -> Variant:
        return variant_of_change(genome, own, transcript, change)

    return _detected(genome, same_variant(text, spelled, genome.annotation, variant_in), own)


def _detected(genome: Genome, variant: Variant, gene: Gene | None = None) -> Detected:
    gene = gene or _first_gene(genome, variant.interval)
    return Detected("variant", variant.to_text(), genome, variant.interval, gene, variant)


def _first_gene(genome: Genome, interval: Interval) -> Gene | None:
    return next(iter(genome.genes_in(interval)), None)


def _read_rsid(text: str, genome: Genome, paste: object, gene: str) -> Detected:
    raise UserError(f"{text}: has no place here; give the row of a VCF, or contig:position REF>ALT")


def _read_pasted(text: str, genome: Genome, paste: Callable[[str], Genome], gene: str) -> Detected:
    kind: InputKind = "genbank" if text.startswith("LOCUS") else "fasta" if ">" in text else "bases"
    if kind != "genbank":
        check_is_dna(text)
    pasted = paste(text)
    own = next(iter(pasted.annotation.genes), None) if pasted.annotation else None
    lengths_bp = pasted.reference.contig_lengths_bp
    first = next(iter(lengths_bp))
    interval = (
        own.interval.widened(0, lengths_bp[own.interval.contig])
        if own
        else Interval(first, 0, lengths_bp[first])
    )
    return Detected(kind, text, pasted, interval, own)


_Reader = Callable[[str, Genome, Callable[[str], Genome], str], Detected]
# The first form that matches wins.
_FORMS: tuple[tuple[Callable[[str, Genome], object], _Reader], ...] = (
    (lambda text, _: text.startswith(("LOCUS", ">")), _read_pasted),
    (lambda text, genome: text.casefold() in _names(genome), _read_gene),
    (lambda text, genome: text.casefold() in contig_aliases(genome.reference.contig_lengths_bp),
     _read_region),
    (lambda text, _: _REGION.fullmatch(text), _read_region),
    (lambda text, _: _ROW.fullmatch(text), _read_row),
    (lambda text, _: _CODING.fullmatch(text), _read_coding),
    (lambda text, _: _PROTEIN.fullmatch(text), _read_protein_change),
    (lambda text, _: _RSID.fullmatch(text), _read_rsid),
    (_are_letters, _read_pasted),
    (lambda text, _: re.search(r"\d", text) and re.search(r"[:>]", text), _read_genomic),
    (lambda text, _: _GENOMIC.fullmatch(text), _read_genomic),
)  # fmt: skip
