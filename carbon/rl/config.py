"""Options of RL fine-tuning, checked before torch is imported."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from carbon.design.functions import Function, parse_function
from carbon.errors import UserError
from carbon.io.files import free_folder
from carbon.io.locks import locked_output
from carbon.parallel.options import WorkerOptions

_MAX = 10**6
_LIBRARIES = ("accelerate", "datasets", "matplotlib", "peft", "trl")


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
        rank: rank of the LoRA adapters.
        save_steps: interval of sample files and checkpoints.
        seed: seed of samples and adapters.
        most_stale: largest age, in steps, of the weights that workers draw with.
        timeout_seconds: seconds for a group, and for the start of a scoring function's process.

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


def rank() -> int:
    """Return the rank of this process under torchrun."""
    return int(os.environ.get("RANK", "0"))


def num_processes() -> int:
    """Return the number of processes that torchrun started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def check_rl(job: RLJob) -> None:
    """Check a job before torch is imported.

    Raises:
        UserError: an option is invalid, the output exists, or a library is not installed.
    """
    from carbon.design.goals import goals_for

    if rank() == 0:
        with locked_output(job.output):  # the folder of a running job must not be removed
            if not job.samplers.resume:
                free_folder(job.output)
    _check_workers(job)
    for function in job.functions:
        parse_function(function)
    goals_for(job.config.goals, len(job.functions))
    if job.config.group % num_processes():
        raise UserError(
            f"group {job.config.group}: give a multiple of the {num_processes()} processes, which "
            "share it"
        )
    if not all(map(find_spec, _LIBRARIES)):
        raise UserError(f"carbon rl needs {', '.join(_LIBRARIES)}; pip install 'carbon-dna[rl]'")


def _check_workers(job: RLJob) -> None:
    if job.samplers.vllm and not job.has_workers:
        raise UserError("--vllm: a server draws for a worker; give --processes 1")
    if not job.has_workers:
        return
    if job.samplers.resume or num_processes() > 1:
        raise UserError(
            "workers: one process trains, and cannot be resumed; omit --resume and torchrun"
        )
    if not all(isinstance(function, str) for function in job.functions):
        raise UserError(
            "workers are other processes; name scoring functions: python:MODULE:FUNCTION"
        )
