"""SPARTA: each step the workers of a launch average a random share of their parameters.

Sparse parameter averaging is from exo-explore/gym (2025) and AsyncMesh (arXiv 2601.22442).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, astuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from train.diloco.sync import Worker
from train.distributed.mesh import local
from train.runs.log import RunLog
from train.runs.record import Work
from train.saved import RunState


def chosen(name: str, numel: int, share: float, seed: int, step: int) -> Tensor:
    """Return positions of a tensor, int64, ascending; each is drawn with probability `share`.

    One of each run of 1 / share neighbours is drawn, from a random start: in integers, by a
    counter-based generator (Philox; Salmon et al., SC 2011), so all workers draw the same.
    """
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    draws = np.random.Philox(key=np.frombuffer(digest[:16], "<u8"), counter=[0, 0, step, 0])
    whole, rest = divmod(share * numel, 1)
    # Rounded up in a share of steps, or small tensors would always or never be averaged.
    count = int(whole) + int(int(draws.random_raw()) < int(rest * 2**64))
    start = int(draws.random_raw()) % max(numel, 1)
    width, num_longer = divmod(numel, max(count, 1))
    runs = np.arange(count, dtype=np.uint64)
    widths, firsts = width + (runs < num_longer), runs * width + np.minimum(runs, num_longer)
    positions = firsts + draws.random_raw(count) % widths.astype(np.uint64) + start
    return torch.from_numpy(np.sort(positions % max(numel, 1)).astype(np.int64))


class SpartaWorker(Worker):
    """One of the workers of a launch; all take as many steps. Optimizers keep their moments."""

    _own = Work()

    def begin(self, state: RunState, log: RunLog, wants_to_stop: Callable[[], bool]) -> None:
        """Continue from a state: of K workers each takes each Kth step of the run."""
        count = self._ranks.num_workers
        last = self._total_steps // count * count
        self.order = range(self._own.steps * count + self._ranks.worker, last, count)
        self._next = iter(self.order)
        state.step = next(self._next, self._total_steps)

    def after_step(self, state: RunState, tokens: int, seconds: float) -> None:
        """Average a share of the parameters, and go to the next step."""
        self._average_share()
        self._own += Work(tokens, 1, seconds)
        state.step = next(self._next, self._total_steps)

    def _average_share(self) -> None:
        """Replace the chosen numbers by their means over all workers."""
        share, seed, step = self._config.share, self._settings["seed"], self._own.steps
        drawn = [
            (shard, chosen(name, len(shard), share, seed, step).to(shard.device))
            for name, shard in self._shards()
        ]
        if not drawn:
            return  # this process has no trained parameters, on any worker
        means = self._mean(torch.cat([shard[places] for shard, places in drawn]))
        parts = torch.split(means, [len(places) for _, places in drawn])
        for (shard, places), part in zip(drawn, parts, strict=True):
            shard[places] = part.to(shard)

    def _shards(self) -> Iterator[tuple[str, Tensor]]:
        """Return the trained numbers of this process by name, flat; of tied weights both ends."""
        for name, ends in self._weights.held.items():
            yield from ((name, local(end.detach()).view(-1)) for end in ends)

    def _mean(self, numbers: Tensor) -> Tensor:
        """Return the mean over all workers on the CPU.

        In fp64, where the mean of equal numbers is that number, as of frozen rows, and hardly ever
        depends on the order of the workers, as of the two ends of tied weights.
        """
        total = numbers.double().cpu()
        if self._ranks.sync_group is not None:
            torch.distributed.all_reduce(total, group=self._ranks.sync_group)
        return total / self._ranks.num_workers

    def steps_taken(self, state: RunState) -> int:
        """Return the steps that this worker has taken itself."""
        return self._own.steps

    def trained(self) -> Work:
        """Return the training of all workers, which call this together."""
        own = torch.tensor(astuple(self._own), dtype=torch.float64)
        tokens, steps, seconds = (self._ranks.num_workers * self._mean(own)).tolist()
        return Work(round(tokens), round(steps), seconds)

    @contextmanager
    def outer_params_loaded(self) -> Iterator[None]:
        """Let the weights be the mean of all workers for a while."""
        with self._weights.restored():
            for _, shard in self._shards():
                shard.copy_(self._mean(shard))
            yield

    def expect(self, table: Mapping[str, Any]) -> None:
        """Take what `to_table` gave."""
        self._own = Work(**table["own"])

    def to_table(self) -> dict[str, Any]:
        """Return what JSON can hold; all workers call this together."""
        return {"own": asdict(self._own), "outer": {"trained": asdict(self.trained())}}

    def tensors(self) -> dict[str, Tensor]:
        """Return the mean of all workers, which the export of a checkpoint reads."""
        with self.outer_params_loaded():
            return self._weights.as_saved({"outer_params": self._weights.read(self._weights.sizes)})
