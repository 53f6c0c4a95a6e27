"""Variants as text: what is written is read back, and other ways to write one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import GenomeError, TypedError
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


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("", 0, "letter 1: it ends where a contig"),
        ("chr1", 4, "letter 5: it ends where a position"),
        ("chr1:0 A>T", 5, "letter 6: '0' stands where a position"),
        ("chr1:x A>T", 5, "letter 6: 'x' stands where a position"),
        ("chr1:5 ?>T", 7, "letter 8: '.' stands where REF"),
        ("chr1:5 A", 8, "letter 9: it ends where > and ALT"),
        ("chr1:5 A>", 9, "letter 10: it ends where ALT"),
        ("chr1:5 A>T,G", 10, "letter 11: ',' stands where nothing more"),
        ("HLA-A*01:01:5 A>", 16, "letter 17: it ends where ALT"),
    ],
)
def test_the_first_wrong_letter_is_named(text, at, message):
    with pytest.raises(TypedError, match=message) as raised:
        Variant.parse(text)
    assert raised.value.at == at and "\n" not in str(raised.value)
