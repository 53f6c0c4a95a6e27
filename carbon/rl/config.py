"""Options of RL fine-tuning, checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from carbon.design.functions import Function
from carbon.errors import UserError
from carbon.parallel.options import WorkerOptions

_MAX = 10**6


class RLOptions(TypedDict, total=False):
    """The fields of `RLConfig` as keyword arguments; omitted keys take the defaults."""

    length_bp: int
    prompt: str
    tags: Sequence[str]
    goals: Sequence[str | float]
    steps: int
    group: int
    kl: float
    rate: float
    rank: int
    save_steps: int
    seed: int
    most_stale: int
    timeout_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RLConfig:
    """Options of a run.

    Attributes:
        length_bp: length of a sample; a multiple of 6.
        prompt: DNA before every sample, which conditions it; its length is a multiple of 6.
        tags: metadata tags to condition on.
        goals: for each scoring function `maximize`, `minimize` or a target number; `maximize` for
            all if empty.
        steps: training steps; each draws one group.
        group: samples per step, which are compared with one another.
        kl: weight of the divergence from the starting model.
        rate: learning rate, which decays linearly to 0.
        rank: of the LoRA adapters.
        save_steps: interval of sample files and checkpoints.
        seed: of samples and adapters.
        most_stale: largest age, in steps, of the weights that workers draw with.
        timeout_seconds: for a group, and for the start of a scoring function's process.

    Raises:
        UserError: a value is invalid.
    """

    length_bp: int
    prompt: str = ""
    tags: Sequence[str] = ()
    goals: Sequence[str | float] = ()
    steps: int = 200
    group: int = 16
    kl: float = 0.04
    rate: float = 1e-4
    rank: int = 16
    save_steps: int = 20
    seed: int = 0
    most_stale: int = 2
    timeout_seconds: float = 600.0

    def __post_init__(self) -> None:
        from carbon.tokenizer import K  # here: the help of a command needs no numpy

        bounds = {"length": (self.length_bp, K), "steps": (self.steps, 1), "group": (self.group, 2)}
        bounds |= {"rank": (self.rank, 1), "save_steps": (self.save_steps, 1)}
        bounds |= {"seed": (self.seed, 0), "stale": (self.most_stale, 0)}
        for name, (number, least) in bounds.items():
            if not least <= number <= _MAX:
                raise UserError(f"{name} {number}: give {least} to {_MAX:,}")
        for name, length_bp in (("length", self.length_bp), ("prompt", len(self.prompt))):
            if length_bp % K:
                raise UserError(f"{name} of {length_bp} bp: give a multiple of {K}, whole {K}-mers")
        if set(self.prompt.upper()) - set("ACGT"):
            raise UserError("the prompt: give only bases A, C, G and T")
        if not 0 <= self.kl < math.inf:
            raise UserError(f"kl {self.kl}: give 0 or more")
        if not 0 < self.rate < math.inf:
            raise UserError(f"rate {self.rate}: give more than 0")
        if not self.timeout_seconds > 0:
            raise UserError(f"timeout {self.timeout_seconds}: give more than 0 seconds")


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerOptions(WorkerOptions):
    """Processes that draw samples.

    Attributes:
        device: auto (a GPU if there is one) or cpu.
        processes: worker processes on this machine that draw.
        ray: HOST:PORT of the head node of the Ray cluster that draws.
        resume: continue from the last checkpoint of an interrupted run.
        vllm: URL of a vLLM server of this machine that draws.
    """

    device: Literal["auto", "cpu"] = "auto"
    vllm: str = ""


class RLJob(NamedTuple):
    """An RL fine-tuning run.

    Attributes:
        model: name or folder of the starting model, as given.
        functions: scoring functions: `[NAME=]KIND:ARGUMENT`, or callables.
        config: options of the run.
        output: folder to write.
        samplers: the device, and the workers that draw, if any.
    """

    model: str
    functions: Sequence[str | Function]
    config: RLConfig
    output: Path
    samplers: SamplerOptions = SamplerOptions()

    @property
    def on_cpu(self) -> bool:
        """Whether a GPU must not be used."""
        return self.samplers.device == "cpu"

    @property
    def has_workers(self) -> bool:
        """Whether workers draw the samples."""
        return bool(self.samplers.processes or self.samplers.ray)
