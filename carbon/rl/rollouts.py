"""Samples to learn from, by our own engine: of the one that learns, or of workers.

Workers are as INTELLECT-2 (arXiv 2505.07291) has them. Each draws and measures a group with the
weights that were newest when it began. The learner takes groups whose weights are at most so many
rounds old, drops older ones, and corrects for the weights that drew them: the ratio of GRPO is that
to the log-probabilities of the worker.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from typing import Any

import numpy as np
import requests
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.design.functions import Oracle
from carbon.errors import UserError
from carbon.inference.generate.generate import generate
from carbon.inference.generate.prompts import SamplingRule, Task
from carbon.inference.runner import ModelRunner
from carbon.io.files import scratch_folder
from carbon.model import LoadedModel
from carbon.parallel.driver import Block, Workers
from carbon.rl.config import TuneTask
from carbon.rl.folder import save_adapter
from carbon.rl.rewards import measured
from carbon.tokenizer import K, Vocabulary, decode_ids, encode_kmers

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


def adapter_of(finetuned: Any) -> dict[str, Tensor]:
    """Return the weights of the adapter on the CPU, float32."""
    from peft import get_peft_model_state_dict

    # Without the word, peft looks for the start's vocabulary on the Hub.
    weights = get_peft_model_state_dict(finetuned, save_embedding_layers=False)
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
        finetuned: Any,
        vocabulary: Vocabulary,
        draw: Draw,
        oracles: Sequence[Oracle],
        about: dict[str, Any],
        opened: ExitStack,
    ) -> None:
        """Take what draws and measures.

        Args:
            finetuned: network of peft, whose head is held to 6-mers.
            vocabulary: of it.
            draw: draws with it.
            oracles: that measure.
            about: see above.
            opened: is closed with this worker.
        """
        self.about = about
        self._finetuned, self._vocabulary, self._draw = finetuned, vocabulary, draw
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
            set_peft_model_state_dict(self._finetuned, tensors)
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
    reader = ModelRunner(LoadedModel(network, vocabulary))
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


_MOST_APART = 0.1
"""Nats of a 6-mer, in the mean of a group; bfloat16 moves those of the box's model by 0.003."""


class VllmServer:
    """Draws for one worker.

    Attributes:
        url: of the server, without `/v1`.
    """

    def __init__(
        self,
        url: str,
        finetuned: Any,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        task: TuneTask,
    ) -> None:
        """Ask whether it is there.

        Args:
            url: of the server.
            finetuned: network of peft that the worker has, whose head is held to 6-mers.
            vocabulary: of it.
            prompt: ids before every sample.
            task: of the run.

        Raises:
            UserError: it does not answer.
        """
        self.url = url.rstrip("/").removesuffix("/v1")
        self._finetuned, self._prompt, self._task = finetuned, list(prompt), task
        rows = vocabulary.kmer_rows
        self._kmers = list(range(rows.start, rows.stop))
        self._asked("get", "/v1/models")
        self._closing, self._loaded = ExitStack(), ""
        self._folder = self._closing.enter_context(scratch_folder("tuning"))

    def close(self) -> None:
        """Have the server let go of the adapter."""
        with suppress(UserError):  # of a server that is no longer there
            self._let_go()
        self._closing.close()

    def drawn(self, round_: int, seed: int, samples: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the ids of samples, and their log-probabilities as the server tells them.

        Raises:
            UserError: it does not answer, refuses, tells no ids, or draws by other weights than the
                worker has.
        """
        self._load(round_)
        tokens = self._task.length_bp // K
        answer = self._asked(
            "post",
            "/v1/completions",
            model=self._loaded,
            prompt=self._prompt,
            n=len(samples),
            seed=(seed + samples[0]) % 2**31,
            max_tokens=tokens,
            ignore_eos=True,
            allowed_token_ids=self._kmers,
            logprobs=0,
            return_token_ids=True,
            # A model's folder may name others, which the server would take.
            temperature=1.0,
            top_p=1.0,
            top_k=-1,
            min_p=0.0,
            repetition_penalty=1.0,
        )
        try:
            drawn = answer.json()["choices"]
            ids = torch.tensor([each["token_ids"] for each in drawn])
            log_probs = torch.tensor([each["logprobs"]["token_logprobs"] for each in drawn])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.url}: answers without ids and log-probabilities of whole samples; take a "
                "vLLM that knows return_token_ids, as 0.32 does"
            ) from error
        ours = log_probs_of(self._finetuned.get_base_model(), self._prompt, ids)
        if (apart := (ours - log_probs).abs().mean().item()) > _MOST_APART:
            raise UserError(
                f"{self.url}: its log-probabilities are {apart:.2f} nats a 6-mer from those of the "
                "worker: start it with the model of this run, and with --logprobs-mode "
                "processed_logprobs"
            )
        return ids, log_probs

    def _load(self, round_: int) -> None:
        """Have the adapter of a round loaded in the place of the one before."""
        name = f"{self._folder.name}-{round_:06d}"  # the server's cache of prompts goes by names
        if name == self._loaded:
            return
        save_adapter(self._finetuned, self._folder / name)
        self._let_go()
        path = str(self._folder / name)
        self._asked("post", "/v1/load_lora_adapter", lora_name=name, lora_path=path)
        self._loaded = name

    def _let_go(self) -> None:
        if self._loaded:
            self._asked("post", "/v1/unload_lora_adapter", lora_name=self._loaded)
            shutil.rmtree(self._folder / self._loaded, ignore_errors=True)
            self._loaded = ""

    def _asked(self, how: str, path: str, **what: Any) -> requests.Response:
        seconds = self._task.timeout_seconds
        try:
            answer = requests.request(how, self.url + path, json=what, timeout=seconds)
        except requests.RequestException as error:
            raise UserError(f"{self.url}: no vLLM server answers: {error}") from error
        if not answer.ok:
            words = " ".join(answer.text.split())[:200]
            raise UserError(
                f"{self.url}{path}: {answer.status_code}: {words}; docs/design.md tells how a vLLM "
                "server is started for carbon rl"
            )
        return answer
