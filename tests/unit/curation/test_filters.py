"""Which records are dropped, for what reason; evaluation sets that are not trained on."""

import math
import random
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from carbon.corpus import read_manifest, read_source
from carbon.genome import Interval, Reference, reverse_complement
from carbon.io.files import sha256_of_file
from data_pipeline import build as building
from data_pipeline.filters import compositions_of
from data_pipeline.inputs.evaluations import EvaluationSequences
from data_pipeline.records import digest_of
from tests.helpers.curation import assembly, build, rows_of
from tests.helpers.files import place_gene, random_bases, write_fasta
from tests.helpers.near_duplicates import mutated


class TestFilters:
    @given(st.lists(st.text(alphabet="ACGTacgtNn-", max_size=20), max_size=4))
    @example(["A" * 100, "acgtNN", "ACT" * 40, "AC", "RYN-"])
    @settings(max_examples=40)
    def test_sequences_are_counted_at_once_as_each_alone(self, sequences):
        """One beside the other: no trimer lies on two, and what is no base is in none."""
        for sequence, found in zip(sequences, compositions_of(sequences), strict=True):
            upper = sequence.upper()
            trimers = Counter(upper[i : i + 3] for i in range(len(upper) - 2))
            counts = [n for each, n in trimers.items() if set(each) <= set("ACGT")]
            n = sum(counts)
            entropy = -sum(c / n * math.log2(c / n) for c in counts)
            assert found.length_bp == len(sequence)
            assert found.num_known == sum(upper.count(base) for base in "ACGT")
            assert found.num_masked == sum(map(str.islower, sequence))
            expected = entropy / math.log2(min(n, 64)) if n > 1 else 0
            assert found.complexity == pytest.approx(expected, abs=1e-12)

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
        words = [f"files.0.path={path}", "files.0.source=mrna", "keep.max_record_bp=4000"]
        assert build(tmp_path / "c", *words, "keep.repeat_weight=0.25") == 0
        lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()[1:]
        reasons = {line.split("\t")[1]: line.split("\t")[2] for line in lines}
        expected = {
            "short": "shorter_than_min_record_bp",
            "long": "longer_than_max_record_bp",
            "gaps": "too_many_n",
            "none": "no_known_base",
            "simple": "low_complexity",
        }
        assert {name: reasons.get(name) for name in expected} == expected
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

    def test_repeats_are_down_weighted_alike_in_both_splits(self, tmp_path):
        """Split and down-weighting are independent draws.

        Of 1,000 records that are masked throughout, 300 are test. Weight 0.25 drops 225 of them and
        525 of the 700 others; five standard deviations of these are 5 x sqrt(525 x 0.25) = 57.
        """
        bases = [random_bases(80, i).lower() for i in range(1000)]
        path = tmp_path / "x.fa"
        path.write_text("".join(f">r{i}\n{each}\n" for i, each in enumerate(bases)))
        words = [f"files.0.path={path}", "files.0.source=genome", "files.0.test_share=0.3"]
        words.append("keep.near_identity=1.0")
        split_of = {}
        for weight in (1, 0.25):
            corpus = tmp_path / f"weight{weight}"
            assert build(corpus, *words, f"keep.repeat_weight={weight}") == 0
            for split in ("train", "test"):
                rows = read_source(corpus, "genome", split).to_pylist()
                names = {row["name"] for row in rows}
                if weight == 1:
                    split_of |= dict.fromkeys(names, split)
                    continue
                whole = {name for name, told in split_of.items() if told == split}
                assert names <= whole  # each record keeps its split
                assert abs(len(whole) - len(names) - 0.75 * len(whole)) < 57
        assert len(split_of) == 1000

    @given(sequence=st.text(alphabet="ACGTN", min_size=1, max_size=40))
    def test_a_digest_is_of_both_strands_and_cases(self, sequence):
        digest = digest_of(sequence)
        assert digest == digest_of(reverse_complement(sequence).lower())
        assert digest != digest_of(sequence + "A") or sequence == reverse_complement(sequence)


def stop(*_):
    raise KeyboardInterrupt


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

    @pytest.mark.parametrize("form", ["bed", "fa"])
    def test_what_overlaps_or_contains_one_goes(self, genome, corpus, tmp_path, form):
        victim = next(r for r in read_source(corpus, "eukaryote", "train").to_pylist())
        contig, at = victim["record_id"], victim["start"] + 150
        place = f"track\n{contig}\t{at}\t{at + 1}\n"
        sequence = f">e1\n{mutated(victim['sequence'][100:400], 0.01, 1)}\n"
        path = tmp_path / f"e.{form}"
        path.write_text(sequence if form == "fa" else place)
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
        assert build(tmp_path / "b", *assembly(tmp_path, **common), *more) == 2
        assert "no record is left of 1 inputs: overlaps_evaluation (2)" in capsys.readouterr().err
        (tmp_path / "e.bed").write_text("chrc1\t5150\t5151\n")
        assert build(tmp_path / "c", *assembly(tmp_path, **common), *more) == 2
        assert "no place lies on assembly 'genome'" in capsys.readouterr().err

    def test_another_evaluation_file_starts_over(self, tmp_path, monkeypatch):
        write_fasta(tmp_path / "genome.fa", {"c": random_bases(2000, 1)})
        path = tmp_path / "e.bed"
        words = ["assemblies.0.name=g", f"assemblies.0.genome={tmp_path}/genome.fa"]
        words += ["assemblies.0.holdout=[]", "cut.chunk_bp=1000", f"evaluations.0.path={path}"]
        words += ["evaluations.0.assembly=g"]
        path.write_text("c\t10\t19\n")
        with monkeypatch.context() as patch:
            patch.setattr(building, "index_rows", stop)
            assert build(tmp_path / "c", *words) == 130
        path.write_text("c\t1010\t1019\n")
        assert build(tmp_path / "c", *words) == 0
        assert [row["start"] for row in rows_of(tmp_path / "c", "genome")] == [0]
        assert read_manifest(tmp_path / "c")["evaluations"][0]["sha256"] == sha256_of_file(path)
