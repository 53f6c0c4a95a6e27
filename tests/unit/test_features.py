"""Lines of GFF3 and GTF, read a column at a time and one by one: the same features or error."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome.gff import _by_columns, _by_lines, _gtf_attributes, read_features

# As GTF 2.2 has them: a key, and a value that is quoted or a number; or a key alone.
GTF_ATTRIBUTE = re.compile(r'\s*(\w+)(?: +(?:"([^"]*)"|([^";=\s][^";]*)))?\s*(?:;|$)')

STRANGE_POSITIONS = ["0", "", "+1", "1_0", " 2", "\u0661", "9" * 15, "9" * 16]
POSITIONS = st.sampled_from(["1", "7", "10", *STRANGE_POSITIONS])
TEXTS = st.one_of(
    st.sampled_from(
        [
            'gene_id "g"; transcript_id "t";',
            'gene_id "g"; exon_number 1; transcript_id "a; b \\"c";',
            "ID=a;Parent=b%2Cc,d;Note=x%3By",
            " ID = a ; Parent=b",
            'gene_id "x" y "z"',
            "",
        ]
    ),
    st.text(alphabet='ab_ ";=%2C', max_size=24),
)


def lines_of(positions):
    return st.tuples(
        st.sampled_from(["chr1", "a%20b", "", "#x"]),
        st.sampled_from(["gene", "CDS", ""]),
        positions,
        st.sampled_from(["+", "-", ".", "?"]),
        st.sampled_from(["0", "2", ".", "3", ""]),
        TEXTS,
    ).map(lambda c: f"{c[0]}\ts\t{c[1]}\t{c[2][0]}\t{c[2][1]}\t.\t{c[3]}\t{c[4]}\t{c[5]}")


LINES = lines_of(st.tuples(POSITIONS, POSITIONS))
SOUND = lines_of(st.sampled_from([("1", "7"), ("7", "10"), ("1", "1")]))


def outcome(lines):
    try:
        return list(_by_lines("x.gff", lines))
    except GenomeError as error:
        return str(error)


@settings(max_examples=50)
@given(st.lists(st.one_of(LINES, SOUND, st.text(alphabet="a\t1", max_size=20)), max_size=5))
def test_columns_read_as_lines_do_or_leave_it_to_them(lines):
    numbered = list(enumerate(lines, start=3))
    found = _by_columns("x.gff", numbered) if numbered else None
    assert found is None or found == outcome(numbered)


@settings(max_examples=50)
@given(st.lists(SOUND, min_size=1, max_size=5))
def test_columns_read_what_is_sound(lines):
    numbered = list(enumerate(lines, start=1))
    assert _by_columns("x.gff", numbered) == outcome(numbered)


@example('tag "a; level 2"; tag "b";')
@example('a "1" b "2"; c "3;')
@example('note "x" "y"; gene_id "g"')
@given(st.text(alphabet='ab1_ ";', max_size=30))
def test_a_layout_reads_as_the_form_does(text):
    for value in ("", "v; w x"):  # the second meets the layout that the first left behind
        line = text.replace('""', f'"{value}"')
        expected = {}
        for m in GTF_ATTRIBUTE.finditer(line):
            text = m[2] if m[2] is not None else (m[3] or "").strip()
            expected[m[1]] = f"{expected[m[1]]},{text}" if m[1] in expected else text
        assert _gtf_attributes(line) == expected


@pytest.mark.parametrize("num_before", [0, 4095, 4096, 5000])
def test_an_error_is_told_with_its_line(tmp_path, num_before):
    """Also behind thousands of lines, of which all before it are read."""
    sound = "c\ts\tgene\t1\t9\t.\t+\t.\tID=g\n"
    path = tmp_path / "x.gff"
    path.write_text("# told\n\n" + sound * num_before + "c\ts\tgene\t9\t1\t.\t+\t.\tID=g\n" + sound)
    found = []
    with pytest.raises(GenomeError, match=rf"x\.gff line {num_before + 3}: need 1 <= start <= end"):
        found.extend(read_features(path))
    assert len(found) == num_before
