"""Sources as a run opens them: prepared once, known by their content, and whole."""

import hashlib
import json
import shutil

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.corpus import (
    open_packing,
    open_store,
    read_manifest,
    source_files,
)
from carbon.errors import CorpusError
from tests.helpers.corpus import (
    RECORDS,
    open_table,
    packing_of,
)
from tests.helpers.files import served


def test_what_is_missing_or_torn_of_a_corpus_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"no manifest\.json"):
        read_manifest(tmp_path)
    with pytest.raises(CorpusError, match="no train files of a source 'dna'"):
        source_files(tmp_path, "dna", "train")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CorpusError, match="Invalid JSON"):
        read_manifest(tmp_path)


class TestStore:
    def test_it_is_made_once_and_found_again(self, tmp_path):
        source = open_table(RECORDS, 40, folder=tmp_path)
        texts = RECORDS["sequence"].to_pylist()
        store = source.store
        for i, text in enumerate(texts):
            assert store.letters(i, 0, 10**6).tobytes().decode() == text
            assert store.letters(i, 3, 7).tobytes().decode() == text[3:7]
        assert store.lengths_bp(0, 5).tolist() == [len(text) for text in texts]
        assert store.lengths_bp(2, 4).tolist() == [55, 6]
        assert (store.genes >= 0).tolist() == [True, True, False, False, True]
        before = (store.folder / "bases.bin").stat().st_mtime_ns
        again = open_table(RECORDS, 40, folder=tmp_path)
        assert again.store.folder == store.folder
        assert (store.folder / "bases.bin").stat().st_mtime_ns == before
        other = open_table(RECORDS.slice(0, 4), 40, folder=tmp_path)
        assert other.store.folder != store.folder and other.store.num_records == 4

    def test_renaming_the_folder_changes_nothing(self, tmp_path):
        (tmp_path / "a").mkdir()
        one = open_table(RECORDS, 40, folder=tmp_path / "a")
        key = one.store.key
        (tmp_path / "a").rename(tmp_path / "b")
        other = open_store(
            {str(tmp_path / "b/train-0.parquet"): None}, tmp_path / "b/cache", "source"
        )
        assert other.key == key
        packing = open_packing(other, 40)
        assert packing.record.tolist() == packing_of(one).record.tolist()

    def test_a_packing_of_another_format_is_made_anew(self, tmp_path):
        store = open_table(RECORDS, 40, folder=tmp_path).store
        record = open_packing(store, 40).record.tolist()
        path = store.folder / "rows-40" / "packing.json"
        table = json.loads(path.read_text())
        path.write_text(json.dumps(table | {"format": table["format"] - 1}))
        (path.parent / "record.bin").write_bytes(bytes(8 * len(record)))
        assert open_packing(store, 40).record.tolist() == record
        assert json.loads(path.read_text()) == table

    def test_parquet_that_is_not_local(self, tmp_path):
        """`memory://` stands in for any store that fsspec opens."""
        local = open_table(RECORDS, 40, folder=tmp_path)
        with fsspec.open("memory://bucket/source/part-0.parquet", "wb") as sink:
            sink.write((tmp_path / "train-0.parquet").read_bytes())
        files = source_files("memory://bucket", "source", "train")
        assert list(files) == ["memory:///bucket/source/part-0.parquet"]
        remote = open_store(files, tmp_path / "far", "source")
        assert np.array_equal(remote.bases, local.store.bases)
        assert remote.key == open_store(files, tmp_path / "far", "source").key

    def test_a_corpus_behind_http(self, tmp_path):
        """A server that gives ranges, as those of stores do; with a manifest and without one."""
        (tmp_path / "web" / "dna").mkdir(parents=True)
        local = open_table(RECORDS, 40, folder=tmp_path)
        data = (tmp_path / "train-0.parquet").read_bytes()
        (tmp_path / "web" / "dna" / "train-0.parquet").write_bytes(data)
        with served(tmp_path / "web") as url:
            (path,) = source_files(url, "dna", "train")
            assert path == f"{url}/dna/train-0.parquet"
            bare = open_store({path: None}, tmp_path / "one", "source")
            outputs = {"dna/train-0.parquet": hashlib.sha256(data).hexdigest()}
            manifest = {"outputs": outputs, "held_out": [], "sources": {}}
            (tmp_path / "web" / "manifest.json").write_text(json.dumps(manifest))
            checked = open_store(source_files(url, "dna", "train"), tmp_path / "two", "source")
            for store in (bare, checked):
                assert np.array_equal(store.bases, local.store.bases)
            here = {str(tmp_path / "train-0.parquet"): hashlib.sha256(data).hexdigest()}
            assert checked.key == open_store(here, tmp_path / "one", "source").key
            with pytest.raises(CorpusError, match=r"none\.parquet: cannot be opened"):
                open_store({f"{url}/none.parquet": None}, tmp_path / "two", "source")

    def test_what_is_missing_torn_or_swapped_is_named(self, tmp_path):
        pq.write_table(RECORDS, tmp_path / "a.parquet")
        data = (tmp_path / "a.parquet").read_bytes()
        sums = hashlib.sha256(data).hexdigest()
        assert open_store({str(tmp_path / "a.parquet"): sums}, tmp_path / "c", "s").num_records == 5
        pq.write_table(RECORDS.slice(1), tmp_path / "b.parquet")
        (tmp_path / "torn.parquet").write_bytes(data[:-9])
        pq.write_table(pa.table({"dna": ["A"]}), tmp_path / "other.parquet")
        pq.write_table(pa.table({"sequence": ["A", None]}), tmp_path / "null.parquet")
        for name, message in (
            ("b.parquet", "is not the file that the manifest names"),
            ("none.parquet", "cannot be opened"),
            ("torn.parquet", "is not whole Parquet"),
            ("other.parquet", "has no column 'sequence' or 'text'"),
            ("null.parquet", "a record has no sequence"),
        ):
            expected = sums if name == "b.parquet" else None
            with pytest.raises(CorpusError, match=message) as error:
                open_store({str(tmp_path / name): expected}, tmp_path / "c", "s")
            assert name in str(error.value) and "\n" not in str(error.value)
        assert sum(path.is_dir() for path in (tmp_path / "c").iterdir()) == 1  # nothing half-made

    def test_it_is_known_by_what_is_in_it(self, tmp_path):
        """A base in the middle, which no footer tells; with sums of a manifest and without."""
        path = tmp_path / "a.parquet"

        def written(middle):
            table = pa.table({"sequence": ["A" * 60, middle * 60, "T" * 60]})
            pq.write_table(table, path, compression="none")
            return hashlib.sha256(path.read_bytes()).hexdigest()

        first = written("C")
        assert open_store({str(path): None}, tmp_path / "c", "s").letters(1, 0, 2)[0] == ord("C")
        assert open_store({str(path): first}, tmp_path / "d", "s").letters(1, 0, 2)[0] == ord("C")
        second = written("G")
        assert open_store({str(path): None}, tmp_path / "c", "s").letters(1, 0, 2)[0] == ord("G")
        assert open_store({str(path): second}, tmp_path / "d", "s").letters(1, 0, 2)[0] == ord("G")
        with pytest.raises(CorpusError, match="is not the file that the manifest names"):
            open_store({str(path): "0" * 64}, tmp_path / "c", "s")

    @pytest.mark.parametrize("kind", ["dictionary", "binary", "large_string"])
    def test_other_kinds_of_text(self, tmp_path, kind):
        column = RECORDS["sequence"].combine_chunks()
        column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
        source = open_table(RECORDS.set_column(0, "sequence", column), 40, folder=tmp_path)
        assert source.store.letters(1, 0, 999).tobytes().decode() == RECORDS["sequence"][1].as_py()

    @pytest.mark.parametrize(
        "table",
        [
            {"sequence": [1, 2]},
            {"sequence": [["A"], ["C"]]},
            {"sequence": ["A"], "gene_type": [["cds"]]},
            {"sequence": ["A"], "gene_type": pa.array([b"\xff"])},
        ],
    )
    def test_columns_of_other_kinds_are_named(self, tmp_path, table):
        pq.write_table(pa.table(table), tmp_path / "a.parquet")
        with pytest.raises(CorpusError, match=r"a\.parquet: cannot be read \("):
            open_store({str(tmp_path / "a.parquet"): None}, tmp_path / "c", "s")

    def test_what_a_crash_leaves_is_made_again(self, tmp_path):
        source = open_table(RECORDS, 40, folder=tmp_path)
        for marker in ("store.json", "rows-40/packing.json"):
            (source.store.folder / marker).write_text("")
            left = source.store.folder.with_name(f".77.{source.store.folder.name}")
            left.mkdir()
            again = open_table(RECORDS, 40, folder=tmp_path)
            assert np.array_equal(again.store.bases, source.store.bases)
            assert packing_of(again).num_rows == packing_of(source).num_rows
            assert marker != "store.json" or not left.exists()

    def test_a_cut_file_of_the_store_is_named(self, tmp_path):
        for name in ("ends.bin", "rows-40/start.bin"):
            source = open_table(RECORDS, 40, folder=tmp_path)
            path = source.store.folder / name
            path.write_bytes(path.read_bytes()[:-1])
            with pytest.raises(CorpusError, match=f"{path.name}: is not whole; remove its folder"):
                open_table(RECORDS, 40, folder=tmp_path)
            path.unlink()
            with pytest.raises(CorpusError, match="is not whole"):
                open_table(RECORDS, 40, folder=tmp_path)
            shutil.rmtree(path.parent)
        again = open_table(RECORDS, 40, folder=tmp_path)
        assert packing_of(again).num_rows == packing_of(source).num_rows

    def test_what_is_held_out_is_never_trained_on_for_want_of_a_manifest(self, tmp_path):
        (tmp_path / "dna").mkdir()
        for name in ("part-0", "test-0", "test", "validation-00000-of-00001", "dev"):
            pq.write_table(RECORDS, tmp_path / "dna" / f"{name}.parquet")
        (path,) = source_files(tmp_path, "dna", "train")
        assert path.endswith("dna/part-0.parquet")
        (tmp_path / "manifest.json").write_text("{torn")
        with pytest.raises(CorpusError, match="Invalid JSON"):
            source_files(tmp_path, "dna", "train")
        for broken in ("5", '{"outputs": [], "held_out": [], "sources": {}}'):
            (tmp_path / "manifest.json").write_text(broken)
            with pytest.raises(CorpusError, match="Input should be"):
                source_files(tmp_path, "dna", "train")

    def test_a_folder_with_letters_of_a_pattern(self, tmp_path):
        (tmp_path / "c[1]" / "dna").mkdir(parents=True)
        pq.write_table(RECORDS, tmp_path / "c[1]" / "dna" / "a.parquet")
        assert len(source_files(f"{tmp_path}/c[1]/", "dna", "train")) == 1
