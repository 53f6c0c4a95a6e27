"""Effects and consequences, against genes whose codons are known by construction."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import (
    Consequence,
    Consequences,
    Effect,
    Reference,
    Variant,
    effect_on,
    read_gene_file,
    reverse_complement,
    snv_effect,
)
from carbon.genome.consequence_terms import SEVERITY_RANKS, TERMS, VOCABULARY_VERSION
from carbon.genome.normalize import normalize_variant
from tests.helpers.coding import as_genbank, as_gff3, as_gtf, build_gene, translated
from tests.helpers.files import place_gene, write_fasta

FORMATS = {"gff3": as_gff3, "gtf": as_gtf, "gb": as_genbank}


def read_built(folder, gene, text, ending="gff3"):
    path = folder / f"genes.{ending}"
    path.write_text(text)
    reference = Reference(write_fasta(folder / "g.fa", {"c1": gene.contig}))
    (found,) = read_gene_file(path, reference).genes
    (transcript,) = found.transcripts
    return reference, transcript


def snvs(gene):
    """Yield index, letter as the strand reads it, and the variant of the contig."""
    for index, base in enumerate(gene.bases):
        for letter in sorted(set("ACGT") - {base.letter}):
            ref, alt = base.letter, letter
            if gene.strand == "-":
                ref, alt = reverse_complement(ref), reverse_complement(alt)
            yield index, letter, Variant("c1", gene.position(index), ref, alt)


SPLICE_REGION = "splice_region_variant"
# What VEP ranks below a splice region, of the terms of an SNV.
LESS_SEVERE = {
    "incomplete_terminal_codon_variant", "start_retained_variant", "stop_retained_variant",
    "synonymous_variant", "coding_sequence_variant", "5_prime_UTR_variant", "3_prime_UTR_variant",
    "intron_variant",
}  # fmt: skip


def is_in_splice_region(gene, index):
    """Walk from a base to the edges on both sides: SO:0001630, written out."""
    is_intron = gene.bases[index].kind == "intron"
    for step in (-1, 1):
        at, distance_bp = index, 0
        while 0 <= at < len(gene.bases) and (gene.bases[at].kind == "intron") == is_intron:
            at, distance_bp = at + step, distance_bp + 1
        is_edge = 0 <= at < len(gene.bases)
        if is_edge and distance_bp in (range(3, 9) if is_intron else range(1, 4)):
            return True
    return False


def expected_effect(gene, index, letter, *, has_start):
    effect = effect_without_regions(gene, index, letter, has_start=has_start)
    if effect.term in LESS_SEVERE and is_in_splice_region(gene, index):
        return effect._replace(term=SPLICE_REGION)
    return effect


def effect_without_regions(gene, index, letter, *, has_start):
    base = gene.bases[index]
    if base.kind == "intron":
        first = last = index
        while gene.bases[first - 1].kind == "intron":
            first -= 1
        while gene.bases[last + 1].kind == "intron":
            last += 1
        if index < first + 2:
            return Effect("splice_donor_variant")
        return Effect("splice_acceptor_variant" if index > last - 2 else "intron_variant")
    plain = {"utr5": "5_prime_UTR_variant", "utr3": "3_prime_UTR_variant",
             "partial5": "coding_sequence_variant",
             "partial3": "incomplete_terminal_codon_variant"}  # fmt: skip
    if base.kind in plain:
        return Effect(plain[base.kind])
    changed = list(gene.bases)
    changed[index] = base._replace(letter=letter)
    n = base.codon
    before, after = translated(gene.bases)[n], translated(changed)[n]
    term = "synonymous_variant" if before == after else "missense_variant"
    if n == 11 and not gene.leftover_bp:
        term = "stop_retained_variant" if after == "*" else "stop_lost"
    elif after == "*":
        term = "stop_gained"
    elif n == 0 and has_start:
        term = "start_lost"
    codons = "/".join(
        "".join(b.letter for b in bases if b.codon == n) for bases in (gene.bases, changed)
    )
    return Effect(term, n + 1, codons, before if before == after else f"{before}/{after}")


WAYS = [
    (strand, phase_bp, leftover_bp, [*FORMATS][(phase_bp + leftover_bp + (strand == "-")) % 3])
    for strand, phase_bp, leftover_bp in product("+-", range(3), range(3))
]
"""Each format with each strand, phase and leftover."""


def test_every_snv_in_every_phase_of_both_strands_and_all_ends(tmp_path):
    terms = set()
    for seed, (strand, phase_bp, leftover_bp, ending) in enumerate(WAYS):
        gene = build_gene(seed, strand, phase_bp, leftover_bp)
        reference, transcript = read_built(tmp_path, gene, FORMATS[ending](gene), ending)
        assert transcript.phase_bp == phase_bp and transcript.leftover_bp == leftover_bp
        assert transcript.has_start == (phase_bp == 0)
        for index, letter, variant in snvs(gene):
            found = effect_on(reference, transcript, variant)
            assert found == expected_effect(gene, index, letter, has_start=phase_bp == 0), variant
            terms.add(found.term)
            short = snv_effect(reference, transcript, variant)
            if found.codon is None and "splice" not in found.term:
                assert short is None
                continue
            before, _, after = found.amino_acids.partition("/")
            assert short == (found.term, f"{before}{found.codon or ''}{after or before}")
    assert terms == set(TERMS) - {
        "transcript_ablation", "frameshift_variant", "inframe_insertion", "inframe_deletion",
        "protein_altering_variant", "start_retained_variant", "intergenic_variant",
        "non_coding_transcript_exon_variant",
    }  # fmt: skip


@pytest.mark.parametrize("strand", ["+", "-"])
@pytest.mark.parametrize(
    ("mark", "has_start", "told"),
    [
        (";partial=true", "", True),
        (";tag=basic,cds_start_NF", "", True),
        (";tag=basic,cds_end_NF", "+-", True),
        (";exception=RNA editing", "+-", False),
    ],
)
def test_marks_of_the_ends_decide_on_the_lost_start(tmp_path, strand, mark, has_start, told):
    """`has_start` of the table: the strands on which the start codon is one."""
    gene = build_gene(3, strand, 0, 0)
    reference, transcript = read_built(tmp_path, gene, as_gff3(gene, mark))
    assert transcript.incomplete
    for index, letter, variant in snvs(gene):
        expected = expected_effect(gene, index, letter, has_start=strand in has_start)
        if not told and expected.codon:
            in_region = is_in_splice_region(gene, index)
            expected = Effect(SPLICE_REGION if in_region else "coding_sequence_variant")
        assert effect_on(reference, transcript, variant) == expected


def test_a_partial_start_without_a_phase_has_no_codons(tmp_path):
    gene = build_gene(3, "+", 0, 0)
    text = as_gff3(gene, ";tag=cds_start_NF").replace("\t+\t0\t", "\t+\t.\t")
    _, transcript = read_built(tmp_path, gene, text)
    assert transcript.phase_bp is None and transcript.incomplete
    # But the CDS of a messenger that is partial may be whole.
    text = as_gff3(gene).replace("ID=t1;", "ID=t1;partial=true;start_range=.,9;")
    _, transcript = read_built(tmp_path, gene, text)
    assert not transcript.incomplete and transcript.has_start


def placed(folder, more_lines="", contigs=("c1", "c2")):
    """Return the bases, the reference and the consequences of the gene of `place_gene`."""
    bases, gff3, _ = place_gene()
    (folder / "g.gff3").write_text(gff3 + more_lines)
    reference = Reference(write_fasta(folder / "g.fa", dict.fromkeys(contigs, bases)))
    return bases, reference, Consequences(reference, read_gene_file(folder / "g.gff3", reference))


def slow_term(gene, first, last, alt):
    """Tell what happens to the whole protein where bases of one part of the CDS are replaced."""
    bases = gene.bases
    inserted = [replace_kind(bases[first - 1], letter) for letter in alt]
    if (len(alt) - (last - first)) % 3:
        return "frameshift_variant"
    old_cds = "".join(b.letter for b in bases if b.kind == "cds")
    changed = [*bases[:first], *inserted, *bases[last:]]
    new_cds = "".join(b.letter for b in changed if b.kind == "cds")
    old, new = translated(bases), translated(changed)
    complete = not gene.leftover_bp
    stop_touched = complete and last > max(i for i, b in enumerate(bases) if b.kind == "cds") - 2
    if complete and "*" not in new:
        return "stop_lost"
    if stop_touched and new.split("*")[0] == old[:-1]:
        return "stop_retained_variant"
    if "*" in new[:-1] or (not complete and "*" in new):
        return "stop_gained"
    if not gene.phase_bp and new_cds[:3] != "ATG":
        return "start_lost"
    assert new_cds != old_cds
    if len(alt) == last - first:
        return "synonymous_variant" if old == new else "missense_variant"
    if alt and first < last:
        return "protein_altering_variant"
    return "inframe_insertion" if alt else "inframe_deletion"


def replace_kind(base, letter):
    return base._replace(letter=letter, kind="cds", codon=None)


@settings(max_examples=100)
@given(st.data())
def test_changes_of_several_bases_against_the_whole_protein(tmp_path_factory, data):
    strand, phase_bp, leftover_bp = (
        data.draw(st.sampled_from(each)) for each in ("+-", range(3), range(3))
    )
    gene = build_gene(data.draw(st.integers(0, 4)), strand, phase_bp, leftover_bp)
    folder = tmp_path_factory.mktemp("built")
    reference, transcript = read_built(folder, gene, as_gff3(gene))
    kinds = [base.kind for base in gene.bases]
    inside = [i for i in range(1, len(kinds)) if kinds[i - 1] == kinds[i] == "cds"]
    first = data.draw(st.sampled_from(inside))
    most = next(n for n in range(1, 99) if kinds[first + n : first + n + 1] != ["cds"])
    last = first + data.draw(st.integers(0, min(most, 9)))
    ref = "".join(base.letter for base in gene.bases[first:last])
    alt = data.draw(st.text("ACGT", min_size=0, max_size=9))
    # Bases at the ends that stay are no part of the change.
    while ref and alt and ref[-1] == alt[-1]:
        ref, alt, last = ref[:-1], alt[:-1], last - 1
    while ref and alt and ref[0] == alt[0]:
        ref, alt, first = ref[1:], alt[1:], first + 1
    if ref == alt or (first == last and first not in inside):
        return
    # As a VCF writes it: with the base before, on the forward strand.
    position = gene.position(first) if strand == "+" else gene.position(last) + 1
    if strand == "-":
        ref, alt = reverse_complement(ref), reverse_complement(alt)
    anchor = gene.contig[position - 1]
    variant = Variant("c1", position - 1, anchor + ref, anchor + alt)
    found = effect_on(reference, transcript, variant)
    if on_the_line(variant) != (position, ref, alt):
        return  # in a repeat the record's own place is another than the drawn one
    read = alt if strand == "+" else reverse_complement(alt)
    expected = slow_term(gene, first, last, read)
    touched = range(first, last) if ref else (first - 1, first)
    in_region = (any if ref else all)(is_in_splice_region(gene, index) for index in touched)
    if on_the_line(normalize_variant(reference, variant))[0] != position:
        assert found.term in (expected, SPLICE_REGION)  # in a repeat, its place is further left
    else:
        assert found.term == (SPLICE_REGION if in_region and expected in LESS_SEVERE else expected)


def on_the_line(variant):
    """Take off what REF and ALT share, the last base first."""
    ref, alt, start = variant.ref, variant.alt, variant.position
    while ref and alt and ref[-1] == alt[-1]:
        ref, alt = ref[:-1], alt[:-1]
    while ref and alt and ref[0] == alt[0]:
        ref, alt, start = ref[1:], alt[1:], start + 1
    return start, ref, alt


# place_gene forward: exons 100-160 and 220-280 (0-based), CDS 109-160 and 220-241, intron 160-220.
PLACES = [
    (99, 1, "+C", Consequence("ABC")),  # inserted between what is no gene and the first exon
    (50, 5, "A", Consequence(consequence="intergenic_variant")),
    (102, 3, "", Consequence("ABC", "t1", "5_prime_UTR_variant")),
    (106, 6, "", Consequence("ABC", "t1", "coding_sequence_variant")),  # UTR and start codon
    (156, 6, "", Consequence("ABC", "t1", "splice_donor_variant")),
    (158, 70, "", Consequence("ABC", "t1", "splice_acceptor_variant")),
    (170, 9, "", Consequence("ABC", "t1", "intron_variant")),
    (167, 9, "", Consequence("ABC", "t1", "splice_region_variant")),  # from base 8 of the intron
    (205, 8, "", Consequence("ABC", "t1", "splice_region_variant")),  # to base 8 from its end
    (204, 8, "", Consequence("ABC", "t1", "intron_variant")),
    (245, 2, "ACC", Consequence("ABC", "t1", "3_prime_UTR_variant")),
    # The last codon and the stop codon, CAA TAA: the one that stays a stop gains none.
    (237, 4, "TTAG", Consequence("ABC", "t1", "missense_variant", 23, "CAATAA/CATTAG", "Q*/H*")),
    (235, 6, "TAATAG", Consequence("ABC", "t1", "stop_gained", 23, "CAATAA/TAATAG", "Q*/**")),
    (90, 200, "", Consequence("ABC", "t1", "transcript_ablation")),
    (112, 1, "<DEL>", Consequence()),
    (112, 1, "N", Consequence()),
]


def test_places_and_what_lies_across_their_edges(tmp_path):
    bases, _, consequences = placed(tmp_path)
    for position, ref_bp, alt, expected in PLACES:
        ref = bases[position : position + ref_bp]
        variant = Variant("c1", position, ref, alt.replace("+", ref))
        if not alt:
            before = bases[position - 1]
            variant = Variant("c1", position - 1, before + ref, before)
        assert consequences.of(variant) == expected
    # Of a contig on which the annotation has nothing, nothing is known.
    assert consequences.of(Variant("c2", 50, bases[50], "A" + bases[50])) == Consequence()


def test_the_most_severe_of_several_transcripts_is_written(tmp_path):
    more = "".join(
        f"c1\tx\t{kind}\t{start}\t{end}\t.\t-\t.\t{attributes}\n"
        for kind, start, end, attributes in (
            ("gene", 90, 300, "ID=g0;Name=OTHER"),
            ("ncRNA", 90, 300, "ID=t0;Parent=g0"),
            ("exon", 90, 300, "Parent=t0"),
            ("gene", 320, 330, "ID=g9;Name=EMPTY"),
        )
    )
    bases, _, consequences = placed(tmp_path, more)
    found = {p: consequences.of(Variant("c1", p, bases[p], other(bases[p]))) for p in range(400)}
    assert found[95] == ("OTHER", "t0", "non_coding_transcript_exon_variant", None, None, None)
    assert found[170][:3] == ("OTHER", "t0", "non_coding_transcript_exon_variant")
    assert found[105][:3] == ("ABC", "t1", "5_prime_UTR_variant")
    assert found[110] == ("ABC", "t1", "start_lost", 1, "ATG/A" + other("T") + "G", "M/R")
    assert found[325] == Consequence("EMPTY")
    assert found[340] == Consequence(consequence="intergenic_variant")


def test_an_insertion_between_exon_and_intron_is_in_the_splice_region(tmp_path):
    bases, reference, consequences = placed(tmp_path)
    for edge, within in ((160, range(-2, 8)), (220, range(-7, 3))):
        for offset in range(-12, 13):
            at = edge + offset  # inserted between the bases at - 1 and at
            variant = Variant("c1", at - 1, bases[at - 1], bases[at - 1] + other(bases[at - 1]))
            if normalize_variant(reference, variant) != variant:
                continue
            term = consequences.of(variant).consequence
            is_site = offset == (1 if edge == 160 else -1)
            assert term.startswith("splice_") == (offset in within) or term == "frameshift_variant"
            assert (term in ("splice_donor_variant", "splice_acceptor_variant")) == is_site


def other(base):
    return "ACGT"["ACGT".index(base) - 1]


def test_a_gene_over_the_origin(tmp_path):
    gene = build_gene(1, "+", 0, 0)
    turn = len(gene.flank[0]) + 20
    turned = gene.contig[turn:] + gene.contig[:turn]
    length_bp = len(turned)

    def moved(line):
        columns = line.split("\t")
        if len(columns) == 9:
            columns[3:5] = [str(int(c) - turn + length_bp) for c in columns[3:5]]
        return "\t".join(columns)

    shifted = "".join(moved(line) for line in as_gff3(gene).splitlines(keepends=True))
    region = f"c1\tx\tregion\t1\t{length_bp}\t.\t+\t.\tID=r;Is_circular=true\n"
    (tmp_path / "g.gff3").write_text(shifted + region)
    reference = Reference(write_fasta(tmp_path / "g.fa", {"c1": turned}))
    consequences = Consequences(reference, read_gene_file(tmp_path / "g.gff3", reference))
    for index, letter, variant in snvs(gene):
        there = replace(variant, position=(variant.position - turn) % length_bp)
        expected = expected_effect(gene, index, letter, has_start=True)
        filled = (part or None for part in expected)
        assert consequences.of(there) == Consequence("ABC", "t1", *filled)


def test_a_genbank_of_another_reference_is_refused(tmp_path):
    gene = build_gene(1, "+", 0, 0)
    (tmp_path / "g.gb").write_text(as_genbank(gene))
    for contigs, message in (
        ({"c1": gene.contig + "A"}, "record 'c1' has"),
        ({"c2": gene.contig}, "no contig 'c1'"),
    ):
        reference = Reference(write_fasta(tmp_path / "g.fa", contigs))
        with pytest.raises(GenomeError, match=message):
            read_gene_file(tmp_path / "g.gb", reference)


def test_every_term_is_in_the_table_once_with_its_accession():
    assert list(SEVERITY_RANKS.values()) == list(range(len(TERMS)))
    accessions = [term.accession for term in TERMS.values()]
    assert len(set(accessions)) == len(TERMS)
    assert all(name == term.name for name, term in TERMS.items())
    # A change of the table is a new version: backgrounds of the old one are refused.
    assert (VOCABULARY_VERSION, len(TERMS)) == (2, 22)


@pytest.mark.parametrize(("in_file", "in_fasta"), [("MT", "NC_012920.1"), ("NC_012920.1", "MT")])
def test_the_code_of_a_mitochondrion_is_another(tmp_path, in_file, in_fasta):
    """Whichever side calls it one."""
    bases, gff3, _ = place_gene()
    (tmp_path / "g.gff3").write_text(gff3.replace("c1\t", f"{in_file}\t"))
    reference = Reference(write_fasta(tmp_path / "g.fa", {in_fasta: bases}))
    genes = read_gene_file(tmp_path / "g.gff3", reference, {in_file: in_fasta})
    found = Consequences(reference, genes).of(Variant(in_fasta, 112, bases[112], "C"))
    assert found == Consequence("ABC", "t1", "coding_sequence_variant")
