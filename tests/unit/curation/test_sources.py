"""The sources that are cut out of an assembly: coordinates, strands and circles."""

import itertools

import pyarrow.parquet as pq
import pytest

from carbon.corpus import SCHEMA, read_manifest
from carbon.genome import Interval, Reference, read_annotation, reverse_complement
from data_pipeline.recipe import species_type_of
from data_pipeline.records import Record, Segment, read_bases
from data_pipeline.sources import SOURCES
from tests.helpers.curation import assembly, build, rows_of
from tests.helpers.files import place_gene, random_bases, write_fasta


class TestSources:
    def test_every_base_can_be_traced_back(self, genome, corpus):
        with Reference(genome / "genome.fa") as reference:
            lengths_bp = reference.contig_lengths_bp
            whole = {c: reference.fetch(Interval(c, 0, n)) for c, n in lengths_bp.items()}
        opposite = dict(zip("ACGTN", "TGCAN", strict=True))
        for source in SOURCES:
            rows = rows_of(corpus, source)
            assert rows, source
            for row in rows:
                contig, traced = whole[row["record_id"]], []
                for start, end, strand in (s.values() for s in row["segments"]):
                    forward = range(start, end)
                    places = forward if strand == "+" else reversed(forward)
                    bases = (contig[place] for place in places)
                    traced += bases if strand == "+" else [opposite[base] for base in bases]
                assert row["sequence"] == "".join(traced)
                assert row["start"] == min(s["start"] for s in row["segments"])
                assert row["end"] == max(s["end"] for s in row["segments"])

    def test_transcripts_are_their_exons_and_in_context_hold_them(self, genome, corpus):
        with Reference(genome / "genome.fa") as reference:
            lengths_bp = reference.contig_lengths_bp
            annotation = read_annotation(genome / "genes.gff3", reference)
        exons_of = {t.transcript_id: t.exons for gene in annotation.genes for t in gene.transcripts}
        plain = {row["name"]: row for row in rows_of(corpus, "mrna")}
        context = {row["name"]: row for row in rows_of(corpus, "mrna_splice")}
        assert set(plain) & set(context)
        for name in set(plain) & set(context):
            exons = [(s["start"], s["end"]) for s in plain[name]["segments"]]
            assert sorted(exons) == sorted(exons_of[name])
            wide = [(s["start"], s["end"]) for s in context[name]["segments"]]
            for a, b in exons:
                assert any(c <= a and b <= d for c, d in wide)
            forward = plain[name]["strand"] == "+"
            before = exons[0][0] - wide[0][0] if forward else wide[0][1] - exons[0][1]
            room = exons[0][0] if forward else lengths_bp[plain[name]["record_id"]] - exons[0][1]
            assert before == min(1024, room)
            after = wide[-1][1] - exons[-1][1] if forward else exons[-1][0] - wide[-1][0]
            assert after == 0

    def test_promoters_end_where_transcripts_begin(self, corpus):
        starts = set()
        for row in rows_of(corpus, "mrna"):
            forward = row["strand"] == "+"
            starts.add((row["record_id"], row["start"] if forward else row["end"], row["strand"]))
        promoters = rows_of(corpus, "promoter")
        for row in promoters:
            assert len(row["sequence"]) == 600
            forward = row["strand"] == "+"
            tss = row["start"] + 500 if forward else row["end"] - 500
            assert (row["record_id"], tss, row["strand"]) in starts

    def test_chunks_cover_the_genome_once(self, genome, corpus):
        with Reference(genome / "genome.fa") as reference:
            for contig, length_bp in reference.contig_lengths_bp.items():
                chunks = [r for r in rows_of(corpus, "prokaryote") if r["record_id"] == contig]
                spans = sorted((r["start"], r["end"]) for r in chunks)
                assert spans[0][0] == 0 and spans[-1][1] == length_bp
                assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))

    def test_runs_are_consecutive_regions(self, corpus):
        regions = {
            (r["record_id"], r["start"], r["end"], r["strand"])
            for r in rows_of(corpus, "eukaryote")
        }
        runs = rows_of(corpus, "eukaryote_concatenated")
        for run in runs:
            parts = [(run["record_id"], s["start"], s["end"], s["strand"]) for s in run["segments"]]
            assert len(parts) > 1 and parts == sorted(parts, key=lambda p: p[1])
            assert set(parts) <= regions and len(run["sequence"]) <= 9000
        once = [(r["record_id"], s["start"]) for r in runs for s in r["segments"]]
        assert len(once) == len(set(once))


def test_records_over_the_origin_of_a_circle(tmp_path):
    """A gene at 361-400 and 1-20 of a circle of 400 bp, on both strands."""
    bases = random_bases(400, 5)
    write_fasta(tmp_path / "genome.fa", {"c1": bases, "c2": random_bases(300, 6)})
    for strand in "+-":
        (tmp_path / "genes.gff3").write_text(
            "c1\tx\tregion\t1\t400\t.\t+\t.\tID=c;Is_circular=true\n"
            f"c1\tx\tgene\t361\t420\t.\t{strand}\t.\tID=g1\n"
            f"c1\tx\tCDS\t361\t420\t.\t{strand}\t0\tID=p1;Parent=g1\n"
        )
        output = tmp_path / f"c{ord(strand)}"
        sources = '["eukaryote", "mrna", "mrna_splice", "promoter"]'
        cut = [f"cut.{key}" for key in ("flank_bp=10", "promoter_bp=30", "upstream_bp=50")]
        cut.append("keep.min_record_bp=9")
        settings = assembly(tmp_path, holdout="[]", sources=sources)
        assert build(output, *settings, *cut) == 0
        twice = bases + bases
        expected = {
            "eukaryote": twice[350:430],
            "mrna": twice[360:420],
            "mrna_splice": twice[330:420] if strand == "+" else twice[360:450],
            "promoter": twice[310:460] if strand == "+" else twice[320:470],
        }
        for source, wanted in expected.items():
            (row,) = rows_of(output, source)
            assert row["sequence"] == (wanted if strand == "+" else reverse_complement(wanted))
        with Reference(tmp_path / "genome.fa") as reference:
            segments = [Segment(**s) for s in row["segments"]]
            assert read_bases(reference, "c1", segments) == row["sequence"]
    record = Record("c", (Segment(360, 420, "+"), Segment(430, 440, "+")), "", "")
    spans = [(i.start, i.end) for i in record.intervals(400)]
    assert spans == [(360, 400), (0, 20), (30, 40)]


def test_soft_masked_bases_keep_their_case(tmp_path):
    bases, gff3, _ = place_gene()
    write_fasta(tmp_path / "genome.fa", {"c1": bases[:150] + bases[150:].lower()})
    (tmp_path / "genes.gff3").write_text(gff3)
    assert build(tmp_path / "c", *assembly(tmp_path, holdout="[]")) == 0
    (row,) = rows_of(tmp_path / "c", "eukaryote")
    assert row["sequence"] == (bases[:150] + bases[150:].lower())[row["start"] : row["end"]]
    steps = read_manifest(tmp_path / "c")["steps"]
    assert steps["written"]["eukaryote"]["records"] == 1
    assert steps["cut"]["eukaryote"]["masked_bases"] == row["end"] - 150


@pytest.mark.parametrize(
    ("lineage", "expected"),
    [
        ("Eukaryota; Metazoa; Chordata; Craniata; Vertebrata; Mammalia", "mam"),
        ("Eukaryota; Metazoa; Chordata; Vertebrata; Aves", "vrt"),
        ("Eukaryota; Metazoa; Ecdysozoa; Arthropoda", "inv"),
        ("Eukaryota; Fungi; Dikarya", "fng"),
        ("Eukaryota; Viridiplantae; Streptophyta", "pln"),
        ("Eukaryota; Alveolata; Apicomplexa", "prt"),
        ("Bacteria; Proteobacteria", "pro"),
        ("Archaea; Euryarchaeota", "pro"),
        ("Viruses; ssDNA viruses", ""),
    ],
)
def test_species_types(lineage, expected):
    assert species_type_of(tuple(lineage.split("; "))) == expected


def test_the_schema_is_what_is_written(corpus):
    for path in corpus.rglob("*.parquet"):
        assert pq.read_schema(path).equals(SCHEMA)


@pytest.mark.parametrize("strand", ["+", "-"])
def test_a_small_circle_is_gone_around_once(tmp_path, strand):
    """A gene of 60 bases near the origin of 300: promoters and flanks are longer than there is."""
    bases = random_bases(300, 8)
    write_fasta(tmp_path / "genome.fa", {"c1": bases, "c2": random_bases(300, 9)})
    (tmp_path / "genes.gff3").write_text(
        "c1\tx\tregion\t1\t300\t.\t+\t.\tID=c;Is_circular=true\n"
        f"c1\tx\tgene\t271\t330\t.\t{strand}\t.\tID=g1\n"
        f"c1\tx\tCDS\t1\t30\t.\t{strand}\t0\tID=p1;Parent=g1\n"
        f"c1\tx\tCDS\t271\t300\t.\t{strand}\t0\tID=p1;Parent=g1\n"
    )
    sources = '["eukaryote", "mrna", "mrna_splice", "promoter"]'
    assert build(tmp_path / "c", *assembly(tmp_path, holdout="[]", sources=sources)) == 0
    (whole,) = rows_of(tmp_path / "c", "mrna_splice")
    assert len(whole["sequence"]) == 300
    (gene,) = rows_of(tmp_path / "c", "mrna")
    cds = bases[270:] + bases[:30]
    assert gene["sequence"] == (cds if strand == "+" else reverse_complement(cds))
    (region,) = rows_of(tmp_path / "c", "eukaryote")
    assert len(region["sequence"]) == 300
    assert rows_of(tmp_path / "c", "promoter") == []
    assert "promoter:window_longer_than_contig" in read_manifest(tmp_path / "c")["dropped"]


def test_what_cannot_be_joined_has_its_reason(genome, tmp_path):
    settings = assembly(genome, sources='["eukaryote", "eukaryote_concatenated"]')
    assert build(tmp_path / "c", *settings, "cut.concatenated_bp=2500") == 0
    manifest = read_manifest(tmp_path / "c")
    joined = sum(len(row["segments"]) for row in rows_of(tmp_path / "c", "eukaryote_concatenated"))
    dropped = sum(count for key, count in manifest["dropped"].items() if "_concatenated" in key)
    assert dropped > 0
    assert joined + dropped == manifest["steps"]["cut"]["eukaryote"]["records"]
