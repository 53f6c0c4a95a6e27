"""Sources as a run opens them: prepared once, known by their content, and whole."""

import hashlib
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.corpus import open_packing, open_store, source_files
from carbon.errors import CorpusError
from tests.helpers.corpus import RECORDS, open_table, packing_of
from tests.helpers.files import served


class TestStore:
    def test_it_is_made_once_and_found_again(self, tmp_path):
        (tmp_path / "c[1]").mkdir()
        source = open_table(RECORDS, 40, folder=tmp_path / "c[1]")
        texts = RECORDS["sequence"].to_pylist()
        store = source.store
        for i, text in enumerate(texts):
            assert store.letters(i, 0, 10**6).tobytes().decode() == text
            assert store.letters(i, 3, 7).tobytes().decode() == text[3:7]
        assert store.lengths_bp(0, 5).tolist() == [len(text) for text in texts]
        assert store.lengths_bp(2, 4).tolist() == [55, 6]
        assert (store.genes >= 0).tolist() == [True, True, False, False, True]
        before = (store.folder / "bases.bin").stat().st_mtime_ns
        moved = (tmp_path / "c[1]").rename(tmp_path / "moved")
        again = open_table(RECORDS, 40, folder=moved)
        assert again.store.key == store.key
        assert (again.store.folder / "bases.bin").stat().st_mtime_ns == before
        other = open_table(RECORDS.slice(0, 4), 40, folder=moved)
        assert other.store.key != store.key and other.store.num_records == 4

    def test_a_packing_of_another_format_is_made_anew(self, tmp_path):
        store = open_table(RECORDS, 40, folder=tmp_path).store
        record = open_packing(store, 40).record.tolist()
        path = store.folder / "rows-40" / "packing.json"
        table = json.loads(path.read_text())
        path.write_text(json.dumps(table | {"format": table["format"] - 1}))
        (path.parent / "record.bin").write_bytes(bytes(8 * len(record)))
        assert open_packing(store, 40).record.tolist() == record
        assert json.loads(path.read_text()) == table

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
        (tmp_path / "torn.parquet").write_bytes(data[:-9])
        for name, columns in (
            ("b", {"sequence": ["A"]}),
            ("other", {"dna": ["A"]}),
            ("null", {"sequence": ["A", None]}),
            ("numbers", {"sequence": [1, 2]}),
            ("bytes", {"sequence": ["A"], "gene_type": pa.array([b"\xff"])}),
        ):
            pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        for name, message in (
            ("b", "is not the file that the manifest names"),
            ("none", "cannot be opened"),
            ("torn", "is not whole Parquet"),
            ("other", "has no column 'sequence' or 'text'"),
            ("null", "a record has no sequence"),
            ("numbers", r"cannot be read \("),
            ("bytes", r"cannot be read \("),
        ):
            expected = {str(tmp_path / f"{name}.parquet"): sums if name == "b" else None}
            with pytest.raises(CorpusError, match=rf"{name}\.parquet: {message}"):
                open_store(expected, tmp_path / "c", "s")
        assert sum(path.is_dir() for path in (tmp_path / "c").iterdir()) == 1  # nothing half-made

    def test_it_is_known_by_what_is_in_it(self, tmp_path):
        """A base in the middle, which no footer tells; with sums of a manifest and without."""
        path = tmp_path / "a.parquet"
        for middle in "CG":
            table = pa.table({"sequence": ["A" * 60, middle * 60, "T" * 60]})
            pq.write_table(table, path, compression="none")
            sums = hashlib.sha256(path.read_bytes()).hexdigest()
            for expected, cache in ((None, "c"), (sums, "d")):
                store = open_store({str(path): expected}, tmp_path / cache, "s")
                assert store.letters(1, 0, 2)[0] == ord(middle)

    @pytest.mark.parametrize("kind", ["dictionary", "binary", "large_string"])
    def test_other_kinds_of_text(self, tmp_path, kind):
        column = RECORDS["sequence"].combine_chunks()
        column = column.dictionary_encode() if kind == "dictionary" else column.cast(kind)
        source = open_table(RECORDS.set_column(0, "sequence", column), 40, folder=tmp_path)
        assert source.store.letters(1, 0, 999).tobytes().decode() == RECORDS["sequence"][1].as_py()

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
        for broken in ("{torn", "5", '{"outputs": [], "held_out": [], "sources": {}}'):
            (tmp_path / "manifest.json").write_text(broken)
            with pytest.raises(CorpusError, match=r"Invalid JSON|Input should be"):
                source_files(tmp_path, "dna", "train")
