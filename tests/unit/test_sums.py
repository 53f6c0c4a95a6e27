"""Sums of inputs: another file under the same path, size and time of change is another."""

import hashlib
import os
import shutil

import pytest

import carbon
from carbon.inference.identity import identity_of
from carbon.io import files
from carbon.io.files import content_sha256, remembered_sha256
from tests.helpers.files import replace_unnoticed
from tests.helpers.finetune import base_folder


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """Names of the files that are read."""
    found: list[str] = []
    sha256_of_file = files.sha256_of_file
    monkeypatch.setattr(
        files, "sha256_of_file", lambda path: found.append(path.name) or sha256_of_file(path)
    )
    return found


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file that has not changed for long, as far as its sum is kept."""
    monkeypatch.setattr(files, "_SETTLED_SECONDS", -1.0)
    path = tmp_path / "g.fa"
    path.write_bytes(b">c\nACGT\n")
    return path


def test_a_file_is_read_once(file, tmp_path, read):
    expected = hashlib.sha256(b">c\nACGT\n").hexdigest()
    assert [remembered_sha256(file, tmp_path) for _ in range(3)] == [expected] * 3
    assert read == ["g.fa"]


def test_another_content_of_equal_size_and_time_is_another(file, tmp_path):
    before = remembered_sha256(file, tmp_path)
    replace_unnoticed(file, b"ACGT", b"ACGG")
    assert remembered_sha256(file, tmp_path) == hashlib.sha256(b">c\nACGG\n").hexdigest() != before


def test_another_file_that_takes_the_name_is_another(file, tmp_path):
    before, status = remembered_sha256(file, tmp_path), file.stat()
    (tmp_path / "other").write_bytes(b">c\nTTTT\n")
    os.utime(tmp_path / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "other").replace(file)
    assert remembered_sha256(file, tmp_path) != before


def test_what_has_just_changed_is_not_remembered(file, tmp_path, read, monkeypatch):
    """It may change again within a tick of the clock."""
    monkeypatch.setattr(files, "_SETTLED_SECONDS", 2.0)
    for _ in range(2):
        remembered_sha256(file, tmp_path)
    assert read == ["g.fa", "g.fa"] and list(tmp_path.glob("sum-*")) == []


def test_large_files_are_remembered_in_the_users_cache(file, tmp_path, read, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert content_sha256(file) == content_sha256(file)
    assert read == ["g.fa", "g.fa"]  # a small file is read each time
    monkeypatch.setattr(files, "REMEMBERED_BYTES", 1)
    read.clear()
    assert (
        content_sha256(file)
        == content_sha256(file)
        == hashlib.sha256(file.read_bytes()).hexdigest()
    )
    assert read == ["g.fa"] and len(list((tmp_path / "cache/carbon/sums").iterdir())) == 1


def test_a_model_is_known_by_its_content(tmp_path, network):
    folder = base_folder(tmp_path, network)
    model = carbon.load(folder, device="cpu")
    before = identity_of(model.runner, str(folder))
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    assert identity_of(model.runner, str(copy)) == before
    weights = folder / "model.safetensors"
    replace_unnoticed(weights, weights.read_bytes()[-8:], bytes(8))
    changed = identity_of(model.runner, str(folder))
    assert {name for name in before if changed[name] != before[name]} == {"weights"}
