"""Workers of one shared store in a test, each a separate command."""

import hashlib
import json

from tests.helpers.ranks import start_command
from tests.helpers.runs import exported, make_config, small_corpus, steps_of_each
from tests.helpers.worker_faults import with_fault
from train.config import CheckpointConfig, WorkersConfig

LIMIT_SECONDS = 300  # of a machine with other work
STEPS = 12  # of each of two


class SharedRun:
    """A run of workers in a folder, each started by `worker`.

    Args:
        environment: of each, beside that of the test.
        workers: of `[workers]`.
    """

    def __init__(self, folder, steps=STEPS, environment=None, **workers):
        self.folder = folder
        self.environment = {"CARBON_FATE": f"{folder}/fate"} | (environment or {})
        short = ["data.microbatch_tokens=512", "phases.0.schedule=constant"]
        config = make_config(small_corpus(), folder / "run", *short, *steps_of_each(steps))
        given = {"count": 2, "every_steps": 3, "quorum": 1, "grace_seconds": 1.0}
        workers = WorkersConfig(**{"store": f"{folder}/store"} | given | workers)
        saves = CheckpointConfig(every_steps=2, every_minutes=0, keep=9)
        self.config = config.replace(workers=workers, checkpoint=saves)
        folder.mkdir()
        (folder / "recipe.toml").write_text(self.config.to_toml(), encoding="utf-8")
        self.started = []

    def worker(self, number, fault="none", *words):
        said = self.folder / f"said-{number}-{len(self.started)}"
        words = ["--config", f"{self.folder}/recipe.toml", "--set", f"workers.number={number}",
                 *words]  # fmt: skip
        said.touch()
        process = start_command(with_fault(fault, self.environment), words, said)
        process.said = lambda: said.read_text(encoding="utf-8")
        self.started.append(process)
        return process

    def ends(self, *processes):
        for process in processes:
            process.join(LIMIT_SECONDS)
            assert process.exitcode == 0, process.said()

    def run(self, number):
        return self.folder / "run" / f"worker-{number}"

    def records(self):
        files = sorted((self.folder / "store/rounds").iterdir())
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def digests(self, *numbers):
        return {hashlib.sha256(exported(self.run(number))).hexdigest() for number in numbers}
