"""Variants as text, and the effects of SNVs, told by translating the changed contig anew."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import (
    Reference,
    Variant,
    read_annotation,
    reverse_complement,
    snv_effect,
    spliced,
    translate,
)
from tests.helpers.files import place_gene, write_fasta


def read_gene(folder, strand):
    bases, gff3, _ = place_gene(strand)
    (folder / "g.gff3").write_text(gff3)
    reference = Reference(write_fasta(folder / "g.fa", {"c1": bases}))
    (gene,) = read_annotation(folder / "g.gff3", reference).genes
    return bases, reference, gene.transcripts[0]


@pytest.mark.parametrize("strand", ["+", "-"])
def test_every_snv_of_a_gene(tmp_path, strand):
    bases, reference, transcript = read_gene(tmp_path, strand)
    protein = translate(spliced(reference, "c1", transcript.cds, strand))
    coding = {p for start, end in transcript.cds for p in range(start, end)}
    ((intron_start, intron_end),) = transcript.introns
    edges = {intron_start, intron_start + 1}, {intron_end - 2, intron_end - 1}
    donor, acceptor = edges if strand == "+" else edges[::-1]
    terms = set()
    for position, ref in enumerate(bases):
        for alt in set("ACGT") - {ref}:
            effect = snv_effect(reference, transcript, Variant("c1", position, ref, alt))
            if position in donor | acceptor:
                assert effect == (
                    f"splice_{'donor' if position in donor else 'acceptor'}_variant",
                    "",
                )
            elif position not in coding:
                assert effect is None
            else:
                text = bases[:position] + alt + bases[position + 1 :]
                cds = "".join(text[start:end] for start, end in transcript.cds)
                changed = translate(cds if strand == "+" else reverse_complement(cds))
                differ = [n for n in range(24) if changed[n] != protein[n]]
                terms.add(effect.term)
                if not differ:
                    assert effect.term in ("synonymous_variant", "stop_retained_variant")
                    continue
                (n,) = differ
                assert effect.change == f"{protein[n]}{n + 1}{changed[n]}"
                expected = "stop_gained" if changed[n] == "*" else "missense_variant"
                expected = {0: "start_lost", 23: "stop_lost"}.get(n, expected)
                assert effect.term == expected
    assert terms == {
        "synonymous_variant", "missense_variant", "start_lost", "stop_gained", "stop_lost",
        "stop_retained_variant",
    }  # fmt: skip


def test_what_is_no_snv_of_the_transcript_has_no_effect(tmp_path):
    _, reference, transcript = read_gene(tmp_path, "+")
    for variant in (Variant("c1", 112, "T", "TA"), Variant("c2", 112, "T", "A")):
        assert snv_effect(reference, transcript, variant) is None


@given(
    st.text("ab:.|_-7", min_size=1),
    st.integers(0, 10**9),
    st.text("ACGTn", min_size=1),
    st.text("ACGTn", min_size=1),
)
def test_variants_are_read_as_they_are_written(contig, position, ref, alt):
    variant = Variant(contig, position, ref, alt)
    assert Variant.from_text(variant.to_text()) == variant


def test_variants_are_read_in_other_ways_too():
    expected = Variant("chr1", 1233, "A", "T")
    for text in ("chr1:1234 A>T", " chr1:1,234  A > T ", "chr1 1234 A T", "chr1\t1234\tA\tT"):
        assert Variant.from_text(text) == expected
    for text in ("chr1-1234-A-T", "chr1-1,234-A-T"):
        assert Variant.from_text(text) == expected
    # ALT of a VCF without bases of its own, and a contig with dashes and colons in its name.
    for alt in ("<DEL>", "*", ".", "A[chr2:3[", ".T"):
        assert Variant.from_text(f"chr1:5 A>{alt}") == Variant("chr1", 4, "A", alt)
        assert Variant.from_text(f"HLA-A*01:01:5 A>{alt}").why_unscorable() == "symbolic_allele"
    assert Variant.from_text("HLA-A-5-A-T") == Variant("HLA-A", 4, "A", "T")
    for wrong in ("", "chr1", "chr1:0 A>T", "chr1:5 A", "chr1:5 A>", "chr1:5 A>DEL>", "chr1:x A>T",
                  "chr1-5-A", "chr1:5 A>T,G", "chr1:" + "9" * 5000 + " A>T"):  # fmt: skip
        with pytest.raises(GenomeError, match="write it as contig:position REF>ALT"):
            Variant.from_text(wrong)
