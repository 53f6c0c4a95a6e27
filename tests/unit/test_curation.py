"""Recipes, the six sources, filters, duplicates, evaluation sets, files, and what goes wrong."""

import gzip
import itertools
import json
import random
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.corpus import SCHEMA, read_manifest, read_source
from carbon.files import sha256_of_file
from carbon.genome import Interval, Reference, reverse_complement
from data_pipeline.__main__ import main
from data_pipeline.duplicates import (
    Candidate,
    EvaluationSequences,
    canonical_kmers,
    near_duplicates,
    sketch_of,
)
from data_pipeline.filters import composition_of
from data_pipeline.recipe import species_type_of
from data_pipeline.records import Record, Segment, digest_of, read_bases
from data_pipeline.sources import SOURCES
from tests.helpers.files import place_gene, random_bases, write_fasta

CUT_FROM_GENES = [source for source in SOURCES if source != "prokaryote"]


def build(output, *settings):
    words = [w for item in (f"output={output}", *settings) for w in ("--set", item)]
    return main(["build", *words])


def assembly(folder, number=0, **settings):
    settings = {"genome": f"{folder}/genome.fa", "annotation": f"{folder}/genes.gff3"} | settings
    return [f"assemblies.{number}.{key}={value}" for key, value in settings.items()]


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sim") / "genome"
    assert main(["simulate", "--output", str(folder), "--genome-bp", "90000", "--seed", "2"]) == 0
    return folder


@pytest.fixture(scope="module")
def corpus(genome, tmp_path_factory):
    output = tmp_path_factory.mktemp("built") / "corpus"
    sources = json.dumps(list(SOURCES))
    settings = assembly(genome, sources=sources, species_type="inv")
    assert build(output, *settings, "cut.concatenated_bp=9000", "cut.chunk_bp=5000") == 0
    return output


def rows_of(corpus, source):
    return [row for s in ("train", "test") for row in read_source(corpus, source, s).to_pylist()]


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

    def test_transcripts_in_context_hold_the_transcript(self, genome, corpus):
        with Reference(genome / "genome.fa") as reference:
            lengths_bp = reference.contig_lengths_bp
        plain = {row["name"]: row for row in rows_of(corpus, "mrna")}
        context = {row["name"]: row for row in rows_of(corpus, "mrna_splice")}
        assert set(plain) & set(context)
        for name in set(plain) & set(context):
            exons = [(s["start"], s["end"]) for s in plain[name]["segments"]]
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
        cut = (
            "cut.flank_bp=10",
            "cut.promoter_bp=30",
            "cut.upstream_bp=50",
            "keep.min_record_bp=9",
        )
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


def test_a_record_over_the_origin_overlaps_what_lies_there():
    record = Record("c", (Segment(360, 420, "+"), Segment(430, 440, "+")), "", "")
    spans = [(i.start, i.end) for i in record.intervals(400)]
    assert spans == [(360, 400), (0, 20), (30, 40)]


class TestFilters:
    @pytest.mark.parametrize(
        ("sequence", "known", "masked", "complexity"),
        [
            ("A" * 100, 100, 0, 0.0),
            ("acgtNN", 4, 4, 1.0),  # two trimers, each once
            ("ACT" * 40, 120, 0, np.log2(3) / np.log2(64)),
            ("AC", 2, 0, 0.0),
            ("RYN-", 0, 0, 0.0),
        ],
    )
    def test_composition(self, sequence, known, masked, complexity):
        found = composition_of(sequence)
        assert found[:3] == (len(sequence), known, masked)
        assert abs(found.complexity - complexity) < 0.01

    def test_what_is_dropped_is_kept_with_its_reason(self, tmp_path):
        rng = random.Random(1)
        texts = {
            "short": "ACGT",
            "long": random_bases(5000, 1),
            "gaps": random_bases(100, 2) + "N" * 20,
            "none": "N" * 80,
            "simple": "CA" * 60,
            "fine": random_bases(120, 3),
            "other strand": reverse_complement(random_bases(120, 3)).lower(),
        }
        masked = {f"repeat{i}": random_bases(200, 10 + i).lower() for i in range(200)}
        half = {f"half{i}": random_bases(100, 900 + i) + random_bases(100, i).lower()
                for i in range(200)}  # fmt: skip
        items = list((texts | masked | half).items())
        rng.shuffle(items)
        path = tmp_path / "x.fa"
        path.write_text("".join(f">{n.replace(' ', '_')}\n{s}\n" for n, s in items))
        settings = [f"files.0.path={path}", "files.0.source=mrna", "keep.max_record_bp=4000"]
        assert build(tmp_path / "c", *settings, "keep.repeat_weight=0.25") == 0
        lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()[1:]
        reasons = {line.split("\t")[1]: line.split("\t")[2] for line in lines}
        assert {
            name: reasons.get(name) for name in ("short", "long", "gaps", "none", "simple")
        } == {
            "short": "shorter_than_min_record_bp",
            "long": "longer_than_max_record_bp",
            "gaps": "too_many_n",
            "none": "no_known_base",
            "simple": "low_complexity",
        }
        assert ("fine" in reasons) != ("other_strand" in reasons)
        gone = [name for name, why in reasons.items() if why == "repeats_down_weighted"]
        whole = sum(name.startswith("repeat") for name in gone)
        halves = sum(name.startswith("half") for name in gone)
        assert 125 < whole < 175 and 50 < halves < 100  # 150 and 75 are expected
        manifest = read_manifest(tmp_path / "c")
        kept = manifest["sources"]["mrna"]["train"]["records"]
        assert kept + len(lines) == len(items) == manifest["steps"]["cut"]["mrna"]["records"]
        masked_bases = sum(sum(map(str.islower, s)) for _, s in items)
        assert manifest["steps"]["cut"]["mrna"]["masked_bases"] == masked_bases

    @given(sequence=st.text(alphabet="ACGTN", min_size=1, max_size=40))
    def test_a_digest_is_of_both_strands_and_cases(self, sequence):
        digest = digest_of(sequence)
        assert digest == digest_of(reverse_complement(sequence).lower())
        assert digest != digest_of(sequence + "A") or sequence == reverse_complement(sequence)


def mutated(sequence, rate, seed):
    rng = random.Random(seed)
    result = []
    for base in sequence:
        if rng.random() >= rate:
            result.append(base)
        elif (kind := rng.random()) < 0.8:
            result.append(rng.choice([b for b in "ACGT" if b != base]))
        elif kind < 0.9:
            result.append(base + rng.choice("ACGT"))
    return "".join(result)


def edit_distance(one, other):
    """Row by row, as in any textbook."""
    before = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(other, start=1):
            row.append(min(row[-1] + 1, before[j] + 1, before[j - 1] + (a != b)))
        before = row
    return before[-1]


class TestNearDuplicates:
    @given(sequence=st.text(alphabet="ACGTN", max_size=60), k=st.integers(1, 31))
    def test_canonical_kmers(self, sequence, k):
        codes = {"A": 0, "T": 1, "C": 2, "G": 3}
        expected = []
        for at in range(len(sequence) - k + 1):
            word = sequence[at : at + k]
            if "N" not in word:
                forms = (word, reverse_complement(word))
                numbers = [sum(codes[b] * 4 ** (k - 1 - i) for i, b in enumerate(f)) for f in forms]
                expected.append(min(numbers))
        assert canonical_kmers(sequence, k).tolist() == expected

    def test_pairs_against_the_edit_distance_of_all(self):
        sequences = []
        for i in range(30):
            base = random_bases(random.Random(i).randint(150, 260), i)
            other = mutated(base, (0.02, 0.06, 0.09, 0.12, 0.3)[i % 5], 100 + i)
            sequences += [base, reverse_complement(other) if i % 2 else other]
        candidates = [Candidate(len(s), False, sketch_of(s), lambda s=s: s) for s in sequences]
        found = dict(near_duplicates(candidates, 0.9))
        for i, j in found.items():
            longer = max(len(sequences[i]), len(sequences[j]))
            assert len(sequences[j]) >= len(sequences[i])
            forms = (sequences[i], reverse_complement(sequences[i]))
            assert min(edit_distance(f, sequences[j]) for f in forms) <= 0.1 * longer
        missed = 0
        for i in range(0, 60, 2):
            one, other = sequences[i], sequences[i + 1]
            forms = (one, reverse_complement(one))
            distance = min(edit_distance(f, other) for f in forms)
            if distance <= 0.1 * max(len(one), len(other)):
                missed += i not in found and i + 1 not in found
        assert missed <= 1 and len(found) >= 15

    def test_what_is_held_out_stays(self):
        base = random_bases(400, 1)
        near = mutated(base, 0.02, 2)
        pair = [
            Candidate(len(base), False, sketch_of(base), lambda: base),
            Candidate(len(near), True, sketch_of(near), lambda: near),
        ]
        assert list(near_duplicates(pair, 0.9)) == [(0, 1)]

    def test_in_a_build(self, tmp_path):
        """Of two that are alike the longer stays."""
        base = random_bases(600, 4)
        texts = {"a": base, "b": mutated(base, 0.03, 1) + "ACGTACGTAC", "c": random_bases(600, 9)}
        (tmp_path / "x.fa").write_text("".join(f">{n}\n{s}\n" for n, s in texts.items()))
        settings = [f"files.0.path={tmp_path}/x.fa", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 0
        kept = {row["name"] for row in rows_of(tmp_path / "c", "mrna")}
        longest = max(("a", "b"), key=lambda n: len(texts[n]))
        gone = ({"a", "b"} - {longest}).pop()
        assert kept == {longest, "c"}
        lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()
        assert f"mrna\t{gone}\tnear_duplicate:{longest}" in lines[1]
        assert build(tmp_path / "d", *settings, "keep.near_identity=1.0") == 0
        assert len(rows_of(tmp_path / "d", "mrna")) == 3


class TestEvaluationSets:
    def test_shared_kmers(self):
        inside = random_bases(300, 1)
        index = EvaluationSequences([("one", inside), ("two", random_bases(90, 2))], 0.5)
        around = random_bases(500, 3)
        assert index.contained_in(around) is None
        assert index.contained_in(around + inside[:170] + around) == "one"
        assert index.contained_in(around + reverse_complement(inside[120:]) + around) == "one"
        assert index.contained_in(around + inside[:150] + around) is None  # 120 of 270 31-mers
        assert EvaluationSequences([], 0.5).contained_in(around) is None

    @pytest.mark.parametrize("form", ["bed", "vcf", "vcf.gz", "fa"])
    def test_what_overlaps_or_contains_one_goes(self, genome, corpus, tmp_path, form):
        victim = next(r for r in read_source(corpus, "eukaryote", "train").to_pylist())
        contig, at = victim["record_id"], victim["start"] + 150
        base = "ACGT"[0]
        text = {
            "bed": f"track\n{contig}\t{at}\t{at + 1}\n",
            "vcf": f"##fileformat=VCFv4.2\n{contig}\t{at + 1}\t.\t{base}\tC\t.\t.\t.\n",
        }
        text["vcf.gz"] = text["vcf"]
        bases = victim["sequence"]
        text["fa"] = f">e1\n{mutated(bases[100:400], 0.01, 1)}\n"
        path = tmp_path / f"e.{form}"
        data = text[form].encode()
        path.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
        more = [f"evaluations.0.path={path}"]
        more += [] if form == "fa" else ["evaluations.0.assembly=genome"]
        assert build(tmp_path / "c", *assembly(genome, species_type="inv"), *more) == 0
        kept = {(r["record_id"], r["start"]) for r in rows_of(tmp_path / "c", "eukaryote")}
        assert (contig, victim["start"]) not in kept
        dropped = (tmp_path / "c" / "dropped.tsv").read_text()
        reason = "contains_evaluation:e1" if form == "fa" else "overlaps_evaluation"
        assert f"{reason}\tgenome\t{contig}\t{victim['start']}\t" in dropped

    def test_a_record_inside_a_long_evaluation_sequence_goes(self, genome, tmp_path):
        """A whole contig is asked for: what is cut out of it may not be trained on."""
        with Reference(genome / "genome.fa") as reference:
            contig = reference.fetch(Interval("chr1", 0, reference.contig_lengths_bp["chr1"]))
        (tmp_path / "e.fa").write_text(f">whole\n{contig}\n")
        more = [f"evaluations.0.path={tmp_path}/e.fa"]
        assert build(tmp_path / "c", *assembly(genome), *more) == 0
        for source in ("eukaryote", "mrna"):
            rows = read_source(tmp_path / "c", source, "train").to_pylist()
            assert rows and not any(row["record_id"] == "chr1" for row in rows)

    def test_places_have_the_names_and_the_offset_of_the_annotation(self, tmp_path, capsys):
        bases, gff3, _ = place_gene()
        write_fasta(tmp_path / "genome.fa", {"part": bases, "other": random_bases(300, 1)})
        moved = []
        for line in gff3.splitlines():
            columns = line.split("\t")
            if len(columns) == 9:
                columns[3:5] = [str(int(n) + 5000) for n in columns[3:5]]
            moved.append("\t".join(columns))
        (tmp_path / "genes.gff3").write_text("\n".join(moved) + "\n")
        names = '{"c1" = "part"}'
        common = {"contig_names": names, "annotation_offset_bp": 5000, "holdout": "[]"}
        (tmp_path / "e.bed").write_text("c1\t5150\t5151\n")
        more = [f"evaluations.0.path={tmp_path}/e.bed", "evaluations.0.assembly=genome"]
        assert build(tmp_path / "a", *assembly(tmp_path, **common)) == 0
        assert len(rows_of(tmp_path / "a", "eukaryote")) == 1
        assert build(tmp_path / "b", *assembly(tmp_path, **common), *more) == 0
        assert rows_of(tmp_path / "b", "eukaryote") == []
        (tmp_path / "e.bed").write_text("chrc1\t5150\t5151\n")
        assert build(tmp_path / "c", *assembly(tmp_path, **common), *more) == 2
        assert "no place lies on assembly 'genome'" in capsys.readouterr().err

    def test_another_evaluation_file_starts_over(self, genome, corpus, tmp_path, monkeypatch):
        from data_pipeline import build as module

        def stop(*_):
            raise KeyboardInterrupt

        rows = read_source(corpus, "eukaryote", "train").to_pylist()
        path = tmp_path / "e.bed"
        more = [f"evaluations.0.path={path}", "evaluations.0.assembly=genome"]
        path.write_text(f"{rows[0]['record_id']}\t{rows[0]['start']}\t{rows[0]['start'] + 9}\n")
        monkeypatch.setattr(module, "select", stop)
        assert build(tmp_path / "c", *assembly(genome), *more) == 130
        monkeypatch.undo()
        path.write_text(f"{rows[-1]['record_id']}\t{rows[-1]['start']}\t{rows[-1]['end'] - 1}\n")
        assert build(tmp_path / "c", *assembly(genome), *more) == 0
        kept = {(r["record_id"], r["start"]) for r in rows_of(tmp_path / "c", "eukaryote")}
        assert (rows[0]["record_id"], rows[0]["start"]) in kept
        assert (rows[-1]["record_id"], rows[-1]["start"]) not in kept
        assert read_manifest(tmp_path / "c")["evaluations"][0]["sha256"] == sha256_of_file(path)

    def test_a_file_that_is_neither(self, genome, tmp_path, capsys):
        (tmp_path / "e.bed").write_text("chr1\tten\t20\n")
        more = [f"evaluations.0.path={tmp_path}/e.bed", "evaluations.0.assembly=genome"]
        assert build(tmp_path / "c", *assembly(genome), *more) == 2
        assert "e.bed line 1: is no line of BED" in capsys.readouterr().err


class TestFiles:
    def test_released_layout(self, tmp_path):
        """The columns of the released corpus; codes come out of their brackets."""
        bases = [random_bases(90, i) for i in range(3)]
        pq.write_table(
            pa.table(
                {
                    "begin_of_sequence": ["<s>"] * 3,
                    "gene_type": ["<cds>", "<tRNA>", None],
                    "species_type": ["<fng>"] * 3,
                    "strand": ["<+>", "<->", "<+>"],
                    "sequence": bases,
                    "record_id": ["NC_1.1", "NC_1.1", "NC_2.1"],
                    "start": [10, 200, 0],
                    "end": [100, 290, 90],
                }
            ),
            tmp_path / "part-0.parquet",
        )
        pq.write_table(pa.table({"text": [random_bases(80, 9)]}), tmp_path / "text-0.parquet")
        settings = [
            f"files.0.path={tmp_path}/part-*.parquet", "files.0.source=eukaryote",
            f"files.1.path={tmp_path}/text-0.parquet", "files.1.source=prokaryote",
            "files.1.species_type=pro",
        ]  # fmt: skip
        assert build(tmp_path / "c", *settings) == 0
        rows = read_source(tmp_path / "c", "eukaryote", "train").to_pylist()
        assert [r["sequence"] for r in rows] == bases
        assert [(r["gene_type"], r["species_type"], r["strand"]) for r in rows] == [
            ("cds", "fng", "+"), ("tRNA", "fng", "-"), ("", "fng", "+")
        ]  # fmt: skip
        assert rows[1]["segments"] == [{"start": 200, "end": 290, "strand": "-"}]
        (text,) = read_source(tmp_path / "c", "prokaryote", "train").to_pylist()
        assert text["species_type"] == "pro" and text["end"] == 80

    def test_sequences_by_line_and_a_held_out_share(self, tmp_path):
        lines = [random_bases(300, i) for i in range(400)]
        with gzip.open(tmp_path / "p.txt.gz", "wt") as sink:
            sink.write("\n".join(lines) + "\n\n")
        settings = [
            f"files.0.path={tmp_path}/p.txt.gz", "files.0.source=promoter",
            "files.0.species_type=mam", "files.0.test_share=0.25",
        ]  # fmt: skip
        assert build(tmp_path / "c", *settings) == 0
        counts = read_manifest(tmp_path / "c")["sources"]["promoter"]
        assert counts["train"]["records"] + counts["test"]["records"] == 400
        assert 70 < counts["test"]["records"] < 130
        names = {r["name"]: r["sequence"] for r in rows_of(tmp_path / "c", "promoter")}
        assert names["p.txt.gz:7"] == lines[6]

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("x.txt", b"ACGT\nACXT\n", "x.txt line 2: 'X' is not a DNA letter"),
            ("x.parquet", b"nonsense", "x.parquet: cannot be read as Parquet"),
            ("x.txt.gz", gzip.compress(b"ACGT" * 999, mtime=0)[:40], "x.txt.gz"),
            ("x.fa", b">a\nACGT\n>a\nAC\n", "x.fa line 3: contig 'a' stands twice"),
        ],
    )
    def test_bad_files_are_named(self, tmp_path, capsys, name, content, message):
        (tmp_path / name).write_bytes(content)
        settings = [f"files.0.path={tmp_path}/{name}", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 2
        (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error")]
        assert message in line
        assert [p.name for p in tmp_path.iterdir() if p.suffix != ".fai"] == [name]

    def test_a_corpus_read_again_keeps_its_traces(self, corpus, tmp_path):
        settings = [f"files.0.path={corpus}/mrna/*.parquet", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings, "keep.near_identity=1.0") == 0
        for split in ("train", "test"):
            before = read_source(corpus, "mrna", split).to_pylist()
            assert read_source(tmp_path / "c", "mrna", split).to_pylist() == before

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"sequence": ["ACGT" * 30, None]}, "record 2: has no sequence"),
            ({"sequence": ["Hello <tag>"]}, "record 1: 'e' is not a DNA letter"),
            ({"sequence": ["ACGT"], "species_type": ["<zebra>"]}, "species_type 'zebra' is none"),
            ({"sequence": ["ACGT"], "start": ["ten"]}, "start and end must be whole numbers"),
            ({"sequence": ["ACGT"], "start": [50], "end": [20]}, "need 0 <= start < end"),
            ({"sequence": ["ACGT"], "strand": ["?"]}, "strand '\\?': must be"),
            ({"dna": ["ACGT"]}, "has no column 'sequence' or 'text', only dna"),
        ],
    )
    def test_records_that_are_none(self, tmp_path, capsys, columns, message):
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")
        settings = [f"files.0.path={tmp_path}/x.parquet", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 2
        (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error")]
        assert re.search(message, line) and "x.parquet" in line
        assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]

    def test_numbers_where_the_release_has_text(self, tmp_path):
        table = pa.table({"sequence": [random_bases(90, 1)], "record_id": [7], "end": [95]})
        pq.write_table(table, tmp_path / "x.parquet")
        settings = [f"files.0.path={tmp_path}/x.parquet", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 0
        (row,) = rows_of(tmp_path / "c", "mrna")
        assert (row["record_id"], row["end"], row["segments"]) == ("7", 95, [])


class TestFaults:
    def test_what_is_in_the_way_is_not_removed(self, genome, tmp_path, capsys):
        (tmp_path / "c.work").mkdir()
        (tmp_path / "c.work" / "thesis.txt").write_text("years")
        assert build(tmp_path / "c", *assembly(genome)) == 2
        assert "c.work: is in the way and not of a build" in capsys.readouterr().err
        assert (tmp_path / "c.work" / "thesis.txt").read_text() == "years"

    def test_one_build_at_a_time(self, genome, tmp_path, capsys):
        from filelock import FileLock

        with FileLock(f"{tmp_path}/c.lock"):
            for _ in range(2):  # the one that is refused leaves the lock where it is
                assert build(tmp_path / "c", *assembly(genome)) == 2
                assert (tmp_path / "c.lock").exists()
        assert "another build of it is running" in capsys.readouterr().err

    def test_names_with_line_ends_and_tabs(self, tmp_path):
        bases, gff3, _ = place_gene()
        write_fasta(tmp_path / "genome.fa", {"c1": bases})
        (tmp_path / "genes.gff3").write_text(gff3.replace("Name=ABC", "Name=A%0AB%09C"))
        keep = "keep.min_record_bp=900"
        assert build(tmp_path / "c", *assembly(tmp_path, holdout="[]"), keep) == 0
        lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()
        assert len(lines) == 3 and all(line.count("\t") == 6 for line in lines)
        assert read_manifest(tmp_path / "c")["dropped"] == {
            "eukaryote:shorter_than_min_record_bp": 1,
            "mrna:shorter_than_min_record_bp": 1,
        }

    def test_an_empty_file(self, tmp_path, capsys):
        (tmp_path / "x.txt").write_text("")
        settings = [f"files.0.path={tmp_path}/x.txt", "files.0.source=promoter"]
        assert build(tmp_path / "c", *settings) == 2
        assert "x.txt: has no record" in capsys.readouterr().err

    def test_one_broken_input_of_many(self, genome, tmp_path, capsys):
        broken = tmp_path / "broken"
        shutil.copytree(genome, broken)
        (broken / "genes.gff3").write_text("chr1\tx\tgene\tten\t20\t.\t+\t.\tID=g\n")
        settings = assembly(genome) + assembly(broken, 1, name="broken")
        assert build(tmp_path / "c", *settings) == 2
        (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error")]
        assert "genes.gff3 line 1: need 1 <= start <= end" in line and "c.work" in line
        assert not (tmp_path / "c").exists()
        assert build(tmp_path / "c", *settings, "keep_going=true") == 0
        manifest = read_manifest(tmp_path / "c")
        assert [each["title"] for each in manifest["left_out"]] == ["broken"]
        assert build(tmp_path / "one", *assembly(genome)) == 0
        assert manifest["outputs"] == read_manifest(tmp_path / "one")["outputs"]
        assert not (tmp_path / "c.work").exists()

    def test_nothing_but_broken_inputs(self, genome, tmp_path, capsys):
        settings = assembly(genome, genome=tmp_path / "none.fa")
        assert build(tmp_path / "c", *settings, "keep_going=true") == 2
        assert "none.fa: no such file" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_another_recipe_starts_over(self, genome, tmp_path, capsys, monkeypatch):
        from data_pipeline import build as module

        def stop(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "select", stop)
        assert build(tmp_path / "c", *assembly(genome)) == 130
        assert (tmp_path / "c.work").exists() and not (tmp_path / "c").exists()
        monkeypatch.undo()
        assert build(tmp_path / "c", *assembly(genome), "cut.flank_bp=50") == 0
        assert "is of another recipe or input; starting over" in capsys.readouterr().err
        assert build(tmp_path / "d", *assembly(genome), "cut.flank_bp=50") == 0
        outputs = [read_manifest(tmp_path / name)["outputs"] for name in "cd"]
        assert outputs[0] == outputs[1]

    def test_a_rerun_does_only_what_is_missing(self, genome, tmp_path, monkeypatch):
        from data_pipeline import build as module

        settings = assembly(genome) + assembly(genome, 1, name="again", holdout="[]")
        assert build(tmp_path / "whole", *settings) == 0
        made = []
        make = module.make_shard

        def fail_second(config, rank, folder):
            made.append(rank)
            if rank == 1 and len(made) == 2:
                raise KeyboardInterrupt
            make(config, rank, folder)

        monkeypatch.setattr(module, "make_shard", fail_second)
        assert build(tmp_path / "c", *settings) == 130
        assert build(tmp_path / "c", *settings) == 0
        assert made == [0, 1, 1]
        whole, again = (read_manifest(tmp_path / name) for name in ("whole", "c"))
        assert whole["outputs"] == again["outputs"]


def test_two_assemblies_are_two_files(genome, tmp_path):
    settings = assembly(genome) + assembly(genome, 1, name="copy", holdout="[]")
    assert build(tmp_path / "c", *settings) == 0
    manifest = read_manifest(tmp_path / "c")
    # Every record of the second is a copy of one of the first, so that nothing of it is left.
    assert [p.name for p in sorted((tmp_path / "c" / "mrna").iterdir())] == [
        "test-00000.parquet", "train-00000.parquet"
    ]  # fmt: skip
    kinds = {key.split(":")[1] for key in manifest["dropped"]}
    assert {"duplicate_sequence", "equals_held_out_record"} <= kinds
    one = tmp_path / "one"
    assert build(one, *assembly(genome)) == 0
    for name in ("mrna/train-00000.parquet", "eukaryote/train-00000.parquet"):
        assert sha256_of_file(one / name) == sha256_of_file(tmp_path / "c" / name)


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
