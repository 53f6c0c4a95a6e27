"""Blocks by actors of a Ray cluster, whose nodes are simulated on this machine."""

import json
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from carbon.cli import main
from carbon.errors import UserError
from carbon.model import save_model
from carbon.parallel.driver import Workers
from carbon.parallel.ray import RayActors
from tests.helpers.parallel import (
    WHOLE,
    Doubler,
    job_of,
    num_kept,
    run,
    started,
    stop,
    this_process,
)
from tests.helpers.processes import waits_for

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # as this process, which may have imported Ray
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Two CPUs: a machine of tests may have no more.
        node = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args=node)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def actors(cluster, folder, *, resume=False):
    engine = RayActors(partial(Doubler, folder), cluster.address, threads=1, use_gpus=True)
    return Workers(engine, resume=resume)


def test_actors_write_the_bytes_of_one_process(cluster, tmp_path):
    """An actor is killed at a block; an error in an actor ends the run."""
    (tmp_path / "kill-17").write_text("x")
    with actors(cluster, tmp_path) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE
    (tmp_path / "user-9").touch()
    with actors(cluster, tmp_path) as workers, pytest.raises(UserError, match="record 9"):
        run(job_of(tmp_path / "p"), workers)
    (tmp_path / "user-9").unlink()
    with this_process(tmp_path, resume=True) as workers:
        run(job_of(tmp_path / "p"), workers)
    assert (tmp_path / "p").read_text() == WHOLE


@pytest.mark.nightly
def test_a_node_is_lost_and_another_is_added(cluster, tmp_path):
    node = {"num_cpus": 2, "object_store_memory": 80 * 2**20}
    lost = cluster.add_node(**node)
    (slow := tmp_path / "slow").write_text("0.4")

    done = []

    def compute():
        with actors(cluster, tmp_path) as workers:
            done.append(run(job_of(tmp_path / "o", total=2000), workers))

    computing = threading.Thread(target=compute)
    computing.start()
    waits_for(lambda: num_kept(tmp_path) > 5 and len(_actors()) == 4, 120)
    cluster.remove_node(lost, allow_graceful=False)
    waits_for(lambda: len(_actors()) == 2, 60)
    cluster.add_node(**node)  # by the main thread, as Ray needs it
    waits_for(lambda: len(_actors()) == 4, 60)  # two of them on the added node
    slow.unlink()
    computing.join()
    assert done == [2000]
    whole = "".join(f"{2 * n}\n" for n in range(2000))
    assert (tmp_path / "o").read_text() == whole


@pytest.mark.nightly
def test_more_actors_than_there_is_room_for(cluster, tmp_path, monkeypatch):
    """Actors that wait for room do not stop the others."""
    monkeypatch.setattr(RayActors, "size", 9)
    with actors(cluster, tmp_path) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)]
)
def test_actors_end_with_their_driver(cluster, tmp_path, number, code):
    """The driver is killed, ended, or stopped by Ctrl-C; another run continues its journal."""
    (tmp_path / "slow").write_text("0.3")
    driver = started(tmp_path, "--ray", cluster.address)
    waits_for(lambda: num_kept(tmp_path) > 2, 120)
    said = stop(driver, number)
    assert driver.returncode == code, said
    assert "Traceback" not in said
    assert not (tmp_path / "o").exists()
    waits_for(lambda: not _actors(), 30)
    (tmp_path / "slow").unlink()
    with actors(cluster, tmp_path, resume=True) as workers:
        run(job_of(tmp_path / "o"), workers)
    assert (tmp_path / "o").read_text() == WHOLE


@pytest.mark.nightly
def test_actors_draw_for_rl(cluster, tmp_path, network, monkeypatch, capsys):
    """Actors find scoring functions in the folder of the run."""
    save_model(network, tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    text = "def gc(s): return [each.count('G') / len(each) for each in s]"
    (tmp_path / "shares.py").write_text(text)
    words = ["rl", "--model", "base", "--function", "python:shares:gc", "--length", "30", "--group"]
    words += ["4", "--steps", "2", "--device", "cpu", "--output", "out", "--ray", cluster.address]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 2
    assert (tmp_path / "out/model/config.json").is_file()
    waits_for(lambda: not _actors(), 30)


def _actors() -> list[str]:
    """Return the processes of actors that live, by their titles."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_text()
        except OSError:
            continue
        found += [title] if title.startswith("ray::_Actor") else []
    return found
