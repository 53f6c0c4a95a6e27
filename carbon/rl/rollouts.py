"""Samples for GRPO, drawn by our engine in the training processes, by workers or by a vLLM server.

Workers follow INTELLECT-2 (arXiv 2505.07291). Each draws and scores a group with the newest weights
at the time it starts. The trainer accepts groups whose weights are at most `most_stale` steps old
and drops older ones. To correct for stale weights, GRPO's ratio is computed against the worker's
log-probabilities.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
import requests
import torch
from numpy.typing import NDArray
from torch import Tensor

from carbon.design.functions import ScoringFunction
from carbon.errors import UserError
from carbon.inference.generate.generate import generate
from carbon.inference.generate.prompts import Task
from carbon.inference.options import SamplingRule
from carbon.inference.runner import ModelRunner
from carbon.io.files import scratch_folder
from carbon.model import LoadedModel
from carbon.parallel.driver import Block, Workers
from carbon.rl.config import RLConfig
from carbon.rl.folder import save_adapter
from carbon.rl.rewards import function_values
from carbon.tokenizer import K, Vocabulary, decode_ids, encode_kmers

Arrays = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class OwnRollouts:
    """trl's rollout function in which each training process draws its share of the group.

    A sample depends only on the weights, the seed, the step and its number in the group.
    """

    config: RLConfig
    vocabulary: Vocabulary
    rank: int

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Return this process's samples of a group."""
        first = self.rank * len(prompts)
        ids = draw_samples(
            trainer.model.get_base_model(),
            self.vocabulary,
            self.config,
            _seed_of(self.config.seed, trainer.state.global_step),
            range(first, first + len(prompts)),
        )
        return {
            "prompt_ids": trainer.processing_class(text=list(prompts))["input_ids"],
            "completion_ids": ids.tolist(),
            "logprobs": None,  # trl computes them with the current weights
        }


class WorkerRollouts:
    """trl's rollout function in which workers draw the samples.

    Attributes:
        staleness_rounds: age, in steps, of the weights that drew the last group.
        num_dropped: number of groups that were too old.
    """

    def __init__(self, workers: Workers, config: RLConfig) -> None:
        """Start the workers on groups.

        Args:
            workers: each a `Sampler` with one group in flight.
            config: of the run.
        """
        self._config = config
        self._computed = chain.from_iterable(workers.computed(self._groups()))
        self._round: int = 0
        self._weights: Arrays = {}
        self.staleness_rounds = self.num_dropped = 0

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Return a group that is not too old; later groups are drawn with the newest weights.

        Raises:
            UserError: a scoring function fails, or three workers died on one group.
        """
        step = self._round = trainer.state.global_step
        self._weights = {name: each.numpy() for name, each in adapter_of(trainer.model).items()}
        _, group = next(self._computed)
        while group["round"] < step - self._config.most_stale:
            self.num_dropped += 1
            _, group = next(self._computed)
        self.staleness_rounds = step - group["round"]
        return {
            "prompt_ids": trainer.processing_class(text=list(prompts))["input_ids"],
            "completion_ids": group["ids"],
            "logprobs": group["log_probs"],
            "function_values": group["values"],
        }

    def metrics(self) -> dict[str, int]:
        """Return the metrics of a step."""
        return {"staleness_rounds": self.staleness_rounds, "dropped_groups": self.num_dropped}

    def _groups(self) -> Iterator[Block]:
        """Yield groups to draw, without end, each with the newest weights."""
        for number in count():
            seed = _seed_of(self._config.seed, number, self._round)
            first = number * self._config.group
            payload = (self._round, self._weights, seed, range(first, first + self._config.group))
            yield Block(number, f"group {number + 1}", payload)


def off_policy(trainer: type) -> type:
    """Return a trainer class whose ratio is against the log-probabilities that drew a sample.

    trl does this only for samples of vLLM, and takes all others as drawn by the current weights.
    """

    class OffPolicy(trainer):  # type: ignore[misc]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            batch["old_per_token_logps"] = batch["sampling_per_token_logps"]
            return batch

    return OffPolicy


def adapter_of(network: Any) -> dict[str, Tensor]:
    """Return the weights of peft's adapter on the CPU, float32."""
    from peft import get_peft_model_state_dict

    # Otherwise peft looks up the vocabulary of the starting model on the Hub.
    weights = get_peft_model_state_dict(network, save_embedding_layers=False)
    return {name: each.detach().float().cpu() for name, each in weights.items()}


Draw = Callable[[int, int, Sequence[int]], tuple[Tensor, Tensor]]
"""From round of the weights, seed and sample numbers to ids and log-probabilities."""


def draw_locally(
    network: Any, vocabulary: Vocabulary, prompt: Sequence[int], config: RLConfig
) -> Draw:
    """Return a function that draws with a network of this process.

    Args:
        network: whose head is restricted to 6-mers.
        vocabulary: of the network.
        prompt: ids before every sample.
        config: of the run.
    """

    def draw(_round: int, seed: int, samples: Sequence[int]) -> tuple[Tensor, Tensor]:
        ids = draw_samples(network, vocabulary, config, seed, samples)
        return ids, log_probs_of(network, prompt, ids)

    return draw


@dataclass(kw_only=True, slots=True)
class Sampler:
    """A worker: takes adapters, and returns groups with their values.

    Attributes:
        about: settings that the trainer and all workers must share.
        network: with adapters of peft, whose head is restricted to 6-mers.
        vocabulary: of the network.
        draw: draws with the network.
        functions: scoring functions.
        stack: closed with this worker.
        round: of the network's adapters.
    """

    about: dict[str, Any]
    network: Any
    vocabulary: Vocabulary
    draw: Draw
    functions: Sequence[ScoringFunction]
    stack: ExitStack
    round: int = -1

    def __call__(self, payload: tuple[int, Arrays, int, range]) -> dict[str, Any]:
        """Return a group: its round, ids, log-probabilities and values, (samples, ...) each.

        Raises:
            UserError: a scoring function or the vLLM server fails.
        """
        from peft import set_peft_model_state_dict

        round_, weights, seed, samples = payload
        if round_ != self.round:
            tensors = {name: torch.from_numpy(each) for name, each in weights.items()}
            set_peft_model_state_dict(self.network, tensors)
            self.round = round_
        ids, log_probs = self.draw(round_, seed, samples)
        sequences = [decode_ids(row, self.vocabulary) for row in ids.numpy()]
        return {
            "round": round_,
            "ids": ids.tolist(),
            "log_probs": log_probs.tolist(),
            "values": function_values(self.functions, sequences),
        }

    def close(self) -> None:
        """End the processes of the scoring functions."""
        self.stack.close()


def draw_samples(
    network: Any, vocabulary: Vocabulary, config: RLConfig, seed: int, samples: Sequence[int]
) -> Tensor:
    """Return ids, (samples, tokens); each sample depends only on the seed and its number."""
    runner = ModelRunner(LoadedModel(network, vocabulary))
    task = Task(config.length_bp, SamplingRule(), seed, tuple(config.tags))
    texts = generate(runner, [config.prompt] * len(samples), task, samples=samples)
    kmers = np.stack([encode_kmers(text).indices for text in texts])
    return torch.from_numpy(kmers + vocabulary.first_kmer)


def log_probs_of(network: Any, prompt: Sequence[int], ids: Tensor) -> Tensor:
    """Return the log-probabilities of tokens after a prompt, (samples, tokens) fp32."""
    before = torch.tensor([list(prompt)] * len(ids))
    with torch.no_grad():
        logits: Tensor = network(torch.cat([before, ids], dim=1).to(network.device)).logits
    log_probs = logits[:, len(prompt) - 1 : -1].float().log_softmax(dim=-1).cpu()
    return log_probs.gather(-1, ids[..., None])[..., 0]


def _seed_of(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


_MAX_DIFFERENCE = 0.1
"""Nats per 6-mer, mean over a group; bfloat16 changes the bundled model's by 0.003."""


class VllmServer:
    """Draws samples for one worker.

    Attributes:
        url: of the server, without `/v1`.
    """

    def __init__(
        self,
        url: str,
        network: Any,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        config: RLConfig,
    ) -> None:
        """Check that the server answers.

        Args:
            url: of the server.
            network: of the worker, with adapters of peft; its head is restricted to 6-mers.
            vocabulary: of the network.
            prompt: ids before every sample.
            config: of the run.

        Raises:
            UserError: the server does not answer.
        """
        self.url = url.rstrip("/").removesuffix("/v1")
        self._network, self._prompt, self._config = network, list(prompt), config
        rows = vocabulary.kmer_rows
        self._kmers = list(range(rows.start, rows.stop))
        self._request("get", "/v1/models")
        self._stack, self._loaded = ExitStack(), ""
        self._folder = self._stack.enter_context(scratch_folder("rl"))

    def close(self) -> None:
        """Unload the adapter from the server."""
        with suppress(UserError):  # the server may have ended
            self._unload()
        self._stack.close()

    def draw(self, round_: int, seed: int, samples: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the ids of samples, and the server's log-probabilities.

        Raises:
            UserError: the server does not answer, refuses the request, returns no ids, or has other
                weights than the worker.
        """
        self._load(round_)
        tokens = self._config.length_bp // K
        answer = self._request(
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
            # The defaults of the server come from the model's generation_config.json.
            temperature=1.0,
            top_p=1.0,
            top_k=-1,
            min_p=0.0,
            repetition_penalty=1.0,
        )
        try:
            choices = answer.json()["choices"]
            ids = torch.tensor([each["token_ids"] for each in choices])
            log_probs = torch.tensor([each["logprobs"]["token_logprobs"] for each in choices])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.url}: answers without ids and log-probabilities of whole samples; use a "
                "vLLM that supports return_token_ids, such as 0.32"
            ) from error
        ours = log_probs_of(self._network.get_base_model(), self._prompt, ids)
        if (difference := (ours - log_probs).abs().mean().item()) > _MAX_DIFFERENCE:
            raise UserError(
                f"{self.url}: its log-probabilities differ by {difference:.2f} nats a 6-mer from "
                "those of the worker: start it with the model of this run, and with "
                "--logprobs-mode processed_logprobs"
            )
        return ids, log_probs

    def _load(self, round_: int) -> None:
        """Replace the server's adapter by the adapter of a round."""
        name = f"{self._folder.name}-{round_:06d}"  # new name: the prompt cache is by name
        if name == self._loaded:
            return
        save_adapter(self._network, self._folder / name)
        self._unload()
        path = str(self._folder / name)
        self._request("post", "/v1/load_lora_adapter", lora_name=name, lora_path=path)
        self._loaded = name

    def _unload(self) -> None:
        if self._loaded:
            self._request("post", "/v1/unload_lora_adapter", lora_name=self._loaded)
            shutil.rmtree(self._folder / self._loaded, ignore_errors=True)
            self._loaded = ""

    def _request(self, method: str, path: str, **body: Any) -> requests.Response:
        seconds = self._config.timeout_seconds
        try:
            answer = requests.request(method, self.url + path, json=body, timeout=seconds)
        except requests.RequestException as error:
            raise UserError(f"{self.url}: no vLLM server answers: {error}") from error
        if not answer.ok:
            text = " ".join(answer.text.split())[:200]
            raise UserError(
                f"{self.url}{path}: {answer.status_code}: {text}; docs/design.md explains how to "
                "start a vLLM server for carbon rl"
            )
        return answer
