"""Files that are records already, and builds that go wrong or stop."""

import csv
import gzip
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.corpus import read_manifest, read_source
from carbon.errors import UserError
from carbon.io.locks import locked_output
from data_pipeline import build as building
from data_pipeline.__main__ import main
from tests.helpers.curation import assembly, build, rows_of
from tests.helpers.files import place_gene, random_bases, write_fasta
from tests.helpers.near_duplicates import mutated, substituted
from tests.helpers.schemas import check_manifest


class TestFiles:
    def test_released_layout(self, tmp_path):
        """The columns of the released corpus; codes come out of their brackets."""
        bases = [random_bases(90, i) for i in range(3)]
        released = {
            "begin_of_sequence": ["<s>"] * 3,
            "gene_type": ["<cds>", "<tRNA>", None],
            "species_type": ["<fng>"] * 3,
            "strand": ["<+>", "<->", "<+>"],
            "sequence": bases,
            "record_id": ["NC_1.1", "NC_1.1", "NC_2.1"],
            "start": [10, 200, 0],
            "end": [100, 290, 90],
        }
        pq.write_table(pa.table(released), tmp_path / "part-0.parquet")
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
        ("name", "content"),
        [("x.parquet", b"nonsense"), ("x.txt.gz", gzip.compress(b"ACGT" * 999, mtime=0)[:40])],
    )
    def test_bad_files_are_named(self, tmp_path, capsys, name, content):
        (tmp_path / name).write_bytes(content)
        settings = [f"files.0.path={tmp_path}/{name}", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 2
        assert name in capsys.readouterr().err
        assert [p.name for p in tmp_path.iterdir() if p.suffix != ".fai"] == [name]

    def test_a_corpus_read_again_keeps_its_traces(self, corpus, tmp_path):
        settings = [f"files.0.path={corpus}/mrna/*.parquet", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings, "keep.near_identity=1.0") == 0
        for split in ("train", "test"):
            before = read_source(corpus, "mrna", split).to_pylist()
            assert read_source(tmp_path / "c", "mrna", split).to_pylist() == before

    def test_held_out_files_of_another_corpus_stay_held_out(self, tmp_path):
        """Also copies of held-out records in the other's training file go, and similar ones."""
        names = ["dev", "eval_1", "held_out", "heldout", "test-0-of-1", "test", "validation-0"]
        train, *held_out = (random_bases(300, i) for i in range(1 + len(names)))
        similar = mutated(held_out[0], 0.01, 1)
        (tmp_path / "in").mkdir()
        texts = {"train-0": [train, held_out[-1], similar]}
        texts |= {name: [bases] for name, bases in zip(names, held_out, strict=True)}
        for name, bases in texts.items():
            pq.write_table(pa.table({"text": bases}), tmp_path / "in" / f"{name}.parquet")
        own = ["files.0.source=own", "files.0.both_strands=true"]
        assert build(tmp_path / "c", f"files.0.path={tmp_path}/in/*", *own) == 0
        for split, bases in (("train", [train]), ("test", held_out)):
            rows = read_source(tmp_path / "c", "own", split).to_pylist()
            assert [row["sequence"] for row in rows] == bases

    def test_a_corpus_with_an_empty_split_is_read_again(self, tmp_path, capsys):
        write_fasta(tmp_path / "a.fa", {"a": random_bases(300, 1)})
        first = [f"files.0.path={tmp_path}/a.fa", "files.0.source=eukaryote"]
        assert build(tmp_path / "c", *first) == 0
        files = tmp_path / "c" / "eukaryote"
        again = [f"files.0.path={files}/*.parquet", "files.0.source=eukaryote"]
        assert build(tmp_path / "again", *again) == 0
        assert rows_of(tmp_path / "again", "eukaryote") == rows_of(tmp_path / "c", "eukaryote")
        again[0] = f"files.0.path={files}/test-*.parquet"
        assert build(tmp_path / "none", *again) == 2
        assert "test-00000.parquet: has no record; give" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"sequence": ["ACGT" * 30, None]}, "record 2: has no sequence"),
            ({"sequence": ["Hello <tag>"]}, "record 1: 'e' is not"),
            ({"sequence": ["ACGT"], "species_type": ["<zebra>"]}, "zebra"),
            ({"sequence": ["ACGT"], "start": [50], "end": [20]}, "need 0 <= start < end"),
            ({"sequence": ["ACGT"], "strand": ["?"]}, "strand '?'"),
        ],
    )
    def test_records_that_are_none(self, tmp_path, capsys, columns, message):
        pq.write_table(pa.table(columns), tmp_path / "x.parquet")
        settings = [f"files.0.path={tmp_path}/x.parquet", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 2
        line = capsys.readouterr().err.splitlines()[-1]
        assert message in line and "x.parquet" in line
        assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]

    def test_numbers_where_the_release_has_text(self, tmp_path):
        table = pa.table({"sequence": [random_bases(90, 1)], "record_id": [7], "end": [95]})
        pq.write_table(table, tmp_path / "x.parquet")
        settings = [f"files.0.path={tmp_path}/x.parquet", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 0
        (row,) = rows_of(tmp_path / "c", "mrna")
        assert (row["record_id"], row["end"], row["segments"]) == ("7", 95, [])

    def test_a_place_without_a_strand_is_read_as_the_contig_stands(self, tmp_path, capsys):
        contig = random_bases(300, 1)
        write_fasta(tmp_path / "g.fa", {"c1": contig})
        row = {"sequence": contig[10:100], "record_id": "c1", "start": 10, "end": 100}
        table = pa.Table.from_pylist([row | {"strand": "."}])
        pq.write_table(table, tmp_path / "x.parquet")
        settings = [f"files.0.path={tmp_path}/x.parquet", "files.0.source=promoter"]
        assert build(tmp_path / "c", *settings) == 0
        (row,) = rows_of(tmp_path / "c", "promoter")
        assert (row["strand"], row["segments"]) == (".", [{"start": 10, "end": 100, "strand": "+"}])
        words = ["--source", "promoter", "--row", "0", "--genome", f"{tmp_path}/g.fa"]
        assert main(["inspect", f"{tmp_path}/c", *words]) == 0
        assert "every base agrees" in capsys.readouterr().out

    def test_segments_of_another_form_are_refused(self, tmp_path, capsys):
        table = pa.table({"sequence": [random_bases(90)], "segments": [[{"start": 0, "end": 90}]]})
        pq.write_table(table, tmp_path / "x.parquet")
        settings = [f"files.0.path={tmp_path}/x.parquet", "files.0.source=mrna"]
        assert build(tmp_path / "c", *settings) == 2
        assert (
            "x.parquet record 1: segments must have start, end and strand"
            in capsys.readouterr().err
        )


class TestFaults:
    def test_what_is_in_the_way_is_not_removed(self, genome, tmp_path, capsys):
        (tmp_path / "c.work").mkdir()
        (tmp_path / "c.work" / "thesis.txt").write_text("years")
        assert build(tmp_path / "c", *assembly(genome)) == 2
        assert "c.work: is in the way and not of a build" in capsys.readouterr().err
        assert (tmp_path / "c.work" / "thesis.txt").read_text() == "years"

    def test_one_build_at_a_time(self, genome, tmp_path, capsys):
        with locked_output(tmp_path / "c"):
            assert build(tmp_path / "c", *assembly(genome)) == 2
        assert f"{tmp_path}/c: in use by process " in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_names_with_line_ends_and_tabs(self, tmp_path):
        bases, gff3, _ = place_gene()
        write_fasta(tmp_path / "genome.fa", {"c1": bases})
        (tmp_path / "genes.gff3").write_text(gff3.replace("Name=ABC", "Name=A%0AB%09C"))
        write_fasta(tmp_path / "long.fa", {"stays": random_bases(1000)})
        more = [f"files.0.path={tmp_path}/long.fa", "files.0.source=promoter"]
        keep = "keep.min_record_bp=900"
        assert build(tmp_path / "c", *assembly(tmp_path, holdout="[]"), keep, *more) == 0
        lines = (tmp_path / "c" / "dropped.tsv").read_text().splitlines()
        assert len(lines) == 3 and all(line.count("\t") == 6 for line in lines)
        assert read_manifest(tmp_path / "c")["dropped"] == {
            "eukaryote:shorter_than_min_record_bp": 1,
            "mrna:shorter_than_min_record_bp": 1,
        }

    def test_quotation_marks_and_line_ends_in_names_are_counted_right(self, tmp_path):
        """A record that goes for one of such a name, and one of such an identifier."""
        bases, other = random_bases(900, 1), random_bases(900, 2)
        write_fasta(tmp_path / "x.fa", {'5"utr': bases, "near": substituted(bases, 0.02, 1)})
        rows = {"sequence": [other, other], "record_id": ["a\nb", "c\td"], "name": ["e", "f"]}
        pq.write_table(pa.table(rows), tmp_path / "y.parquet")
        words = [f"files.0.path={tmp_path}/x.fa", f"files.1.path={tmp_path}/y.parquet"]
        words += ["files.0.source=mrna", "files.1.source=promoter"]
        assert build(tmp_path / "c", *words) == 0
        with (tmp_path / "c" / "dropped.tsv").open(newline="") as lines:
            _, *rows = csv.reader(lines, delimiter="\t")
        assert [(row[0], row[2], row[4]) for row in rows] == [
            ("mrna", 'near_duplicate:5"utr', "near"),
            ("promoter", "duplicate_sequence", "c d"),
        ]
        assert read_manifest(tmp_path / "c")["dropped"] == {
            "mrna:near_duplicate": 1,
            "promoter:duplicate_sequence": 1,
        }

    def test_a_killed_removal_of_the_work_is_not_continued(self, tmp_path, monkeypatch):
        """Of the shards that are left, files are gone; a build of the same recipe makes them."""
        write_fasta(tmp_path / "a.fa", {"a": random_bases(900, 1)})
        write_fasta(tmp_path / "b.fa", {"b": random_bases(900, 2)})
        settings = [f"files.0.path={tmp_path}/[ab].fa", "files.0.source=mrna"]
        remove = shutil.rmtree

        def be_killed(path, *rest, **options):
            if Path(path).name in ("c.work", "shards"):
                remove(tmp_path / "c.work" / "dedup", ignore_errors=True)
                next((tmp_path / "c.work").glob("shards/*/mrna.arrow")).unlink()
                raise KeyboardInterrupt
            remove(path, *rest, **options)

        with monkeypatch.context() as patch:
            patch.setattr(building.shutil, "rmtree", be_killed)
            assert build(tmp_path / "c", *settings) == 130
        remove(tmp_path / "c")
        assert build(tmp_path / "c", *settings) == 0
        assert [row["name"] for row in rows_of(tmp_path / "c", "mrna")] == ["a", "b"]

    def test_tasks_of_another_recipe_do_not_mix_in(self, tmp_path, monkeypatch, capsys):
        """Tasks under Slurm run after the command that submitted them has ended."""
        for name in "ab":
            write_fasta(tmp_path / f"{name}.fa", {name: random_bases(900)})
        submitted = []
        with monkeypatch.context() as patch:
            patch.setattr(building, "run_steps", lambda _, steps, __: submitted.append(steps))
            for name in "ab":
                words = [f"files.0.path={tmp_path}/{name}.fa", "files.0.source=mrna"]
                assert build(tmp_path / "c", *words) == 0
        older, newer = submitted
        for step in older:
            with pytest.raises(UserError, match="is of another recipe or input by now"):
                step.run(0)
        for step in newer:
            for rank in range(step.num_ranks):
                step.run(rank)
        assert [row["name"] for row in rows_of(tmp_path / "c", "mrna")] == ["b"]

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
        check_manifest(manifest)
        assert build(tmp_path / "one", *assembly(genome)) == 0
        assert manifest["outputs"] == read_manifest(tmp_path / "one")["outputs"]
        assert not (tmp_path / "c.work").exists()

    def test_a_rerun_does_only_what_is_missing(self, tmp_path, monkeypatch):
        settings = []
        for i, name in enumerate("ab"):
            write_fasta(tmp_path / f"{name}.fa", {name: random_bases(900, i)})
            settings += [f"files.{i}.path={tmp_path}/{name}.fa", f"files.{i}.source=mrna"]
        assert build(tmp_path / "whole", *settings) == 0
        made = []
        make = building.make_shard

        def fail_second(config, rank, folder, families):
            made.append(rank)
            if rank == 1 and len(made) == 2:
                raise KeyboardInterrupt
            return make(config, rank, folder, families)

        monkeypatch.setattr(building, "make_shard", fail_second)
        assert build(tmp_path / "c", *settings) == 130
        assert build(tmp_path / "c", *settings) == 0
        assert made == [0, 1, 1]
        whole, again = (read_manifest(tmp_path / name) for name in ("whole", "c"))
        assert whole["outputs"] == again["outputs"]
