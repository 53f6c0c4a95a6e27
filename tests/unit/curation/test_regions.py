"""Untranslated ends of transcripts and places of a BED, by strand, cut at contig ends."""

import gzip

import pytest

from carbon.corpus import read_manifest, read_source
from carbon.genome import reverse_complement
from tests.helpers.curation import assembly, build, rows_of
from tests.helpers.files import place_gene, random_bases, write_fasta

BASES = random_bases(1000, 4)


@pytest.mark.parametrize("strand", ["+", "-"])
def test_untranslated_ends_of_a_gene_of_two_exons(tmp_path, strand):
    """Forward: exons 101-160 and 221-280, CDS 110-160 and 221-241, 1-based."""
    bases, gff3, _ = place_gene(strand)
    write_fasta(tmp_path / "genome.fa", {"c1": bases})
    (tmp_path / "genes.gff3").write_text(gff3)
    settings = assembly(tmp_path, holdout="[]", sources='["utr5", "utr3"]')
    assert build(tmp_path / "c", *settings, "keep.min_record_bp=5", "keep.min_complexity=0") == 0
    forward = bases if strand == "+" else reverse_complement(bases)
    for source, wanted in (("utr5", forward[100:109]), ("utr3", forward[241:280])):
        (row,) = rows_of(tmp_path / "c", source)
        assert (row["sequence"], row["strand"], row["gene_type"]) == (wanted, strand, "")
    assert read_manifest(tmp_path / "c")["both_strands"] == {"utr3": False, "utr5": False}


def test_an_end_in_two_exons_is_spliced_and_isoforms_share_it(tmp_path):
    write_fasta(tmp_path / "genome.fa", {"c1": BASES})
    gene = "c1\tx\tgene\t101\t700\t.\t-\t.\tID=g\n"
    for name, end in (("t1", 700), ("t2", 700), ("t3", 690)):
        gene += f"c1\tx\tmRNA\t101\t{end}\t.\t-\t.\tID={name};Parent=g\n"
        for first, last in ((101, 300), (401, 500), (601, end)):
            gene += f"c1\tx\texon\t{first}\t{last}\t.\t-\t.\tParent={name}\n"
        gene += f"c1\tx\tCDS\t151\t300\t.\t-\t0\tID=p{name};Parent={name}\n"
    (tmp_path / "genes.gff3").write_text(gene)
    settings = assembly(tmp_path, holdout="[]", sources='["utr5"]')
    assert build(tmp_path / "c", *settings, "keep.near_identity=1.0") == 0
    found = {row["name"]: row["sequence"] for row in rows_of(tmp_path / "c", "utr5")}
    assert found == {
        "t1": reverse_complement(BASES[400:500] + BASES[600:700]),
        "t3": reverse_complement(BASES[400:500] + BASES[600:690]),
    }


def regions(tmp_path, bed, *more, contigs=None):
    write_fasta(tmp_path / "genome.fa", contigs or {"c1": BASES, "c2": random_bases(400, 5)})
    with gzip.open(tmp_path / "r.bed.gz", "wt") as sink:
        sink.write(bed)
    settings = [f"genome={tmp_path}/genome.fa", "holdout=[]", f"regions.0.path={tmp_path}/r.bed.gz"]
    return [f"assemblies.0.{each}" for each in (*settings, *more)]


BED = (
    "# a comment\n"
    "c1\t50\t150\tenhancer\t0\t+\n"
    "c1\t300\t400\tenhancer\t0\t-\n"
    "c1\t920\t1000\tpELS,CTCF-bound\t0\t.\n"
    "c9\t0\t100\tenhancer\t0\t.\n"
    "c2\t390\t490\tenhancer\t0\t.\n"
)


def test_kinds_are_sources_with_flanks_by_strand(tmp_path):
    assert build(tmp_path / "c", *regions(tmp_path, BED, "regions.0.flank_bp=80")) == 0
    forward, backward = rows_of(tmp_path / "c", "enhancer")
    assert forward["sequence"] == BASES[:230]  # 30 bases are missing before the contig's first
    assert backward["sequence"] == reverse_complement(BASES[220:480])
    assert backward["segments"] == [{"start": 220, "end": 480, "strand": "-"}]
    (last,) = rows_of(tmp_path / "c", "pELS_CTCF-bound")
    assert last["sequence"] == BASES[840:] and last["strand"] == "+"
    manifest = read_manifest(tmp_path / "c")
    assert manifest["both_strands"] == {"enhancer": True, "pELS_CTCF-bound": True}
    assert manifest["dropped"] == {
        "enhancer:contig_not_in_fasta": 1, "enhancer:outside_of_the_sequence": 1
    }  # fmt: skip
    assert len(manifest["inputs"][0]["files"]) == 2


def test_one_source_for_all_and_another_column(tmp_path):
    one = ["regions.0.source=open", "regions.0.both_strands=false"]
    assert build(tmp_path / "one", *regions(tmp_path, BED, *one)) == 0
    assert len(rows_of(tmp_path / "one", "open")) == 3
    assert read_manifest(tmp_path / "one")["both_strands"] == {"open": False}
    wide = "c1\t50\t150\tE1\t0\t.\t50\t50\t0,0,0\tdELS\n"
    assert build(tmp_path / "ten", *regions(tmp_path, wide, "regions.0.kind_column=10")) == 0
    (row,) = rows_of(tmp_path / "ten", "dELS")
    assert row["name"] == "E1 c1:51-150"


@pytest.mark.parametrize(("near", "kept"), [("false", 2), ("true", 1)])
def test_nearly_equal_regions(tmp_path, near, kept):
    """The second is the first with one base in fifty changed, on the other strand."""
    changed = "".join("A" if i % 50 == 0 else base for i, base in enumerate(BASES[:500]))
    contigs = {"c1": BASES, "c2": reverse_complement(changed)}
    bed = "c1\t0\t500\tenhancer\nc2\t0\t500\tenhancer\n"
    settings = regions(tmp_path, bed, f"regions.0.near_duplicates={near}", contigs=contigs)
    assert build(tmp_path / "c", *settings) == 0
    assert len(rows_of(tmp_path / "c", "enhancer")) == kept


def test_what_is_held_out_stays_so(tmp_path):
    settings = regions(tmp_path, BED, "regions.0.flank_bp=30")
    settings[1] = 'assemblies.0.holdout=["c1:301-600"]'
    assert build(tmp_path / "c", *settings) == 0
    assert [r["start"] for r in read_source(tmp_path / "c", "enhancer", "train").to_pylist()] == [
        20
    ]
    # With its flank the second reaches over the edge at 300.
    assert rows_of(tmp_path / "c", "enhancer")[1:] == []
    assert read_manifest(tmp_path / "c")["dropped"]["enhancer:partly_held_out"] == 1


def test_regions_beside_other_sources_with_an_offset_and_names(tmp_path):
    bed = "chr1\t10050\t10150\tenhancer\t0\t+\n"
    more = ["sources=['genome']", "annotation_offset_bp=10000", "contig_names.chr1=c1"]
    assert build(tmp_path / "c", *regions(tmp_path, bed, *more)) == 0
    (row,) = rows_of(tmp_path / "c", "enhancer")
    assert row["sequence"] == BASES[50:150]
    assert len(rows_of(tmp_path / "c", "genome")) == 2


@pytest.mark.parametrize(
    ("bed", "message"),
    [
        ("c1\t50\t150\n", "line 1: has no kind in column 4"),
        ("c1\t50\t150\t.\t0\t+\n", "line 1: has no kind in column 4"),
        ("c1\t50\t150\te\t0\tx\n", "line 1: strand 'x'"),
        ("c1\t50\n", "line 1: is not a BED line"),
    ],
)
def test_a_broken_line_is_named(tmp_path, capsys, bed, message):
    assert build(tmp_path / "c", *regions(tmp_path, bed)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists() and not (tmp_path / "c.work").exists()


KIND = "source 'enhancer': some inputs say"
SAME_BED = ["genome={tmp}/genome.fa", "regions.0.path={tmp}/r.bed.gz", "name=b"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"assemblies.1": [*SAME_BED, "regions.0.both_strands=false"]}, KIND),
        ({"assemblies.1": [*SAME_BED, "regions.0.near_duplicates=true"]}, KIND),
        (
            {"assemblies.0.regions.1": ["path={tmp}/r.bed.gz", "near_duplicates=true"]},
            KIND + " near_duplicates = true",
        ),
        (
            {"assemblies.0.regions.0": ["source=own", "near_duplicates=true"],
             "files.0": ["path={tmp}/genome.fa", "source=own", "both_strands=true"]},
            "assemblies.0.regions.0.source: 'own': say of all its inputs alike whether",
        ),
        (
            {"assemblies.0.regions.0": ["source=promoter", "near_duplicates=true"]},
            "near_duplicates = true for source 'promoter'",
        ),
    ],
)  # fmt: skip
def test_all_inputs_of_a_source_agree_on_strands_and_near_duplicates(
    tmp_path, capsys, more, message
):
    settings = regions(tmp_path, BED, "name=a")
    settings += [f"{where}.{each.format(tmp=tmp_path)}" for where in more for each in more[where]]
    assert build(tmp_path / "c", *settings) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
