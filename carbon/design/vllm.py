"""Samples by a vLLM server, whose adapter is changed as it runs.

The server has the network of the start, by the layout that `carbon convert` writes, and an
environment of its own. A worker writes each adapter where the server finds it, has it loaded in the
place of the one before, and sends and gets ids: nothing is tokenized there.
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import requests
import torch
from torch import Tensor

from carbon.design.rollouts import log_probs_of
from carbon.design.tune_folder import save_adapter
from carbon.design.tune_task import TuneTask
from carbon.errors import UserError
from carbon.io.files import scratch_folder
from carbon.tokenizer import K, Vocabulary

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
        adapted: Any,
        vocabulary: Vocabulary,
        prompt: Sequence[int],
        task: TuneTask,
    ) -> None:
        """Ask whether it is there.

        Args:
            url: of the server.
            adapted: network of peft that the worker has, whose head is held to 6-mers.
            vocabulary: of it.
            prompt: ids before every sample.
            task: of the run.

        Raises:
            UserError: it does not answer.
        """
        self.url = url.rstrip("/").removesuffix("/v1")
        self._adapted, self._prompt, self._task = adapted, list(prompt), task
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
        ours = log_probs_of(self._adapted.get_base_model(), self._prompt, ids)
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
        save_adapter(self._adapted, self._folder / name)
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
                "server is started for carbon tune"
            )
        return answer
