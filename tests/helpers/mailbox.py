"""Learners of one mailbox in a test, each a command of its own."""

import dataclasses
import hashlib
import json
import time

from carbon.config import to_toml
from tests.helpers.learner_faults import with_fault
from tests.helpers.ranks import start_command
from tests.helpers.runs import make_config
from train.config import CheckpointConfig
from train.learners_config import LearnersConfig

LIMIT_SECONDS = 300  # of a machine with other work
STEPS = 12  # of each of two


class Mailbox:
    """A run of learners in a folder, each started by `learner`.

    Args:
        environment: of each, beside that of the test.
        learners: of `[learners]`.
    """

    def __init__(self, corpus, folder, steps=STEPS, environment=None, **learners):
        self.folder, self.environment = folder, environment or {}
        short = ["data.microbatch_tokens=512", "stages.0.schedule=constant"]
        tokens = [f"stages.{i}.tokens={steps * 512}" for i in (0, 1)]
        config = make_config(corpus, folder / "run", *short, *tokens)
        given = {"count": 2, "every_steps": 3, "quorum": 1, "grace_seconds": 1.0}
        learners = LearnersConfig(**{"mailbox": f"{folder}/mailbox"} | given | learners)
        saves = CheckpointConfig(every_steps=2, keep=9)
        self.config = dataclasses.replace(config, learners=learners, checkpoint=saves)
        folder.mkdir()
        (folder / "recipe.toml").write_text(to_toml(self.config), encoding="utf-8")
        self.started = []

    def learner(self, number, fault="none", *words):
        said = self.folder / f"said-{number}-{len(self.started)}"
        words = ["--config", f"{self.folder}/recipe.toml", "--set", f"learners.number={number}",
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
        return self.folder / "run" / f"learner-{number}"

    def lines(self, number, name):
        text = (self.run(number) / f"{name}.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def meetings(self):
        files = sorted((self.folder / "mailbox/meetings").iterdir())
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def export(self, number):
        return (self.run(number) / "export/model.safetensors").read_bytes()

    def digests(self, *numbers):
        return {hashlib.sha256(self.export(number)).hexdigest() for number in numbers}


def wait_for(there):
    until = time.monotonic() + LIMIT_SECONDS
    while not (found := there()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found
