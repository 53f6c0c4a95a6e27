"""Traffic between DiLoCo workers and its time, compared with data parallelism, from counts.

A link carries as much in each direction at once as its bandwidth says. The formulas are in
docs/developers/planner.md.
"""

import math
from dataclasses import dataclass
from typing import Any

from carbon.io.config import check
from carbon.progress import TableRow
from train.codecs import CODECS, Codec
from train.config import WorkersConfig
from train.planning.plan import Plan

FEW_ROUNDS = 120
"""Of each weight: below so many the plain mean learned more than momentum (the lab book)."""
_FP32_BYTES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkersPlan:
    """A round of workers: every one takes `every_steps` steps, and all parameters go once.

    Attributes:
        num_parameters: that are trained, of the whole model. They are counted as one tensor, so
            that blocks which the ends of tensors leave unfilled are left out.
        codec: what writes them.
        workers: how many there are.
        every_steps: inner steps of a round.
        fragments: exchanges in a round, each of an equal part.
        step_tokens: of one worker.
        step_seconds: of one worker's step; None: not known.
        gbit_per_s: of a worker's link, all its processes together; None: not known.
        rounds: of each weight in the whole run.
        share: of the parameters that a round exchanges.
        num_kept: fp32 copies of the parameters in the host's memory.
        times_sent: payloads that a worker sends in a round.
        times_received: payloads that it receives.
        can_wait: whether workers may take steps while an exchange is on the way.
    """

    num_parameters: int
    codec: Codec
    workers: int
    every_steps: int
    fragments: int
    step_tokens: int
    step_seconds: float | None
    gbit_per_s: float | None
    rounds: int
    share: float = 1.0
    num_kept: int = 2
    can_wait: bool = True
    times_sent: float = 1
    times_received: float = 3

    @property
    def payload_bytes(self) -> int:
        """Of the numbers that a worker exchanges in a round."""
        return self.codec.num_bytes(round(self.share * self.num_parameters))

    @property
    def sent_bytes(self) -> int:
        """By one worker, a round; nothing if it is alone."""
        return math.ceil(self.times_sent * self.payload_bytes) if self.workers > 1 else 0

    @property
    def received_bytes(self) -> int:
        """By one worker, a round; nothing if it is alone."""
        return math.ceil(self.times_received * self.payload_bytes) if self.workers > 1 else 0

    @property
    def bytes_a_token(self) -> float:
        """Sent and received by a worker for each token that it reads."""
        tokens = self.every_steps * self.step_tokens
        return (self.sent_bytes + self.received_bytes) / tokens

    @property
    def memory_bytes(self) -> int:
        """Of a worker's host: such as outer parameters, momentum and residuals, in fp32."""
        return self.num_kept * _FP32_BYTES * self.num_parameters

    @property
    def round_seconds(self) -> float | None:
        """Of all exchanges of a round."""
        return self._seconds(max(self.sent_bytes, self.received_bytes))

    @property
    def exchange_seconds(self) -> float | None:
        """Of one fragment."""
        return None if self.round_seconds is None else self.round_seconds / self.fragments

    @property
    def break_even_steps(self) -> int | None:
        """Least `every_steps` whose computing takes as long as its exchanges; 1 at least."""
        return _steps(self.round_seconds, self.step_seconds)

    @property
    def hiding_steps(self) -> int | None:
        """Least `delay_steps` that hide the exchange of a fragment."""
        return _steps(self.exchange_seconds, self.step_seconds)

    @property
    def data_parallel_bytes(self) -> int:
        """Sent by one of as many copies in a step, and received: a ring of gradients in fp32.

        A ring of K sends 2 (K - 1) / K of the summed bytes (Patarasuk and Yuan, J. Parallel
        Distrib. Comput. 69, 2009).
        """
        whole = 2 * (self.workers - 1) * _FP32_BYTES * self.num_parameters
        return math.ceil(whole / self.workers)

    @property
    def data_parallel_seconds(self) -> float | None:
        """Of a step's ring."""
        return self._seconds(self.data_parallel_bytes)

    def rows(self) -> list[TableRow]:
        """Return a table for `text_table`: compared with data parallelism, by round."""
        steps, ring = self.every_steps, self.every_steps * self.data_parallel_bytes
        rows: list[TableRow] = [
            (f"a worker of {self.workers}, a round", f"workers, {self.codec.name}", "each step"),
            ("steps", steps, steps),
            ("rounds of each weight", self.rounds, ""),
            ("MB sent", self.sent_bytes / 1e6, ring / 1e6),
            ("MB received", self.received_bytes / 1e6, ring / 1e6),
            (
                "bytes sent and received a token",
                self.bytes_a_token,
                2 * self.data_parallel_bytes / self.step_tokens,
            ),
        ]
        if self.round_seconds is not None and self.data_parallel_seconds is not None:
            seconds = (self.round_seconds, steps * self.data_parallel_seconds)
            rows += self._rows_of_time(*seconds)
        return [*rows, ("GiB of the host's memory", self.memory_bytes / 2**30, 0.0)]

    def _rows_of_time(self, exchanging: float, ring: float) -> list[TableRow]:
        rows: list[TableRow] = [
            (f"seconds at {self.gbit_per_s:g} Gbit/s", exchanging, ring),
            ("seconds of one exchange", exchanging / self.fragments, ring / self.every_steps),
        ]
        if self.step_seconds is None:
            return rows
        computing = self.every_steps * self.step_seconds
        shares = [100 * time / (time + computing) for time in (exchanging, ring)]
        rows += [
            ("seconds of computing", computing, computing),
            ("% of the time in exchanges that nothing hides", *shares),
        ]
        if not self.can_wait:
            return rows
        return [
            *rows,
            ("steps that hide one exchange", self.hiding_steps or "", ""),
            ("every_steps whose computing takes as long", self.break_even_steps or "", ""),
        ]

    def _seconds(self, num_bytes: int) -> float | None:
        return None if self.gbit_per_s is None else 8 * num_bytes / (self.gbit_per_s * 1e9)


def workers_plan(config: WorkersConfig, plan: Plan, gbit_per_s: float | None = None) -> WorkersPlan:
    """Return the exchange of a run's workers, in the span with the most steps.

    Args:
        config: of the workers, at least one.
        plan: of one of them, taking all steps.
        gbit_per_s: of a worker's link; without it no time is expected.

    Raises:
        ConfigError: the link carries nothing.
    """
    wrong = f"--gbit-per-s {gbit_per_s}: give more than 0"
    check(gbit_per_s is None or gbit_per_s > 0, wrong)
    span = max(plan.spans, key=lambda span: span.num_steps)
    return WorkersPlan(
        num_parameters=plan.num_trained,
        workers=config.count,
        step_tokens=span.num_tokens // span.num_steps,
        step_seconds=None if span.seconds is None else span.seconds / span.num_steps,
        gbit_per_s=gbit_per_s,
        rounds=rounds_of(config, sum(span.num_steps for span in plan.spans)),
        **_EXCHANGES[config.method](config),
    )


def _of_diloco(config: WorkersConfig) -> dict[str, Any]:
    codec, num_others = CODECS[config.codec], config.count - 1
    return {
        "codec": codec,
        "every_steps": config.every_steps,
        "fragments": config.fragments,
        "num_kept": 1 + (config.momentum > 0) + (codec.feedback is not None),
        "times_sent": 1 if config.store else num_others,
        "times_received": num_others,
    }


def _of_sparta(config: WorkersConfig) -> dict[str, Any]:
    ring = 2 * (config.count - 1) / config.count
    in_fp64 = 2 * ring
    return {
        "codec": CODECS["fp32"],
        "every_steps": 1,
        "fragments": 1,
        "share": config.share,
        "num_kept": 1,  # copies of the local weights, while the mean of all is measured or saved
        "times_sent": in_fp64,
        "times_received": in_fp64,
        "can_wait": False,
    }


_EXCHANGES = {"diloco": _of_diloco, "sparta": _of_sparta}


def rounds_of(config: WorkersConfig, num_steps: int) -> int:
    """Return how often each weight is synchronised in a run whose steps workers share."""
    steps = num_steps / config.count
    is_sparta = config.method == "sparta"
    return math.ceil(
        steps * config.share if is_sparta else num_steps / (config.count * config.every_steps)
    )


def advice(config: WorkersConfig, num_steps: int) -> str:
    """Return advice for a run of this length in a line, or an empty string."""
    rounds = rounds_of(config, num_steps) if config.count and config.method == "diloco" else 0
    if not config.momentum or not 0 < rounds < FEW_ROUNDS:
        return ""
    return (
        f"workers: each weight has {rounds} rounds, which is few for outer momentum; the plain "
        "mean (momentum = 0, learning_rate = 1) learned more in runs as short"
    )


def _steps(seconds: float | None, step_seconds: float | None) -> int | None:
    if seconds is None or step_seconds is None:
        return None
    return max(1, math.ceil(seconds / step_seconds))
