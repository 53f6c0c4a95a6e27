"""Samples to learn from, by our own engine: of the one that learns, or of workers.

Workers are as INTELLECT-2 (arXiv 2505.07291) has them. Each draws and measures a group with the
weights that were newest when it began. The learner takes groups whose weights are at most so many
rounds old, drops older ones, and corrects for the weights that drew them: the ratio of GRPO is that
to the log-probabilities of the worker.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.design.oracles import Oracle
from carbon.design.rewards import measured
from carbon.design.tune_task import TuneTask
from carbon.inference.generation.continuation import Task
from carbon.inference.generation.drawing import generate
from carbon.inference.generation.sampling import SamplingRule
from carbon.inference.reading.reader import Reader
from carbon.model import LoadedModel
from carbon.parallel.driver import Block, Workers
from carbon.tokenizer import Vocabulary, decode_ids, encode_kmers

Arrays = dict[str, NDArray[np.float32]]


class OwnRollouts:
    """What trl asks for samples where processes that learn draw them: each its part of the group.

    A sample follows from the weights, the seed, the step and its number in the group.
    """

    def __init__(self, task: TuneTask, vocabulary: Vocabulary, rank: int) -> None:
        """Take what to draw, the vocabulary of the network, and which process this is."""
        self.task, self.vocabulary, self.rank = task, vocabulary, rank

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Return this process's samples of a group."""
        first = self.rank * len(prompts)
        ids = drawn(
            trainer.model.get_base_model(),
            self.vocabulary,
            self.task,
            _seed_of(self.task.seed, trainer.state.global_step),
            range(first, first + len(prompts)),
        )
        return {
            "prompt_ids": trainer.processing_class(text=list(prompts))["input_ids"],
            "completion_ids": ids.tolist(),
            "logprobs": None,  # trl takes those of the weights that learn, which drew them
        }


class Rollouts:
    """What trl asks for samples where workers draw them.

    Attributes:
        staleness_rounds: steps between the weights that drew the last group and those that learn.
        num_dropped: groups that were too old, so far.
    """

    def __init__(self, workers: Workers, task: TuneTask) -> None:
        """Take who draws; each a `Sampler` of the task, with one group in flight."""
        self._task = task
        self._computed = workers.computed(self._groups())
        self._round: int = 0
        self._weights: Arrays = {}
        self.staleness_rounds = self.num_dropped = 0

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Return a group whose weights are not too old; workers draw with the newest from now on.

        Raises:
            UserError: an oracle fails, or three workers died on one group.
        """
        step = self._round = trainer.state.global_step
        self._weights = {name: each.numpy() for name, each in adapter_of(trainer.model).items()}
        _, group = next(self._computed)
        while group["round"] < step - self._task.most_stale:
            self.num_dropped += 1
            _, group = next(self._computed)
        self.staleness_rounds = step - group["round"]
        return {
            "prompt_ids": trainer.processing_class(text=list(prompts))["input_ids"],
            "completion_ids": group["ids"],
            "logprobs": group["log_probs"],
            "oracle_values": group["values"],
        }

    def told(self) -> dict[str, int]:
        """Return what the curves tell of a step."""
        return {"staleness_rounds": self.staleness_rounds, "dropped_groups": self.num_dropped}

    def _groups(self) -> Iterator[Block]:
        """Yield groups to draw, without end, each with the newest weights."""
        for number in count():
            seed = _seed_of(self._task.seed, number, self._round)
            first = number * self._task.group
            payload = (self._round, self._weights, seed, range(first, first + self._task.group))
            yield Block(number, f"group {number + 1}", payload)


def corrected(trainer: type) -> type:
    """Return a trainer whose ratio is that to the log-probabilities of whoever drew a sample.

    trl does so for samples of vLLM alone, and takes all others for those of its own weights.
    """

    class Corrected(trainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found = super()._generate_and_score_completions(inputs)
            found["old_per_token_logps"] = found["sampling_per_token_logps"]
            return found

    return Corrected


def adapter_of(adapted: Any) -> dict[str, Tensor]:
    """Return the weights of the adapter on the CPU, float32."""
    from peft import get_peft_model_state_dict

    # Without the word, peft looks for the start's vocabulary on the Hub.
    weights = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    return {name: each.detach().float().cpu() for name, each in weights.items()}


Draw = Callable[[int, int, Sequence[int]], tuple[Tensor, Tensor]]
"""Gives ids and log-probabilities of samples, by round of the weights, seed and numbers."""


def by_our_engine(
    network: Any, vocabulary: Vocabulary, prompt: Sequence[int], task: TuneTask
) -> Draw:
    """Return what draws with a network of this process, after ids that are before every sample."""

    def draw(_round: int, seed: int, samples: Sequence[int]) -> tuple[Tensor, Tensor]:
        ids = drawn(network, vocabulary, task, seed, samples)
        return ids, log_probs_of(network, prompt, ids)

    return draw


class Sampler:
    """A worker: adapters in, groups that are drawn and measured out.

    Attributes:
        about: what learner and workers must have alike.
    """

    def __init__(
        self,
        adapted: Any,
        vocabulary: Vocabulary,
        draw: Draw,
        oracles: Sequence[Oracle],
        about: dict[str, Any],
        opened: ExitStack,
    ) -> None:
        """Take what draws and measures.

        Args:
            adapted: network of peft, whose head is held to 6-mers.
            vocabulary: of it.
            draw: draws with it.
            oracles: that measure.
            about: see above.
            opened: is closed with this worker.
        """
        self.about = about
        self._adapted, self._vocabulary, self._draw = adapted, vocabulary, draw
        self._oracles, self._opened, self._round = oracles, opened, -1

    def __call__(self, payload: tuple[int, Arrays, int, range]) -> dict[str, Any]:
        """Return a group: its round, ids, log-probabilities and values, (samples, ...) each.

        Raises:
            UserError: an oracle fails, or what draws.
        """
        from peft import set_peft_model_state_dict

        round_, weights, seed, samples = payload
        if round_ != self._round:
            tensors = {name: torch.from_numpy(each) for name, each in weights.items()}
            set_peft_model_state_dict(self._adapted, tensors)
            self._round = round_
        ids, log_probs = self._draw(round_, seed, samples)
        bases = [decode_ids(row, self._vocabulary) for row in ids.numpy()]
        values = np.asarray(measured(self._oracles, bases), dtype=np.float64)
        return {
            "round": round_,
            "ids": ids.tolist(),
            "log_probs": log_probs.tolist(),
            "values": values.tolist(),
        }

    def close(self) -> None:
        """End the processes of oracles."""
        self._opened.close()


def drawn(
    network: Any, vocabulary: Vocabulary, task: TuneTask, seed: int, samples: Sequence[int]
) -> Tensor:
    """Return the ids of samples, (samples, tokens): each follows from the seed and its number."""
    reader = Reader(LoadedModel(network, vocabulary))
    wanted = Task(task.length_bp, SamplingRule(), seed, tuple(task.tags))
    texts = generate(reader, [task.prompt] * len(samples), wanted, samples=samples)
    kmers = np.stack([encode_kmers(text).indices for text in texts])
    return torch.from_numpy(kmers + vocabulary.first_kmer)


def log_probs_of(network: Any, prompt: Sequence[int], ids: Tensor) -> Tensor:
    """Return the log-probabilities of samples' tokens behind a prompt, (samples, tokens) fp32."""
    before = torch.tensor([list(prompt)] * len(ids))
    with torch.no_grad():
        logits: Tensor = network(torch.cat([before, ids], dim=1).to(network.device)).logits
    log_probs = logits[:, len(prompt) - 1 : -1].float().log_softmax(dim=-1).cpu()
    return log_probs.gather(-1, ids[..., None])[..., 0]


def _seed_of(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])
