"""Inputs and corpora by URL, against a bucket on this machine and fsspec's memory."""

import json
import shutil
from pathlib import Path

import datasets
import fsspec
import pytest
from huggingface_hub import DatasetCard

from carbon.corpus import read_manifest, source_files
from carbon.errors import CorpusError
from data_pipeline.__main__ import main
from data_pipeline.inputs.remote import fetch, public_url
from tests.helpers.bucket import bucket
from tests.helpers.curation import build, rows_of
from tests.helpers.files import random_bases, served, write_fasta
from tests.helpers.schemas import check_manifest


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def genome_at(tmp_path, url):
    write_fasta(tmp_path / "g.fa", {"c1": random_bases(20_000, 1)})
    with fsspec.open(url, "wb") as sink:
        sink.write((tmp_path / "g.fa").read_bytes())


def settings_of(url, cache):
    genome = [f"assemblies.0.genome={url}", "assemblies.0.holdout=['c1:1-5000']"]
    return [*genome, f"cache={cache}", "cut.chunk_bp=4000"]


def fetched(url, cache):
    path, records = fetch(url, cache)
    return Path(path), list(records.values())


@pytest.mark.nightly  # TestOutputByUrl has the same in memory
def test_from_a_bucket_and_back(tmp_path, monkeypatch):
    """The corpus of a genome in a bucket is that of the file, and can be trained on from there."""
    with bucket() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        genome_at(tmp_path, "s3://lab/in/g.fa")
        far = settings_of("s3://lab/in/g.fa", tmp_path / "cache")
        assert build("s3://lab/out/built", *far) == 0
        assert build(tmp_path / "near", *settings_of(tmp_path / "g.fa", tmp_path / "no")) == 0
        outputs = read_manifest(tmp_path / "near")["outputs"]
        built = read_manifest("s3://lab/out/built")
        assert built["outputs"] == outputs and built["fetched"][0]["version"]
        assert main(["publish", str(tmp_path / "near"), "--to", "s3://lab/out/corpus"]) == 0
        for corpus in ("s3://lab/out/built", "s3://lab/out/corpus"):
            (file,) = source_files(corpus, "genome", "train")
            with fsspec.open(file, "rb") as source:
                wanted = (tmp_path / "near/genome/train-00000.parquet").read_bytes()
                assert source.read() == wanted
        assert main(["inspect", "s3://lab/out/built", "--source", "genome", "--row", "0"]) == 0
        fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_what_has_not_changed_is_not_fetched_again(tmp_path, memory, capsys):
    url = "memory://lab/r.fa"
    for content, times in ((b">a\nACGT\n", 1), (b">a\nACGT\n", 0), (b">a\nACGTT\n", 1)):
        if times:
            memory.pipe_file("/lab/r.fa", content)
        path, _ = fetch(url, tmp_path)
        assert Path(path).read_bytes() == content
        assert capsys.readouterr().err.count("fetching") == times


def test_a_file_behind_http_whose_secrets_are_told_to_nobody(tmp_path, capsys):
    (tmp_path / "web").mkdir()
    write_fasta(tmp_path / "web" / "g.fa", {"c1": random_bases(9000, 1)})
    with served(tmp_path / "web") as url:
        path, (record,) = fetched(f"{url}/g.fa?sig=hush", tmp_path / "cache")
        assert path.name == "g.fa" and record["bytes"] == path.stat().st_size
        words = settings_of(f"{url}/g.fa?X-Amz-Signature=hush", tmp_path / "cache")
        assert build(tmp_path / "c", *words) == 0
        assert build(tmp_path / "d", *settings_of(f"{url}/no.fa?sig=hush", tmp_path / "e")) == 2
    text = (tmp_path / "c" / "manifest.json").read_text() + capsys.readouterr().err
    assert "hush" not in text and str(tmp_path / "cache") not in text and f"{url}/g.fa" in text


def test_files_by_pattern(tmp_path, memory):
    for i in range(3):
        reads = f"@r{i}\n{random_bases(150, i)}\n+\n{'I' * 150}\n"
        memory.pipe_file(f"/lab/s{i}.fq", reads.encode())
    memory.pipe_file("/lab/other.txt", b"x")
    files = ["files.0.path=memory://lab/s*.fq", "files.0.source=reads", f"cache={tmp_path}/cache"]
    assert build(tmp_path / "c", *files, "files.0.both_strands=true") == 0
    assert {row["assembly"] for row in rows_of(tmp_path / "c", "reads")} == {"s0", "s1", "s2"}
    memory.rm("/lab/s1.fq")
    path, records = fetch("memory://lab/s*.fq", tmp_path / "cache")
    left = sorted(each.name for each in Path(path).parent.glob("*.fq"))
    assert left == ["s0.fq", "s2.fq"] == sorted(Path(each).name for each in records)


@pytest.mark.parametrize("url", ["nowhere://lab/g.fa", "memory://lab/*.fq"])
def test_what_cannot_be_fetched_is_one_line(tmp_path, memory, capsys, url):
    assert build(tmp_path / "c", *settings_of(url, tmp_path / "cache")) == 2
    assert f"error: {url}: cannot be fetched" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


class TestOutputByUrl:
    """The bytes are those of a folder, and nothing stays on this machine."""

    @pytest.fixture
    def settings(self, tmp_path):
        write_fasta(tmp_path / "g.fa", {"c1": random_bases(20_000, 1)})
        return settings_of(tmp_path / "g.fa", tmp_path / "cache")

    def folder(self, tmp_path, settings):
        assert build(tmp_path / "near", *settings) == 0
        return read_manifest(tmp_path / "near")

    def test_as_a_folder(self, tmp_path, settings, memory, capsys):
        """Also of a genome by URL, whose version and size the manifest has."""
        genome_at(tmp_path, "memory://lab/in/g.fa")
        by_url = settings_of("memory://lab/in/g.fa", tmp_path / "cache")
        assert build("memory://lab/c", *by_url) == 0
        near, far = self.folder(tmp_path, settings), read_manifest("memory://lab/c")
        check_manifest(far)
        (record,) = far["fetched"]
        assert record["url"].endswith("lab/in/g.fa") and record["bytes"] > 20_000
        assert far["outputs"] == near["outputs"] and far["sources"] == near["sources"]
        for name in near["outputs"]:
            assert memory.cat_file(f"/lab/c/{name}") == (tmp_path / "near" / name).read_bytes()
        assert not list((tmp_path / "cache").rglob("*.parquet"))
        assert build("memory://lab/c", *by_url) == 2
        assert "memory://lab/c: holds a corpus already" in capsys.readouterr().err
        assert main(["inspect", "memory://lab/c"]) == 0
        assert main(["inspect", "memory://lab/c", "--dropped", "--name", "c1"]) == 0

    def test_an_upload_that_breaks_off_goes_on(self, tmp_path, settings, memory, monkeypatch):
        def break_off(*_, **__):
            raise OSError("the line is cut")

        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "put_file", break_off)
            assert build("memory://lab/c", *settings) == 2
        with monkeypatch.context() as patch:
            patch.setattr("data_pipeline.build.make_shard", break_off)  # what is whole is kept
            assert build("memory://lab/c", *settings) == 0
        far = read_manifest("memory://lab/c")
        assert far["outputs"] == self.folder(tmp_path, settings)["outputs"]

    @pytest.mark.parametrize(
        ("url", "message"),
        [("memory://lab/c", "holds other/mine.parquet"), ("nowhere://lab/c", "cannot be written")],
    )
    def test_what_cannot_be_uploaded_is_said_before_a_build(
        self, settings, memory, monkeypatch, capsys, url, message
    ):
        memory.pipe_file("/lab/c/other/mine.parquet", b"of somebody")
        monkeypatch.setattr("data_pipeline.build.make_shard", lambda *_: 1 / 0)
        assert build(url, *settings) == 2
        assert f"{url}: {message}" in capsys.readouterr().err

    def test_secrets_are_told_to_nobody(self, tmp_path, settings, memory, monkeypatch, capsys):
        def refuse(*_, **__):
            raise OSError("memory://me:hush@lab/c is closed")

        url = "memory://me:hush@lab/c"
        settings = [*settings, "executor.environment=export KEY=hush"]
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "put_file", refuse)
            assert build(url, *settings) == 2
        assert build(url, *settings) == 0
        assert build(url, *settings) == 2
        files = [path for path in memory.find("/") if not path.endswith(".parquet")]
        text = "".join(memory.cat_file(path).decode() for path in files)
        err = capsys.readouterr().err
        assert "holds a corpus already" in err and "(OSError: memory://lab/c is closed)" in err
        assert "hush" not in text + err

    def test_a_second_build_of_it_is_refused_during_the_upload(
        self, settings, memory, monkeypatch, capsys
    ):
        put, codes = type(memory).put_file, set()

        def second(system, *words, **more):
            codes.add(build("memory://lab/c", *settings))
            put(system, *words, **more)

        monkeypatch.setattr(type(memory), "put_file", second)
        assert build("memory://lab/c", *settings) == 0
        assert codes == {2}
        assert "memory://lab/c: in use by process" in capsys.readouterr().err


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    write_fasta(folder / "g.fa", {"c1": random_bases(20_000, 1)})
    more = ["assemblies.0.licence=CC0", "assemblies.0.organism=Nobody"]
    assert build(folder / "c", *settings_of(folder / "g.fa", folder), *more) == 0
    return folder / "c"


def test_an_upload_that_breaks_off_never_looks_whole(corpus, memory, monkeypatch, capsys):
    """It is refused by training until it is published again, whole."""
    put = type(memory).put_file

    def break_off(system, path, remote, **more):
        if "test-" in path:
            raise OSError("the line is cut")
        put(system, path, remote, **more)

    monkeypatch.setattr(type(memory), "put_file", break_off)
    words = ["publish", str(corpus), "--to", "memory://hub/c"]
    assert main(words) == 2
    assert "memory://hub/c: cannot be written (OSError: the line is cut)" in capsys.readouterr().err
    with pytest.raises(CorpusError, match=r"manifest\.json: held_out: Field required"):
        source_files("memory://hub/c", "genome", "train")
    monkeypatch.setattr(type(memory), "put_file", put)
    assert main(words) == 0
    assert source_files("memory://hub/c", "genome", "train")


def test_a_chain_of_urls_is_told_without_secrets():
    chain = "zip://a.fa::https://me:hush@host/a.zip?sig=hush"
    assert public_url(chain) == "zip://a.fa::https://host/a.zip"


def test_only_what_an_upload_has_left_is_removed(corpus, memory, monkeypatch):
    """Its note names its files; one of an older build goes, one of somebody else stays."""
    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "put_file", lambda *_, **__: 1 / 0)
        assert main(["publish", str(corpus), "--to", "memory://hub/c"]) == 2
    note = json.loads(memory.cat_file("/hub/c/manifest.json"))
    note["files"] += ["genome/train-00007.parquet", "../kept.parquet"]
    memory.pipe_file("/hub/c/manifest.json", json.dumps(note).encode())
    for path in ("/hub/c/genome/train-00007.parquet", "/hub/kept.parquet", "/hub/c/notes.txt"):
        memory.pipe_file(path, b"x")
    assert main(["publish", str(corpus), "--to", "memory://hub/c"]) == 0
    left = {"/hub/kept.parquet", "/hub/c/notes.txt", "/hub/c/README.md", "/hub/c/manifest.json"}
    outputs = read_manifest("memory://hub/c")["outputs"]
    assert set(memory.find("/hub")) == left | {f"/hub/c/{name}" for name in outputs}


def test_a_torn_corpus_is_not_published(corpus, tmp_path, memory, capsys):
    shutil.copytree(corpus, tmp_path / "c")
    (tmp_path / "c" / "dropped.tsv").write_text("torn")
    assert main(["publish", str(tmp_path / "c"), "--to", "memory://hub/c"]) == 2
    assert "dropped.tsv: is not there as the manifest says" in capsys.readouterr().err
    assert memory.find("/hub") == []


def test_the_card_is_that_of_a_dataset(corpus, tmp_path):
    """The Hub's own reader takes it, and `datasets` finds sources and splits by it."""
    assert main(["publish", str(corpus), "--to", f"file://{tmp_path}/hub/small"]) == 0
    text = (tmp_path / "hub/small/README.md").read_text()
    data = DatasetCard(text).data.to_dict()
    assert data["configs"][0]["config_name"] == "genome" and data["pretty_name"] == "small"
    assert data["size_categories"] == ["n<1K"] and "| g | Nobody |  | CC0 |" in text
    counts = read_manifest(corpus)["sources"]["genome"]
    found = datasets.load_dataset(f"{tmp_path}/hub/small", "genome", cache_dir=str(tmp_path / "hf"))
    for split in ("train", "test"):
        assert found[split].num_rows == counts[split]["records"] > 0


def test_files_of_others_stay(corpus, memory, capsys):
    memory.pipe_file("/hub/c/theirs/train-0.parquet", b"of somebody")
    assert main(["publish", str(corpus), "--to", "memory://hub/c"]) == 2
    assert "memory://hub/c: holds theirs/train-0.parquet" in capsys.readouterr().err
    assert memory.find("/hub") == ["/hub/c/theirs/train-0.parquet"]
