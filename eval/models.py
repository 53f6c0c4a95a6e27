"""Adapters of Carbon's models to the contract, and the choice of an adapter for a folder."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import LlamaForCausalLM

from carbon import inference
from carbon.batching import in_blocks
from carbon.errors import ModelError, UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.network import OpenedModel, room_bp
from carbon.finetune.probe import layers_of, vectors_of
from carbon.genome import Reference, Variant
from carbon.inference import (
    Continuation,
    Passage,
    VariantKeywords,
    VariantScore,
    all_kmers,
    base_log_likelihoods,
    continuation_of,
    load,
    prefix_of,
)
from carbon.inference.checks import check_finite
from carbon.inference.options import POOLS, VARIANT_SCORES, Dtype, Mode, ScoreName
from carbon.io.structured import JSON_OBJECT, read_json
from carbon.losses import chain
from carbon.model import LoadedModel
from carbon.model.folder import HEAD_NORMS, hub_folder, hub_name
from carbon.model.load import cache_arguments, cache_of
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
from eval.contract import Features, Floats, Model, Reading
from eval.hugging_face import HuggingFaceModel, load_hugging_face

LAST_LAYER = "last norm"
_AT_ONCE = 64
_VALUES: tuple[ScoreName, ...] = ("delta", "jsd", "embedding_distance")
_ACGT = [0, 2, 3, 1]  # places of A, C, G and T among the digits of a 6-mer


class CarbonModel(Model):
    """A Carbon checkpoint; questions share their common prefixes.

    Attributes:
        carbon: the model.
    """

    context_bp: int

    def __init__(self, carbon: inference.Model, name: str) -> None:
        """Wrap a loaded model."""
        self.carbon = carbon
        self.name = name
        self.context_bp = carbon.context_bp

    @property
    def network(self) -> torch.nn.Module:
        """The module that reads tokens."""
        return cast("torch.nn.Module", self.carbon.runner.network.model)

    def base_log_likelihoods(self, sequences: Sequence[str]) -> list[Floats]:
        """Return conditional log-likelihoods of bases: (bases,) a sequence."""
        return [
            base_log_likelihoods(self.carbon.runner, [sequence])[0].astype(np.float64)
            for sequence in sequences
        ]

    def log_likelihoods(self, sequences: Sequence[str]) -> Floats:
        """Return conditional log-likelihoods; longer sequences than the context are windowed."""
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
        """Score as `carbon variants` does: the bases before a variant are read once."""
        scores = self.carbon.score_variants(reference, variants, **_keywords(reading))
        return [score.delta for score in scores]

    def variant_values(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[Mapping[str, float] | None]:
        """Return delta, jsd and embedding distance from one pass, as far as a protocol has them."""
        names = [name for name in _VALUES if reading.protocol in VARIANT_SCORES[name].protocols]
        scores = self.carbon.score_variants(reference, variants, scores=names, **_keywords(reading))
        return [None if score.delta is None else _values_of(score, names) for score in scores]

    def allele_vectors(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]] | None]:
        """Embed both alleles in the `centered` window, which the probes of all protocols read."""
        window_bp = reading._replace(protocol="centered").fitting(self.context_bp).window_bp
        embedded = self.carbon.embed_variants(
            reference, variants, window_bp=window_bp, strands=reading.strands
        )
        return [
            None if each.ref is None or each.alt is None else (each.ref, each.alt)
            for each in embedded
        ]

    def differences(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Read the common prefix of each pair once."""
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
        """Read the prompt once, and continue from its keys and values."""
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

    def word_probabilities(self, sequence: str, words: Sequence[str]) -> Floats:
        """Return p(word) at every place, by the distributions of the 6-mers that hold it whole.

        The sequence is read three times, from its first, second and third base, so that each place
        of a codon meets every place of a 6-mer. A place that two readings cover gets their mean; a
        sequence longer than the context is read in parts that follow one another.
        """
        totals, counts = np.zeros((len(sequence), len(words))), np.zeros((len(sequence), 1))
        slots = K - len(words[0]) + 1
        for start in range(3):
            by_slot = self._by_slot(sequence[start:], words)
            for slot in range(slots):
                at = start + slot + K * np.arange(len(by_slot))
                totals[at] += by_slot[:, slot]
                counts[at] += 1
        with np.errstate(invalid="ignore"):
            return totals / counts

    def _by_slot(self, sequence: str, words: Sequence[str]) -> Floats:
        """Return p(word) at every place in every whole 6-mer: (6-mers, places, words)."""
        runner = self.carbon.runner
        context_bp = (runner.context_tokens - len(self._vocabulary.prefix(()))) * K
        whole_bp = len(sequence) // K * K
        parts = [
            sequence[at : min(at + context_bp, whole_bp)] for at in range(0, whole_bp, context_bp)
        ]
        stem = prefix_of("", self._vocabulary, ())
        passages = [Passage(stem, (continuation_of(part, self._vocabulary),)) for part in parts]
        holds = torch.from_numpy(_holds(tuple(words)))

        def masses(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
            return torch.softmax(logits, dim=1) @ holds.to(logits.device)

        measured = [arrays[0] for arrays in runner.measure(passages, masses)]
        slots = K - len(words[0]) + 1
        found = np.concatenate([np.zeros((0, slots * len(words)), np.float32), *measured])
        return found.reshape(-1, slots, len(words)).astype(np.float64)

    def states(self, sequences: Sequence[str]) -> Mapping[str, Features]:
        """Return the states of the forward strand by pool and layer, the last layer first.

        Raises:
            UserError: a sequence is longer than the context.
        """
        room = room_bp(self.carbon.model.network.config.max_position_embeddings, "end")
        if (longest := max(map(len, sequences))) > room:
            raise UserError(
                f"windows of {longest:,} bp: the model reads {room:,} bp; build shorter"
            )
        opened = OpenedModel(self.carbon.model)
        layers = layers_of(opened, None)[::-1]
        names = [LAST_LAYER if layer is None else f"layer {layer}" for layer in layers]
        found: dict[str, Features] = {}
        for pool in POOLS:
            method = MethodConfig(name="probe", pool=pool, strands="forward")
            vectors = vectors_of(opened, layers, sequences, method)
            found[pool] = {name: vectors[:, i] for i, name in enumerate(names)}
        opened.closed()
        return found

    def untrained(self, seed: int) -> "CarbonModel":
        """Return a model of the same shape with the initial weights of a seed."""
        torch.manual_seed(seed)
        learned = self.carbon.model.network
        network = LlamaForCausalLM(deepcopy(learned.config)).train(False).to(learned.device)
        loaded = LoadedModel(network, self.carbon.model.vocabulary)
        return CarbonModel(inference.Model(loaded), f"{self.name}, random weights")

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


def _keywords(reading: Reading) -> VariantKeywords:
    return {
        "protocol": reading.protocol,
        "window_bp": reading.window_bp or None,
        "strands": reading.strands,
    }


def _values_of(score: VariantScore, names: Sequence[ScoreName]) -> dict[str, float]:
    """Return the scores that a variant has."""
    values = {name: getattr(score, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


@cache
def _holds(words: tuple[str, ...]) -> NDArray[np.float32]:
    """Return which 6-mers hold which word at which place: (4096, places x words) 0 or 1."""
    length = len(words[0])
    rows = [
        [kmer[at : at + length] == word for at in range(K - length + 1) for word in words]
        for kmer in all_kmers()
    ]
    return np.array(rows, dtype=np.float32)


def _cut_back(cache: Any, tokens: int) -> None:
    """Crop a cache to a number of tokens."""
    if more := cache.get_seq_length() - tokens:
        cache.crop(-more)


def _common_bp(first: str, second: str) -> int:
    """Return how many bases both begin with."""
    both = (np.frombuffer(s.encode("ascii"), dtype=np.uint8) for s in (first, second))
    a, b = (codes[: min(len(first), len(second))] for codes in both)
    return int(np.argmax(np.append(a != b, True)))


def _begin_with(tail: str) -> Any:
    """Return which 6-mers begin with the known bases of a tail: (4096,) bool."""
    if not tail:
        return np.ones(len(KMER_DIGITS), dtype=bool)
    encoded = encode_kmers(tail)
    digits, known = KMER_DIGITS[encoded.indices[0]], known_bases(encoded.known)[0]
    return ((digits == KMER_DIGITS) | ~known).all(axis=1)


def load_any(
    source: str, name: str, *, dtype: Dtype = "float32", device: str = "auto", yarn: float | None
) -> CarbonModel | HuggingFaceModel:
    """Load a Carbon checkpoint, or else any causal language model over DNA.

    The config decides: a llama with as many rows as one of Carbon's vocabularies is Carbon's.

    Raises:
        ModelError: the model does not exist, or it is of a kind that cannot be loaded.
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
        hub_folder(hub_name(source), with_weights=False)  # raises where there is none
        return load_hugging_face(source, name, dtype=dtype, device=device)


def _is_carbon(folder: Path) -> bool:
    """Decide by config.json; for a folder without one Carbon's loader reports the error."""
    try:
        config = read_json(folder / "config.json", JSON_OBJECT)
    except (OSError, UserError):
        return True
    rows = config.get("vocab_size")
    return config.get("model_type") in HEAD_NORMS and rows in (NATIVE.size, HYBRID.size)
