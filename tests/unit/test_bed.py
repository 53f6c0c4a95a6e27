"""BED as an annotation: the same genes as of a GFF3, whatever the lines, and one line if broken."""

import gzip
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import Annotation, Reference, read_annotation
from carbon.genome.genes import find_gene
from tests.helpers.files import place_gene, random_bases, write_fasta

BASES = random_bases(2000, 1)
# The gene of `place_gene`: exons 100-160 and 220-280, CDS 109-160 and 220-241, in both formats.
GENE = "c1\t100\t280\tt1\t0\t{}\t{}\t{}\t0\t2\t60,60,\t0,120,\n"
FORWARD = GENE.format("+", 109, 241)


def read(folder, text: str, name: str = "a.bed", contigs=None) -> Annotation:
    content = text.encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with Reference(write_fasta(folder / "g.fa", contigs or {"c1": BASES})) as reference:
        return read_annotation(folder / name, reference)


def placed(annotation: Annotation) -> list:
    """Return what a corpus is cut along, by gene."""
    return [
        (g.interval, g.strand, g.biotype, [(t.strand, t.exons, t.cds) for t in g.transcripts])
        for g in annotation.genes
    ]


@pytest.mark.parametrize("strand", ["+", "-"])
def test_a_line_of_twelve_columns_is_the_transcript_of_the_gff3(tmp_path, strand):
    bases, gff3, _ = place_gene(strand)
    bed = FORWARD
    if strand == "-":  # turned round, the contig of 400 has it at 120 to 300
        bed = "c1\t120\t300\tt1\t0\t-\t159\t291\t0\t2\t60,60\t0,120\n"
    expected = placed(read(tmp_path, gff3, "a.gff3", {"c1": bases}))
    assert placed(read(tmp_path, bed, "a.bed.gz", {"c1": bases})) == expected
    found = read(tmp_path, bed, contigs={"c1": bases})
    assert placed(found) == expected
    (gene,) = found.genes
    assert (gene.gene_id, gene.name, gene.transcripts[0].transcript_id) == ("t1", "t1", "t1")


def test_lines_of_one_name_are_exons_of_one_transcript(tmp_path):
    lines = (
        "c1\t500\t600\tx\t0\t-\n"
        "c1\t100\t200\tx\t0\t+\n"  # another strand: another transcript
        "c1\t300\t400\tx\t0\t-\n"
        "c1\t700\t800\t.\t0\t+\n"  # without a name, each is one
        "c1\t900\t990\t.\t0\t+\n"
    )
    found = [
        (g.name, g.strand, g.biotype, g.transcripts[0].exons) for g in read(tmp_path, lines).genes
    ]
    assert found == [
        ("x", "+", "", ((100, 200),)),
        ("x", "-", "", ((300, 400), (500, 600))),
        ("c1:701-800", "+", "", ((700, 800),)),
        ("c1:901-990", "+", "", ((900, 990),)),
    ]


def test_a_name_of_several_transcripts_stays_several(tmp_path):
    """refGene has one identifier at many places."""
    far = FORWARD.replace("\t100\t280", "\t1100\t1280").replace("\t109\t241", "\t1109\t1241")
    annotation = read(tmp_path, FORWARD + far + FORWARD.replace("109\t241", "100\t100"))
    assert [len(gene.transcripts) for gene in annotation.genes] == [2, 1]
    assert Counter(t.transcript_id for g in annotation.genes for t in g.transcripts) == {"t1": 3}
    with pytest.raises(GenomeError, match="has 2 of that name: t1 at c1:101-280"):
        find_gene(annotation, "t1")


def test_transcripts_that_share_a_base_of_an_exon_are_one_gene(tmp_path):
    """A chain of three; one in an intron of it; one on the other strand; one that touches."""

    def line(name, start, end, strand="+", blocks=None):
        sizes, starts = blocks or ([end - start], [0])
        lists = (",".join(map(str, each)) for each in (sizes, starts))
        return "\t".join(
            [*map(str, ("c1", start, end, name, 0, strand, start, start, 0, len(sizes))), *lists]
        ) + "\n"  # fmt: skip

    annotation = read(
        tmp_path,
        line("a", 0, 500, blocks=([100, 100], [0, 400])) + line("inner", 200, 300)
        + line("b", 450, 700) + line("c", 699, 800) + line("touches", 800, 900)
        + line("other", 0, 800, "-"),
    )  # fmt: skip
    names = [sorted(t.transcript_id for t in gene.transcripts) for gene in annotation.genes]
    assert sorted(names) == [["a", "b", "c"], ["inner"], ["other"], ["touches"]]
    assert find_gene(annotation, "c").gene_id == "a"


spans = st.lists(st.integers(0, 60), min_size=2, max_size=8, unique=True).map(sorted)


@settings(max_examples=40)
@given(st.lists(st.tuples(spans, st.sampled_from("+-")), min_size=1, max_size=8), st.data())
def test_every_base_is_an_exon_where_the_lines_say_so(tmp_path_factory, drawn, data):
    """Blocks, thick parts, and the genes that they make, against sets of bases."""
    folder = tmp_path_factory.mktemp("bed")
    text, expected = "", []
    for number, (edges, strand) in enumerate(drawn):
        edges = [edge * 10 for edge in (edges if len(edges) % 2 == 0 else edges[:-1])]
        blocks = list(zip(edges[::2], edges[1::2], strict=True))
        thick = sorted(data.draw(st.tuples(*[st.sampled_from(edges)] * 2)))
        coding = {p for a, b in blocks for p in range(a, b) if thick[0] <= p < thick[1]}
        if thick[0] != thick[1] and not coding:
            continue
        exonic = {p for a, b in blocks for p in range(a, b)}
        expected.append((f"t{number}", strand, exonic, coding))
        sizes = ",".join(str(b - a) for a, b in blocks)
        starts = ",".join(str(a - edges[0]) for a, _ in blocks)
        text += (
            f"c1\t{edges[0]}\t{edges[-1]}\tt{number}\t0\t{strand}\t{thick[0]}\t{thick[1]}\t0\t"
            f"{len(blocks)}\t{sizes}\t{starts}\n"
        )
    if not expected:
        return
    genes = read(folder, text).genes
    found = {
        t.transcript_id: (t.strand, *({p for s in x for p in range(*s)} for x in (t.exons, t.cds)))
        for g in genes
        for t in g.transcripts
    }
    assert found == {name: tuple(rest) for name, *rest in expected}
    gene_of = {t.transcript_id: n for n, g in enumerate(genes) for t in g.transcripts}
    for name, strand, exonic, _ in expected:
        for other, other_strand, other_exonic, _ in expected:
            if strand == other_strand and exonic & other_exonic:
                assert gene_of[name] == gene_of[other]


def test_a_bed_as_browsers_write_it(tmp_path):
    """A mark, carriage returns, headers, blanks for tabs; names of any letters."""
    text = (
        "\ufeffbrowser position c1:1-900\r\ntrack name=genes\r\n#chrom\r\n\r\n"
        "c1 100 280 né;a 0 + 109 241 0,0,255 2 60,60 0,120\r\n"
        "c1\t300\t400\ta name; of words\t0\t+\t300\t300\t0\t1\t100\t0\r\n"
    )
    genes = read(tmp_path, text, "UCSC.BED").genes
    assert [gene.name for gene in genes] == ["né;a", "a name; of words"]
    assert genes[0].transcripts[0].cds == ((109, 160), (220, 241))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no feature"),
        ("c1\t1\t9\tx\t0\t+\nc1\tone\t9\tx\t0\t+\n", "line 2: 'one' is not a whole number"),
        (f"c1\t1\t{'9' * 5000}\tx\t0\t+\n", "is not a whole number"),
        ("c1\t9\t1\tx\t0\t+\n", "line 1: need start <= end"),
        ("c1\t9\t9\tx\t0\t+\n", "line 1: has no base"),
        ("c1\t1\t9\tx\t0\t.\n", "'x' and 0 more are left out: no_strand"),
        ("c1\t1\t90000\tx\t0\t+\n", "ends at 90000, but contig 'c1' of"),
        ("c2\t1\t9\tx\t0\t+\n", "no contig 'c2' in the FASTA"),
        (FORWARD.replace("\t2\t60,60", "\t3\t60,60"), "says 3 blocks"),
        (FORWARD.replace("0,120", "0,121"), "blocks reach from 100 to 281"),
        (FORWARD.replace("\t2\t60,60,\t0,120", "\t3\t60,0,60\t0,90,120"), "are empty, overlap"),
        (FORWARD.replace("109\t241", "90\t241"), "thickStart 90 and thickEnd 241"),
        *((f"{FORWARD}{FORWARD[:cut]}\n", r"line 2: has \d+ columns, and the first line")
          for cut in (17, 21, 36)),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(tmp_path, text, message):
    with pytest.raises(GenomeError, match=rf"a\.bed.*{message}") as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)
