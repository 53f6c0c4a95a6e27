"""The adapter of models of k-mers to the contract, and the choice of an adapter for a folder."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache

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
    base_log_likelihoods,
    continuation_of,
    load,
    prefix_of,
)
from carbon.inference.checks import check_finite, layers_of_decoder
from carbon.inference.embed import check_pool
from carbon.inference.options import POOLS, VARIANT_SCORES, Dtype, Mode, ScoreName
from carbon.losses import chain
from carbon.model import LoadedModel
from carbon.model.folder import hub_folder, hub_name, is_stock
from carbon.model.load import cache_arguments, cache_of
from carbon.pretrained import local_folder
from carbon.progress import say
from carbon.tokenizer import BASES, KmerVocabulary, Vocabulary, kmer_texts, known_bases
from eval.contract import Features, Floats, Model, Reading
from eval.hugging_face import HuggingFaceModel, load_hugging_face

LAST_LAYER = "last norm"
_AT_ONCE = 64
_VALUES: tuple[ScoreName, ...] = ("delta", "jsd", "embedding_distance")
_ACGT = [0, 2, 3, 1]  # places of A, C, G and T among the digits of a k-mer


Choose = Callable[[NDArray[np.float32]], int]
"""From logits over k-mers, (4**k,), to the index of one."""


def _best_token(logits: NDArray[np.float32]) -> int:
    return int(logits.argmax())


def _best_by_bases(logits: NDArray[np.float32]) -> int:
    """Take the most likely first base, then the most likely second one after it, and so on."""
    mass, kmer = np.exp(logits - logits.max()), 0
    while len(mass) > 1:
        by_base = mass.reshape(4, -1)
        base = int(by_base.sum(axis=1).argmax())
        mass, kmer = by_base[base], 4 * kmer + base
    return kmer


_CHOICES: dict[Mode, Choose] = {"token": _best_token, "base": _best_by_bases}


class CarbonModel(Model):
    """A model of k-mers: a Carbon checkpoint, or a stock one; questions share common prefixes.

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
        return self.carbon.runner.network.base_model

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
        """Return p(base | prompt); the last bases, too few for a k-mer, condition their k-mer."""
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
        """Continue greedily: a Carbon model by whole 6-mers or by the marginals of their bases.

        Another model is continued one prompt at a time, by whole k-mers, or by the most likely
        first base, then the most likely second base after it, and so on.
        """
        if isinstance(self._vocabulary, Vocabulary):
            return self.carbon.generate(prompts, length_bp, temperature=0, mode=mode)
        return [self._continued(prompt, length_bp, mode) for prompt in prompts]

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
        embedded = self.carbon.embed_variants(
            reference, variants, window_bp=reading.window_bp or None, strands=reading.strands
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
        cache, last = self._after_stem(stem)
        text = self._greedy(cache, last, tail, length_bp)
        likelihoods = []
        for ending in endings:
            _cut_back(cache, len(stem))
            branch = continuation_of(tail + ending, self._vocabulary)
            likelihoods.append(self._after(cache, last, branch)[len(tail) :].sum())
        return text, np.array(likelihoods, dtype=np.float64)

    def word_probabilities(self, sequence: str, words: Sequence[str]) -> Floats:
        """Return p(word) at every place, by the distributions of the k-mers that hold it whole.

        The sequence is read three times, from its first, second and third base, so that each place
        of a codon meets every place of a k-mer. A place that two readings cover gets their mean; a
        sequence longer than the context is read in parts that follow one another. If a word is
        longer than a k-mer, each place begins a k-mer, and the word continues the bases before it.
        """
        if len(words[0]) > self._k:
            return self._by_continuations(sequence, words)
        totals, counts = np.zeros((len(sequence), len(words))), np.zeros((len(sequence), 1))
        slots = self._k - len(words[0]) + 1
        for start in range(3):
            by_slot = self._by_slot(sequence[start:], words)
            for slot in range(slots):
                at = start + slot + self._k * np.arange(len(by_slot))
                totals[at] += by_slot[:, slot]
                counts[at] += 1
        with np.errstate(invalid="ignore"):
            return totals / counts

    def _by_continuations(self, sequence: str, words: Sequence[str]) -> Floats:
        """Return p(word) at every place, by the chain of its k-mers: (bases, words)."""
        runner, k, stem = self.carbon.runner, self._k, prefix_of("", self._vocabulary)
        branches = [continuation_of(word, self._vocabulary) for word in words]
        room = max(runner.context_tokens - len(stem) - len(branches[0].ids), 1)
        found = np.full((len(sequence), len(words)), np.nan)
        for start in range(k):
            for at in range(start, len(sequence) - k + 1, room * k):
                num_kmers = min(room, (len(sequence) - at) // k)
                part = continuation_of(sequence[at : at + num_kmers * k], self._vocabulary)
                tile = runner.tile(stem, part, room)
                asked = [(n, branch) for n in range(num_kmers) for branch in branches]
                measured = runner.measure_continued(tile, asked, chain)
                log_p = np.array([each.values.sum() for each in measured], dtype=np.float64)
                found[at : at + num_kmers * k : k] = np.exp(log_p.reshape(num_kmers, -1))
        return found

    def _by_slot(self, sequence: str, words: Sequence[str]) -> Floats:
        """Return p(word) at every place in every whole k-mer: (k-mers, places, words)."""
        runner, context_bp = self.carbon.runner, self.context_bp
        whole_bp = len(sequence) // self._k * self._k
        parts = [
            sequence[at : min(at + context_bp, whole_bp)] for at in range(0, whole_bp, context_bp)
        ]
        stem = prefix_of("", self._vocabulary, ())
        passages = [Passage(stem, (continuation_of(part, self._vocabulary),)) for part in parts]
        holds = torch.from_numpy(_holds(tuple(words), self._k))

        def masses(logits: Tensor, kmers: Tensor, known: Tensor) -> Tensor:
            return torch.softmax(logits, dim=1) @ holds.to(logits.device)

        measured = [arrays[0] for arrays in runner.measure(passages, masses)]
        slots = self._k - len(words[0]) + 1
        found = np.concatenate([np.zeros((0, slots * len(words)), np.float32), *measured])
        return found.reshape(-1, slots, len(words)).astype(np.float64)

    def states(self, sequences: Sequence[str]) -> Mapping[str, Features] | None:
        """Return the states of the forward strand by pool and layer, the last layer first.

        Returns:
            None if the decoder has no layers that run one by one.

        Raises:
            UserError: a sequence is longer than the context.
        """
        pools = [pool for pool in POOLS if _accepted(check_pool, self._vocabulary, pool)]
        if not _accepted(layers_of_decoder, self.network):
            return None
        room = min(
            room_bp(self.carbon.runner.context_tokens, pool, self._vocabulary) for pool in pools
        )
        if (longest := max(map(len, sequences))) > room:
            raise UserError(
                f"windows of {longest:,} bp: the model reads {room:,} bp; build shorter"
            )
        opened = OpenedModel(self.carbon.model)
        layers = layers_of(opened, None)[::-1]
        names = [LAST_LAYER if layer is None else f"layer {layer}" for layer in layers]
        found: dict[str, Features] = {}
        for pool in pools:
            method = MethodConfig(name="probe", pool=pool, strands="forward")
            vectors = vectors_of(opened, layers, sequences, method)
            found[pool] = {name: vectors[:, i] for i, name in enumerate(names)}
        opened.closed()
        return found

    def untrained(self, seed: int) -> "CarbonModel":
        """Return a model of the same shape with the initial weights of a seed."""
        torch.manual_seed(seed)
        learned = self.carbon.model.network
        network = type(learned)(deepcopy(learned.config)).train(False).to(learned.device)
        loaded = LoadedModel(network, self.carbon.model.vocabulary)
        return CarbonModel(inference.Model(loaded), f"{self.name}, random weights")

    @property
    def _vocabulary(self) -> KmerVocabulary:
        return self.carbon.runner.vocabulary

    @property
    def _k(self) -> int:
        return self._vocabulary.k

    def _stem(self, whole: str) -> Any:
        return prefix_of(whole, self._vocabulary)

    def _cut(self, prompt: str, more_bp: int = 0) -> tuple[str, str]:
        """Return the whole k-mers of a prompt, as many as fit before more bases, and its tail."""
        k = self._k
        whole_bp = len(prompt) // k * k
        tail = prompt[whole_bp:]
        room_bp = (self.context_bp - (len(tail) + more_bp if more_bp else 0)) // k * k
        return prompt[max(whole_bp - room_bp, 0) : whole_bp], tail

    def _fork(self, first: str, second: str) -> Passage:
        shared_bp = _common_bp(first.upper(), second.upper())
        shared_bp = min(shared_bp, len(first) - 1, len(second) - 1) // self._k * self._k
        branches = (continuation_of(s[shared_bp:], self._vocabulary) for s in (first, second))
        return Passage(self._stem(first[:shared_bp]), tuple(branches))

    def _after_stem(self, stem: Any) -> tuple[Any, Tensor]:
        """Return the keys and values of a stem, and its last state: (1, width).

        Nothing precedes the first base of a model without a begin token: zeros stand for its state.
        """
        if not len(stem):
            head: Any = self.carbon.model.network.get_output_embeddings()  # type: ignore[no-untyped-call]
            return DynamicCache(), head.weight.new_zeros(1, head.weight.shape[1])
        output: Any = self._read(stem)
        return cache_of(output), output[0][0, -1:]

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
        known = torch.from_numpy(known_bases(branch.known, self._k)).to(logits.device)
        return chain(logits, kmers, known).double().cpu().numpy().reshape(-1)

    @torch.inference_mode()
    def _continued(self, prompt: str, length_bp: int, mode: Mode) -> str:
        """Continue one prompt, in parts of which each fits into the context with what is before."""
        text, part_bp = "", max(self.context_bp // 2, 1)
        while len(text) < length_bp:
            more_bp = min(part_bp, length_bp - len(text))
            whole, tail = self._cut(prompt + text, more_bp)
            cache, last = self._after_stem(self._stem(whole))
            text += self._greedy(cache, last, tail, more_bp, _CHOICES[mode])
        return text

    def _greedy(
        self, cache: Any, last: Tensor, tail: str, length_bp: int, choose: Choose | None = None
    ) -> str:
        kmers: list[int] = []
        texts, choose = kmer_texts(self._k), choose or _best_token
        while len(kmers) * self._k < len(tail) + length_bp:
            if kmers:
                last = self._read(self._vocabulary.ids[kmers[-1:]], cache)[0][0, -1:]
            logits = self.carbon.runner.logits(last)[0].cpu().numpy()
            check_finite(logits.sum(), "a prompt")
            agrees = _begin_with("" if kmers else tail, self._k)
            kmers.append(choose(np.where(agrees, logits, -np.inf)))
        text = "".join(texts[kmer] for kmer in kmers)
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


def _accepted(check: Callable[..., Any], *subject: Any) -> bool:
    """Return whether a check raises no UserError."""
    try:
        check(*subject)
    except UserError:
        return False
    return True


@cache
def _holds(words: tuple[str, ...], k: int) -> NDArray[np.float32]:
    """Return which k-mers hold which word at which place: (4**k, places x words) 0 or 1."""
    length = len(words[0])
    rows = [
        [kmer[at : at + length] == word for at in range(k - length + 1) for word in words]
        for kmer in kmer_texts(k)
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


def _begin_with(tail: str, k: int) -> Any:
    """Return which k-mers begin with the known bases of a tail: (4**k,) bool."""
    indices = np.arange(4**k)
    agrees = np.ones(len(indices), dtype=bool)
    for place, base in enumerate(tail.upper()):
        if base in BASES:
            agrees &= indices // 4 ** (k - 1 - place) % 4 == BASES.index(base)
    return agrees


def load_any(
    source: str, name: str, *, dtype: Dtype = "float32", device: str = "auto", yarn: float | None
) -> CarbonModel | HuggingFaceModel:
    """Load a model of k-mers, Carbon's own or a stock one, or else any causal model over DNA.

    A stock model that `carbon.load` refuses, such as one of byte pairs, is read on a slow path.

    Raises:
        ModelError: the model does not exist, or it is of a kind that cannot be loaded.
        UserError: the device is not there.
    """
    folder = local_folder(source) or hub_folder(hub_name(source), with_weights=False)
    try:
        return CarbonModel(load(source, dtype=dtype, device=device, yarn=yarn), name)
    except ModelError as error:
        if not is_stock(folder):
            raise
        say(f"{error}; it is read on the slow path")
    return load_hugging_face(source, name, dtype=dtype, device=device)
