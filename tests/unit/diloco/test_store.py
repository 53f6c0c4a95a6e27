"""A shared store's storage: folders, memory, and a bucket of a stand-in for S3."""

import threading
from pathlib import Path

import fsspec
import pytest
import torch
from safetensors.torch import save_file

from carbon.errors import UserError
from carbon.io.files import atomic_file, sha256_of_file
from carbon.io.store import Store, open_tensors
from tests.helpers.bucket import bucket
from train.diloco.outer import OuterState, Snapshot
from train.diloco.store import Snapshots
from train.runs.record import Work


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def store(request, tmp_path, monkeypatch):
    if request.param == "folder":
        yield Store(str(tmp_path / "store"))
    elif request.param == "file":
        yield Store(f"file://{tmp_path}/store")
    elif request.param == "memory":
        yield Store(f"memory://{tmp_path.name}/store")
    else:
        with bucket() as environment:
            for name, value in environment.items():
                monkeypatch.setenv(name, value)
            yield Store("s3://lab/store")
            fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_tables_are_written_over_and_created_once(store):
    assert store.read_table("workers/0.json") is None
    store.write_table("workers/0.json", {"asks_after": None})
    store.write_table("workers/0.json", {"asks_after": 3})
    assert store.read_table("workers/0.json") == {"asks_after": 3}
    assert store.create_table("rounds/000000.json", {"by": 1})
    assert not store.create_table("rounds/000000.json", {"by": 2})
    assert store.read_table("rounds/000000.json") == {"by": 1}
    assert store.names("rounds") == ["000000.json"] and store.names("snapshots") == []


def test_a_table_that_is_being_written_has_no_name_yet(tmp_path):
    """A reader who took the temporary name for a table, and removed it, would stop the writer."""
    store = Store(str(tmp_path))
    (tmp_path / "samples").mkdir()
    with atomic_file(tmp_path / "samples/1-000003.json") as temporary:
        temporary.write_text("{}")
        assert store.names("samples") == []
        (tmp_path / "samples/.of-a-killed-creation").touch()
    assert store.names("samples") == ["1-000003.json"]


def test_of_all_who_create_at_once_one_does(store):
    won = []

    def create(number):
        if store.create_table("rounds/000007.json", {"by": number}):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [store.read_table("rounds/000007.json")["by"]]


def test_files_come_back_whole_or_not_at_all(store, tmp_path):
    file, scratch = tmp_path / "change", tmp_path / "scratch"
    file.write_bytes(b"numbers" * 1000)
    scratch.mkdir()
    store.put(file, "rounds/000000/0-0.safetensors")
    found = store.get("rounds/000000/0-0.safetensors", scratch, sha256_of_file(file))
    assert found.read_bytes() == file.read_bytes()
    assert store.get("rounds/000000/0-0.safetensors", scratch, "0" * 64) is None
    assert store.get("rounds/000000/1-0.safetensors", scratch, sha256_of_file(file)) is None
    store.remove("rounds/000000")
    store.remove("rounds/000001")
    assert store.names("rounds/000000") == []


class _OfAClient(Exception):
    """An error of a bucket's client, which is not an OSError."""


def failing(times, then):
    left = [_OfAClient("no route to host")] * times

    def call(*given, **more):
        if left:
            raise left.pop()
        return then

    return call


def test_storage_that_does_not_answer_is_asked_again(tmp_path, monkeypatch, capsys):
    slept = []
    monkeypatch.setattr("tenacity.nap.time.sleep", slept.append)
    store = Store(f"memory://{tmp_path.name}")
    monkeypatch.setattr(store._files, "cat_file", failing(3, b'{"by": 1}'), raising=False)
    assert store.read_table("rounds/000000.json") == {"by": 1}
    assert slept == [0.5, 1, 2]
    assert capsys.readouterr().err.count("no route to host; trying again") == 1


def test_what_never_answers_is_an_error_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    store = Store(f"memory://{tmp_path.name}")
    monkeypatch.setattr(store._files, "cat_file", failing(99, b""), raising=False)
    with pytest.raises(OSError, match="_OfAClient: no route to host"):
        store.read_table("rounds/000000.json")
    monkeypatch.setattr(store._files, "pipe_file", failing(1, None), raising=False)
    with pytest.raises(OSError, match="no route to host"):
        store.write_table("workers/0.json", {})
    store.write_table("workers/0.json", {})


def test_a_url_of_no_known_kind():
    with pytest.raises(UserError, match=r"shared store 'nothing://a': cannot be opened"):
        Store("nothing://a")


def test_storage_where_two_can_create_one_file_is_refused():
    """The Hub's file system creates as fsspec does by default: it looks, and writes then."""
    with pytest.raises(UserError, match="HfFileSystem looks whether a file is there"):
        Store("hf://buckets/lab/runs/yeast")


def test_tensors_that_go_while_they_are_opened(tmp_path, monkeypatch):
    """safetensors opens by name twice: a file removed in between is reported as absent."""
    file = tmp_path / "change.safetensors"
    with pytest.raises(FileNotFoundError):
        open_tensors(file)
    save_file({"w": torch.ones(2)}, file)
    opened = open_tensors(file)
    file.unlink()
    assert opened.get_tensor("w").equal(torch.ones(2))

    from_file = torch.UntypedStorage.from_file

    def after_it_went(name, *given, **more):
        Path(name).unlink(missing_ok=True)
        return from_file(name, *given, **more)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", after_it_went)
    save_file({"w": torch.ones(2)}, file)
    with pytest.raises(FileNotFoundError, match="is gone"):
        open_tensors(file)


def test_a_snapshot_that_goes_while_it_is_read(tmp_path, monkeypatch):
    """A worker that writes newer ones removes it; the newer one is found."""
    store = Store(str(tmp_path / "store"))
    snapshots = Snapshots(store, tmp_path)

    def save(round_):
        params = {"w": torch.full((2,), float(round_))}
        given = ({0: "a digest"}, OuterState(params), Work(tokens=round_))
        snapshots.save(Snapshot(round_, *given))

    save(3)
    get, later = store.get, iter([7, 11, 15])

    def get_after_more_were_saved(*given):
        for round_ in later:
            save(round_)
        return get(*given)

    monkeypatch.setattr(store, "get", get_after_more_were_saved)
    found = snapshots.newest(after=2)
    assert (found.round, found.digests) == (15, {0: "a digest"})
    assert found.merged == Work(tokens=15)
    assert found.state.params["w"].equal(torch.full((2,), 15.0))
    assert snapshots.newest(after=15) is None
