"""Models behind the contract: Carbon's own, and which adapter a folder needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from carbon import inference
from carbon.errors import ModelError, UserError
from carbon.genome import Reference, Variant
from carbon.inference import (
    Continuation,
    Passage,
    VariantKeywords,
    continuation_of,
    load,
    prefix_of,
)
from carbon.inference.checks import check_finite
from carbon.inference.options import Dtype, Mode
from carbon.io.structured import JSON_OBJECT, read_json
from carbon.losses import chain
from carbon.model.folder import hub_folder, hub_name
from carbon.model.load import cache_arguments, cache_of
from carbon.parallel.driver import in_blocks
from carbon.pretrained import local_folder
from carbon.tokenizer import (
    ALL_KNOWN,
    HYBRID,
    KMER_DIGITS,
    NATIVE,
    K,
    Kmers,
    decode_kmers,
    encode_kmers,
    known_bases,
)
from eval.contract import Floats, Model, Reading
from eval.hugging_face import HuggingFaceModel, load_hugging_face

_AT_ONCE = 64
_ACGT = [0, 2, 3, 1]  # places of A, C, G and T among the digits of a 6-mer


class CarbonModel(Model):
    """A Carbon checkpoint, with what it shares between the questions of a task.

    Attributes:
        carbon: the model.
    """

    def __init__(self, carbon: inference.Model, name: str) -> None:
        """Wrap a loaded model."""
        self.carbon = carbon
        self.name = name
        self.context_bp = carbon.context_bp

    @property
    def network(self) -> torch.nn.Module:
        """Whatever reads tokens."""
        return cast("torch.nn.Module", self.carbon.runner.network.model)

    def log_likelihoods(self, sequences: Sequence[str]) -> Floats:
        """Return log-likelihoods by the chain; what is longer than the context is windowed."""
        return np.array(
            [score.log_likelihood for score in self.carbon.score(sequences)], dtype=np.float64
        )

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return p(base | prompt); a last one to five bases condition their 6-mer."""
        rows = []
        for some in in_blocks(prompts, _AT_ONCE):
            parts = [self._cut(prompt) for prompt in some]
            passages = [
                Passage(self._stem(whole), (continuation_of(tail + "A", self._vocabulary),))
                for whole, tail in parts
            ]
            measured = self.carbon.runner.conditionals(passages)
            rows += [
                np.exp(steps[0, len(tail), _ACGT].astype(np.float64))
                for (steps,), (_, tail) in zip(measured, parts, strict=True)
            ]
        check_finite(rows, "a prompt")
        return np.array(rows).reshape(-1, 4)

    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Continue greedily by whole 6-mers or by the marginals of their six bases."""
        return self.carbon.generate(prompts, length_bp, temperature=0, mode=mode)

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Score as `carbon variants` does: what is before a variant is read once."""
        options: VariantKeywords = {
            "protocol": reading.protocol,
            "window_bp": reading.window_bp,
            "strands": reading.strands,
        }
        scores = self.carbon.score_variants(reference, variants, **options)
        return [score.delta for score in scores]

    def differences(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Read what both of a pair begin with but once."""
        if any(len(sequence) > self.context_bp for pair in pairs for sequence in pair):
            return super().differences(pairs)
        results = []
        for some in in_blocks(pairs, _AT_ONCE):
            measured = self.carbon.runner.likelihoods([self._fork(*pair) for pair in some], "chain")
            results += [
                float(first.sum(dtype=np.float64) - second.sum(dtype=np.float64))
                for first, second in measured
            ]
        return np.array(results, dtype=np.float64)

    @torch.inference_mode()
    def recall(self, prompt: str, length_bp: int, endings: Sequence[str]) -> tuple[str, Floats]:
        """Read the prompt once, keep its keys and values, and read everything else on top."""
        whole, tail = self._cut(prompt, max([length_bp, *map(len, endings)]))
        stem = self._stem(whole)
        output: Any = self._read(stem)
        cache, last = cache_of(output), output[0][0, -1:]
        text = self._greedy(cache, last, tail, length_bp)
        likelihoods = []
        for ending in endings:
            _cut_back(cache, len(stem))
            branch = continuation_of(tail + ending, self._vocabulary)
            likelihoods.append(self._after(cache, last, branch)[len(tail) :].sum())
        return text, np.array(likelihoods, dtype=np.float64)

    @property
    def _vocabulary(self) -> Any:
        return self.carbon.runner.vocabulary

    def _stem(self, whole: str) -> Any:
        return prefix_of(whole, self._vocabulary)

    def _cut(self, prompt: str, more_bp: int = 0) -> tuple[str, str]:
        """Return the whole 6-mers of a prompt, as many as fit before more bases, and its tail."""
        whole_bp = len(prompt) // K * K
        tail = prompt[whole_bp:]
        room_bp = (self.context_bp - (len(tail) + more_bp if more_bp else 0)) // K * K
        return prompt[max(whole_bp - room_bp, 0) : whole_bp], tail

    def _fork(self, first: str, second: str) -> Passage:
        shared_bp = _common_bp(first.upper(), second.upper())
        shared_bp = min(shared_bp, len(first) - 1, len(second) - 1) // K * K
        branches = (continuation_of(s[shared_bp:], self._vocabulary) for s in (first, second))
        return Passage(self._stem(first[:shared_bp]), tuple(branches))

    def _read(self, ids: Any, cache: Any = None) -> Any:
        tokens = torch.from_numpy(np.asarray(ids))[None].to(self.carbon.runner.device)
        return self.network(input_ids=tokens, **cache_arguments(self.network, cache))

    def _after(self, cache: Any, last: Tensor, branch: Continuation) -> Any:
        """Return the log-likelihood of every base of a branch, by the chain: (bases,) float64."""
        states = last
        if len(branch.ids) > 1:
            states = torch.cat([last, self._read(branch.ids[:-1], cache)[0][0]])
        logits = self.carbon.runner.logits(states)
        kmers = torch.from_numpy(branch.kmers).to(logits.device)
        known = torch.from_numpy(known_bases(branch.known)).to(logits.device)
        return chain(logits, kmers, known).double().cpu().numpy().reshape(-1)

    def _greedy(self, cache: Any, last: Tensor, tail: str, length_bp: int) -> str:
        kmers: list[int] = []
        while len(kmers) * K < len(tail) + length_bp:
            if kmers:
                last = self._read([self._vocabulary.first_kmer + kmers[-1]], cache)[0][0, -1:]
            logits = self.carbon.runner.logits(last)[0].cpu().numpy()
            check_finite(logits.sum(), "a prompt")
            kmers.append(
                int(np.where(_begin_with("" if kmers else tail), logits, -np.inf).argmax())
            )
        text = decode_kmers(Kmers(np.array(kmers), np.full(len(kmers), ALL_KNOWN, np.uint8)))
        return text[len(tail) : len(tail) + length_bp]


def _cut_back(cache: Any, tokens: int) -> None:
    """Forget what was read after so many tokens."""
    if more := cache.get_seq_length() - tokens:
        cache.crop(-more)


def _common_bp(first: str, second: str) -> int:
    """Return how many bases both begin with."""
    both = (np.frombuffer(s.encode("ascii"), dtype=np.uint8) for s in (first, second))
    a, b = (codes[: min(len(first), len(second))] for codes in both)
    return int(np.argmax(np.append(a != b, True)))


def _begin_with(tail: str) -> Any:
    """Tell which 6-mers begin with the known bases of a tail: (4096,) bool."""
    if not tail:
        return np.ones(len(KMER_DIGITS), dtype=bool)
    encoded = encode_kmers(tail)
    digits, known = KMER_DIGITS[encoded.indices[0]], known_bases(encoded.known)[0]
    return ((digits == KMER_DIGITS) | ~known).all(axis=1)


def load_any(
    source: str, name: str, *, dtype: Dtype = "float32", device: str = "auto", yarn: float | None
) -> CarbonModel | HuggingFaceModel:
    """Load a Carbon checkpoint, or else any causal language model over DNA.

    Which it is follows from the config: a llama with as many rows as Carbon's vocabularies have.

    Raises:
        ModelError: there is no such model, or it is of a kind that cannot be loaded.
        UserError: the device is not there.
    """
    here = local_folder(source)
    if here and not _is_carbon(here):
        return load_hugging_face(source, name, dtype=dtype, device=device)
    try:
        return CarbonModel(load(source, dtype=dtype, device=device, yarn=yarn), name)
    except ModelError:
        if here:
            raise
        hub_folder(hub_name(source), with_weights=False)  # raises where there is none to be had
        return load_hugging_face(source, name, dtype=dtype, device=device)


def _is_carbon(folder: Path) -> bool:
    """Tell by config.json; a folder without one is left to Carbon's loader to complain of."""
    try:
        config = read_json(folder / "config.json", JSON_OBJECT)
    except (OSError, UserError):
        return True
    rows = config.get("vocab_size")
    return config.get("model_type") == "llama" and rows in (NATIVE.size, HYBRID.size)
