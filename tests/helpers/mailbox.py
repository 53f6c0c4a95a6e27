"""Learners of one mailbox in a test, each a command of its own."""

import hashlib
import json

from tests.helpers.learner_faults import with_fault
from tests.helpers.ranks import start_command
from tests.helpers.runs import exported, make_config, small_corpus, steps_of_each
from train.config import CheckpointConfig, LearnersConfig

LIMIT_SECONDS = 300  # of a machine with other work
STEPS = 12  # of each of two


class Mailbox:
    """A run of learners in a folder, each started by `learner`.

    Args:
        environment: of each, beside that of the test.
        learners: of `[learners]`.
    """

    def __init__(self, folder, steps=STEPS, environment=None, **learners):
        self.folder = folder
        self.environment = {"CARBON_FATE": f"{folder}/fate"} | (environment or {})
        short = ["data.microbatch_tokens=512", "phases.0.schedule=constant"]
        config = make_config(small_corpus(), folder / "run", *short, *steps_of_each(steps))
        given = {"count": 2, "every_steps": 3, "quorum": 1, "grace_seconds": 1.0}
        learners = LearnersConfig(**{"mailbox": f"{folder}/mailbox"} | given | learners)
        saves = CheckpointConfig(every_steps=2, every_minutes=0, keep=9)
        self.config = config.replace(learners=learners, checkpoint=saves)
        folder.mkdir()
        (folder / "recipe.toml").write_text(self.config.to_toml(), encoding="utf-8")
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

    def meetings(self):
        files = sorted((self.folder / "mailbox/meetings").iterdir())
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def digests(self, *numbers):
        return {hashlib.sha256(exported(self.run(number))).hexdigest() for number in numbers}
