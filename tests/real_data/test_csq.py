"""Consequences of 18,000 random variants against `bcftools csq`, with all agreed differences."""

import gzip
import shutil
from collections import Counter, defaultdict

import pytest
from Bio.Seq import Seq

from carbon.genome import (
    Effect,
    Interval,
    Reference,
    Transcript,
    Variant,
    effect_on,
    read_annotation,
    reverse_complement,
    spliced,
)
from carbon.genome.consequence_terms import TERMS
from carbon.genome.consequences import trimmed
from tests.helpers.csq import SPLICE_REGION, Terms, called, drawn, gff3_of_gtf, gff3_of_region

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed"),
]
EACH = 2000  # variants of a kind
NON_CODING = "non_coding_transcript_exon_variant"
BY_GENE = ("intron_variant", NON_CODING)
UTRS = ("5_prime_UTR_variant", "3_prime_UTR_variant")
INDELS = ("frameshift_variant", "inframe_insertion", "inframe_deletion")
START_BP = 3
SPLICE_SITE_BP, SPLICE_REGION_BP = 2, 8

# Conventions in which csq differs. The lab book (variants and scans, 2026-11-28) has this table.
AGREED = {
    "by gene": "csq reports introns and non-coding exons once for a gene, and only where it has "
    "nothing else to report of the gene; introns of a transcript without CDS are non_coding too",
    "without CDS": "csq reports a transcript without CDS by its gene alone, and no splice sites",
    "without UTR": "csq knows a UTR only by its lines; here it is what of an exon is not CDS",
    "start codon": "csq calls an indel in or right after the start codon start_lost alone, also "
    "where the frame shifts or the bases at the start are ATG still",
    "frame shift": "csq adds stop_gained to a frameshift in a CDS that has no stop codon itself",
    "stop codon kept": "csq adds inframe_insertion or inframe_deletion to stop_retained",
    "edge": "an indel that touches an edge of an exon, a CDS or a splice region, or could as well "
    "be written so: csq moves it to the exon, the UTR or the splice site; here it stays where it "
    "is written, and has no consequence, or coding_sequence_variant, where it lies across the edge",
    "protein": "csq writes a protein that is not that of the changed CDS",
}
# Which of them are there, by the kind of variant.
OF_SNVS = {"by gene", "without CDS", "without UTR"}


def yeast(data, folder):
    fasta, gff3 = folder / "g.fa", folder / "g.gff3"
    names = "Saccharomyces_cerevisiae.R64-1-1"
    with gzip.open(data / "yeast" / f"{names}.dna.toplevel.fa.gz") as bases:
        fasta.write_bytes(bases.read())
    gtf = data / "yeast" / f"{names}.96.gtf.gz"
    reference = Reference(fasta)
    nuclear = [name for name in reference.contig_lengths_bp if name != "Mito"]
    gff3_of_gtf(gtf, gff3, set(nuclear))  # csq has the standard code alone
    places = [Interval(name, 0, reference.contig_lengths_bp[name]) for name in nuclear]
    return fasta, gff3, reference, read_annotation(gtf, reference), places


def human9(data, folder):
    """Its CDS begin in all three phases."""
    fasta, gff3 = folder / "g.fa", folder / "g.gff3"
    with gzip.open(data / "human_chr9" / "GRCh38.chr9_1_1000000.fa.gz") as bases:
        fasta.write_bytes(bases.read())
    gtf = data / "human_chr9" / "GRCh38.91.chr9_1_1000000.gtf.gz"
    reference = Reference(fasta)
    gff3_of_gtf(gtf, gff3, set(reference.contig_lengths_bp))
    annotation = read_annotation(gtf, reference)
    return fasta, gff3, reference, annotation, around_exons(annotation)


def around_exons(annotation):
    transcripts = (t for gene in annotation.genes for t in gene.transcripts)
    exons = {(t.contig, *span) for t in transcripts for span in t.exons}
    return [Interval(contig, start - 10, end + 10) for contig, start, end in sorted(exons)]


def human21(data, folder):
    fasta, gff3, first = folder / "g.fa", folder / "g.gff3", 24_985_581
    source = data / "human_chr21" / f"GRCh38.chr21_{first}_26000306.fa.gz"
    with gzip.open(source, "rt") as bases:
        fasta.write_text(">c21\n" + bases.read().split("\n", 1)[1])
    reference = Reference(fasta)
    ensembl, offset_bp = data / "human_chr21" / "ensembl.gff3.gz", first - 1
    gff3_of_region(ensembl, gff3, "c21", offset_bp, reference.contig_lengths_bp["c21"])
    given = {"contig_names": {"21": "c21"}, "offset_bp": offset_bp}
    annotation = read_annotation(ensembl, reference, **given)
    return fasta, gff3, reference, annotation, around_exons(annotation)


@pytest.mark.parametrize("kind", ["snv", "insertion", "deletion"])
@pytest.mark.parametrize("genome", [yeast, human9, human21])
def test_every_variant_as_csq_or_as_agreed(real_data, tmp_path, genome, kind):
    fasta, gff3, reference, annotation, places = genome(real_data, tmp_path)
    near = transcripts_by_place(annotation)
    lines = (line for line in gff3.read_text().splitlines() if "_prime_UTR\t" in line)
    with_utrs = {line.rpartition("Parent=transcript:")[2] for line in lines}
    variants = drawn(reference, places, kind, EACH, seed=0)
    equal, agreed, others = Counter(), Counter(), []
    ways, phases, wrong_genes = set(), Counter(), []
    for variant, told in called(tmp_path, fasta, gff3, variants, reference.contig_lengths_bp):
        wrong_genes += wrong_by_gene(reference, near(variant), variant, told)
        for transcript, _ in near(variant):
            ours = effect_on(reference, transcript, variant)
            phases.update([transcript.phase_bp] if ours and ours.codon else [])
            theirs = told.get(transcript.transcript_id, frozenset())
            if not ours and not theirs:
                continue
            if ours and is_equal(ours, theirs):
                equal[ours.term] += 1
                ways.add((transcript.strand, transcript.phase_bp, ours.term))
            elif name := agreed_difference(reference, transcript, variant, ours, theirs, with_utrs):
                agreed[name, ours.term if ours else None, *sorted(theirs)] += 1
            else:
                others.append((variant.to_text(), transcript.transcript_id, ours, sorted(theirs)))
    print(f"\n{genome.__name__} {kind}: {equal.total()} equal: {equal.most_common()} {phases}")
    for difference, number in agreed.most_common():
        print(f"  {number} {difference}")
    assert not others, others[:5]
    assert not wrong_genes, wrong_genes[:5]
    assert {name for name, *_ in agreed} <= AGREED.keys()
    assert equal.total() > 1000 and {strand for strand, *_ in ways} == {"+", "-"}
    if kind == "snv":
        assert {name for name, *_ in agreed} <= OF_SNVS


def transcripts_by_place(annotation):
    """Return what finds the transcripts near a variant."""
    bins = defaultdict(list)
    for gene in annotation.genes:
        for number in range(gene.interval.start >> 14, (gene.interval.end >> 14) + 1):
            bins[gene.interval.contig, number] += [(t, gene) for t in gene.transcripts]

    def near(variant):
        first, last = variant.position - 20, variant.position + len(variant.ref) + 20
        found = {
            t.transcript_id: (t, gene)
            for at in (first, last)
            for t, gene in bins[variant.contig, at >> 14]
            if t.exons[0][0] < last and first < t.exons[-1][1]
        }
        return found.values()

    return near


def wrong_by_gene(reference, near, variant, told):
    """Return the genes for which csq reports an intron or an exon that no transcript here has."""
    wrong = []
    by_name = defaultdict(set)
    for transcript, gene in near:
        effect = effect_on(reference, transcript, variant)
        # A variant across the edge of an exon has no term here, and is in neither part for sure.
        terms = {effect.term} if effect else set(BY_GENE)
        if effect and effect.term.startswith("splice_"):
            terms |= set(BY_GENE)
        if not transcript.cds:  # csq calls its introns non-coding too
            terms.add(NON_CODING)
        for name in (gene.gene_id, gene.name):
            by_name[f"gene:{name}"] |= terms
    for name, terms in told.items():
        if name.startswith("gene:") and not terms <= by_name[name] | {SPLICE_REGION}:
            wrong.append((variant.to_text(), name, sorted(terms), sorted(by_name[name])))
    return wrong


def is_equal(ours: Effect, theirs: Terms) -> bool:
    known = [term for term in TERMS if term in theirs]
    return bool(known) and ours.term == known[0]


def agreed_difference(
    reference: Reference,
    transcript: Transcript,
    variant: Variant,
    ours: Effect | None,
    theirs: Terms,
    with_utrs: set[str],
) -> str | None:
    """Return which of the agreed differences this is."""
    term = ours.term if ours else None
    if not theirs and (term in BY_GENE or not transcript.cds):
        return "by gene" if term in BY_GENE else "without CDS"
    if not theirs and term in UTRS and transcript.transcript_id not in with_utrs:
        return "without UTR"
    if term == "stop_retained_variant" and term in theirs:
        return "stop codon kept"
    if len(variant.ref) == len(variant.alt):
        return None
    if theirs == {"start_lost"} and term in INDELS and ours.codon <= 2:
        return "start codon"
    if theirs == {"frameshift_variant", "stop_gained"} and not ends_with_stop(
        reference, transcript
    ):
        return "frame shift" if term == "frameshift_variant" else None
    reach_bp = SPLICE_REGION_BP if SPLICE_REGION in {term, *theirs} else SPLICE_SITE_BP
    if touches_edge(reference, transcript, variant, reach_bp):
        return "edge"
    return "protein" if term == term_of_protein(reference, transcript, variant) else None


def ends_with_stop(reference: Reference, transcript: Transcript) -> bool:
    cds = spliced(reference, transcript.contig, transcript.cds, transcript.strand).upper()
    return not transcript.leftover_bp and cds[-3:] in ("TAA", "TAG", "TGA")


def touches_edge(
    reference: Reference, transcript: Transcript, variant: Variant, reach_bp: int
) -> bool:
    """Return whether an indel is within a distance of an edge, wherever it is written."""
    first, last, alt = trimmed(variant)
    bases = reference.fetch(Interval(variant.contig, first - 40, last + 40)).upper()
    moved = alt or bases[40 : 40 + last - first]
    left = right = 0  # how far it may be moved
    while left < 40 and (moved * 50)[-1 - left] == bases[39 - left]:
        left += 1
    behind = bases[40 + (last - first) :]
    while right < 40 and (moved * 50)[right] == behind[right]:
        right += 1
    edges = {at for span in (*transcript.exons, *transcript.cds) for at in span}
    return any(first - left - reach_bp <= edge <= last + right + reach_bp for edge in edges)


def term_of_protein(reference: Reference, transcript: Transcript, variant: Variant) -> str:
    """Return what an indel inside of an exon does, by the two whole proteins."""
    start, end, alt = trimmed(variant)
    parts = [n for n, (a, b) in enumerate(transcript.cds) if a <= start and end <= b]
    if len(parts) != 1:
        return ""
    part = parts[0]
    pieces = [reference.fetch(Interval(variant.contig, a, b)) for a, b in transcript.cds]
    first = transcript.cds[part][0]
    pieces[part] = pieces[part][: start - first] + alt + pieces[part][end - first :]
    changed = "".join(pieces).upper()
    changed = changed if transcript.strand == "+" else reverse_complement(changed)
    cds = spliced(reference, variant.contig, transcript.cds, transcript.strand).upper()
    if (len(changed) - len(cds)) % 3:
        return "frameshift_variant"
    kept = slice(transcript.phase_bp, len(cds) - transcript.leftover_bp)
    old = str(Seq(cds[kept]).translate())
    new = str(Seq(changed[transcript.phase_bp : len(changed) - transcript.leftover_bp]).translate())
    if old.endswith("*") and "*" not in new:
        return "stop_lost"
    if new.find("*") not in (-1, len(new) - 1) or (new.endswith("*") and not old.endswith("*")):
        return "stop_gained"
    if not transcript.phase_bp and transcript.has_start and changed[:START_BP] != "ATG":
        return "start_lost"
    return "inframe_insertion" if len(new) > len(old) else "inframe_deletion"
