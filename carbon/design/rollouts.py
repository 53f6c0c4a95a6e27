"""Samples to learn from, by our own engine: of the one that learns, or of workers.

Workers are as INTELLECT-2 (arXiv 2505.07291) has them. They draw and measure with the newest
weights that they find, and pause where enough lies ready. The learner takes groups whose weights
are at most so many rounds old, drops older ones, and corrects for the weights that drew them: the
ratio of GRPO is that to the log-probabilities which the worker has told.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from carbon.console import progress
from carbon.design.mail import Letter, Mailbox, Pause, Tensors
from carbon.design.oracles import Oracle
from carbon.design.rewards import measured
from carbon.design.tune_task import TuneTask
from carbon.inference.generation.continuation import Task
from carbon.inference.generation.drawing import generate
from carbon.inference.generation.sampling import SamplingRule
from carbon.inference.reading import Reader
from carbon.model import LoadedModel
from carbon.tokenizer import Vocabulary, decode_ids, encode_kmers


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

    def __init__(self, mailbox: Mailbox, most_stale: int) -> None:
        """Take where samples come from, and how old their weights may be."""
        self.mailbox, self.most_stale = mailbox, most_stale
        self.staleness_rounds = self.num_dropped = 0

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Publish the weights, and return a group."""
        step = trainer.state.global_step
        least_round = step - self.most_stale
        self.mailbox.publish(step, adapter_of(trainer.model))
        self.num_dropped += self.mailbox.drop(least_round)
        letter = self.mailbox.take(least_round)
        self.staleness_rounds = step - letter.round
        return {
            "prompt_ids": trainer.processing_class(text=list(prompts))["input_ids"],
            "completion_ids": letter.ids.tolist(),
            "logprobs": letter.log_probs.tolist(),
            "oracle_values": letter.values.tolist(),
        }

    def told(self) -> dict[str, int]:
        """Return what the curves tell of a step."""
        return {"staleness_rounds": self.staleness_rounds, "dropped_groups": self.num_dropped}


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


def adapter_of(adapted: Any) -> Tensors:
    """Return the weights of the adapter on the CPU."""
    from peft import get_peft_model_state_dict

    # Without the word, peft looks for the start's vocabulary on the Hub.
    weights = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    return {name: each.detach().cpu() for name, each in weights.items()}


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


def work(
    adapted: Any,
    vocabulary: Vocabulary,
    draw: Draw,
    oracles: Sequence[Oracle],
    task: TuneTask,
    mailbox: Mailbox,
    worker: int,
) -> int:
    """Draw and measure groups until the run is over; return how many.

    Pauses while more groups lie ready than steps may be behind, of weights that the learner still
    takes. Each worker looks for itself, so that there may be as many more as there are workers.

    Args:
        adapted: network of peft, whose head is held to 6-mers.
        vocabulary: of it.
        draw: draws with it.
        oracles: that measure.
        task: of the run.
        mailbox: that was joined.
        worker: number of this one.

    Raises:
        UserError: an oracle fails, or what draws.
    """
    from peft import set_peft_model_state_dict

    round_, seed, count, pause = None, 0, 0, Pause()
    with progress("groups drawn", None) as advance:
        while not mailbox.is_over():
            if (newest := mailbox.newest(round_)) is not None:
                if round_ is None:
                    seed = _seed_of(task.seed, worker, newest[0])
                round_ = newest[0]
                set_peft_model_state_dict(adapted, newest[1])
            if round_ is None or mailbox.num_waiting(round_ - task.most_stale) > task.most_stale:
                pause.wait()
                continue
            samples = range(count * task.group, (count + 1) * task.group)
            ids, log_probs = draw(round_, seed, samples)
            bases = [decode_ids(row, vocabulary) for row in ids.numpy()]
            values = torch.tensor(measured(oracles, bases), dtype=torch.float64)
            mailbox.send(Letter(round_, ids, log_probs, values), worker, count)
            count, pause = count + 1, Pause()
            advance(1)
    return count


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
