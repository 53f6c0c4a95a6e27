"""Variants as text: what is written is read back, and other ways to write one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import Variant


@given(
    st.text("ab:.|_-7", min_size=1),
    st.integers(0, 10**9),
    st.text("ACGTn", min_size=1),
    st.text("ACGTn", min_size=1),
)
def test_variants_are_read_as_they_are_written(contig, position, ref, alt):
    variant = Variant(contig, position, ref, alt)
    assert Variant.parse(variant.to_text()) == variant


def test_variants_are_read_in_other_ways_too():
    expected = Variant("chr1", 1233, "A", "T")
    for text in ("chr1:1234 A>T", " chr1:1,234  A > T ", "chr1 1234 A T", "chr1\t1234\tA\tT"):
        assert Variant.parse(text) == expected
    for text in ("chr1-1234-A-T", "chr1-1,234-A-T", "chr1:1234:A:T"):
        assert Variant.parse(text) == expected
    # ALT of a VCF without bases of its own, and a contig with dashes and colons in its name.
    for alt in ("<DEL>", "*", ".", "A[chr2:3[", ".T"):
        assert Variant.parse(f"chr1:5 A>{alt}") == Variant("chr1", 4, "A", alt)
        assert Variant.parse(f"HLA-A*01:01:5 A>{alt}").why_unscorable() == "symbolic_allele"
    assert Variant.parse("HLA-A-5-A-T") == Variant("HLA-A", 4, "A", "T")
    for wrong in ("", "chr1", "chr1:0 A>T", "chr1:5 A", "chr1:5 A>", "chr1:5 A>DEL>", "chr1:x A>T",
                  "chr1-5-A", "chr1:5 A>T,G", "chr1:" + "9" * 5000 + " A>T"):  # fmt: skip
        with pytest.raises(GenomeError, match="write it as contig:position REF>ALT"):
            Variant.parse(wrong)
