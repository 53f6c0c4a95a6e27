"""Any causal language model over DNA of Hugging Face: a base, a k-mer or a byte pair a token.

Only tokens of A, C, G and T alone count: the distribution is over these, as Carbon's is over
6-mers, and every likelihood is the likelihood of the model's own tokens of a sequence. A sequence
that can be split into tokens in several ways is more likely; the ways are not summed.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

from carbon.batching import in_blocks
from carbon.devices import default_device
from carbon.errors import ModelError, UserError, reason_of
from carbon.genome import Reference, Variant
from carbon.inference import DTYPES
from carbon.inference.options import Dtype, Mode
from carbon.model.load import cache_arguments, cache_of
from eval.contract import Floats, Model, Reading
from eval.markov import base_codes
from eval.windows import deltas_by_windows

_BATCH_TOKENS = 16_384
_SAMPLE_BP = 20_000
_MARGIN = 0.9  # of a context in byte pairs: some sequences have shorter tokens than others
_UNLIMITED = 10**9  # what tokenizers write for no limit


class _Row(NamedTuple):
    """One row of a batch.

    Attributes:
        number: of its sequence or prompt.
        ids: of its tokens.
        first: number of the first predicted token in its sequence.
        scored_from: number of its predictions that an earlier row has made.
        tail: bases after the last token, too few for one.
    """

    number: int
    ids: list[int]
    first: int = 0
    scored_from: int = 0
    tail: str = ""


class HuggingFaceModel(Model):
    """A network that predicts the next token, and its tokenizer.

    Attributes:
        network: in evaluation mode.
        tokenizer: of its rows.
        context_tokens: most tokens of one reading; None where the config names no limit.
        step_bp: bases of a token of a k-mer tokenizer, otherwise 1. Prompts are cut on the left
            to whole steps, as the k-mer models' own evaluation does.
    """

    def __init__(self, network: Any, tokenizer: Any, name: str) -> None:
        """Find the tokens that are DNA.

        Raises:
            ModelError: there is none for one of the bases, or DNA is not cut into them.
        """
        self.network, self.tokenizer, self.name = network, tokenizer, name
        texts = _dna_tokens(tokenizer, network.config.vocab_size)
        if {text[0] for text in texts.values()} != set("ACGT"):
            raise ModelError(f"{name}: the tokenizer has no tokens of A, C, G and T; is it of DNA?")
        self._ids = torch.tensor(list(texts), device=network.device)
        self._texts = list(texts.values())
        self._place = np.full(max(network.config.vocab_size, len(tokenizer), max(texts) + 1), -1)
        self._place[list(texts)] = np.arange(len(texts))
        self._letters = _letters_of(self._texts)
        begins = (tokenizer.bos_token_id, tokenizer.cls_token_id, tokenizer.eos_token_id)
        self._begin: list[int] = [token for token in begins if token is not None][:1]
        lengths = {len(text) for text in self._texts}
        self.step_bp = max(lengths) if len(lengths - {1}) < 2 else 1
        self.context_tokens = _context_tokens(network.config, tokenizer)
        mean_bp = self._bases_of_a_token()
        token_bp = _MARGIN * mean_bp if len(lengths - {1}) > 1 else self.step_bp
        most = self.context_tokens
        self.context_bp = None if most is None else int((most - len(self._begin)) * token_bp)

    def base_log_likelihoods(self, sequences: Sequence[str]) -> list[Floats]:
        """Return the likelihood of each sequence's own tokens, shared evenly by their bases.

        The last bases, too few for a token of a k-mer model, and the known bases of a k-mer that
        has an unknown one, have the mass of all tokens that agree with them. Where the tokenizer
        has no first token, the first token's bases count a quarter each. A sequence that exceeds
        the context is read in windows that overlap by half.
        """
        values = [np.zeros(len(sequence)) for sequence in sequences]
        ends: list[NDArray[np.int64]] = []
        rows: list[_Row] = []
        for number, sequence in enumerate(sequences):
            whole_bp = len(sequence) // self.step_bp * self.step_bp
            tokens, tail = self._encode(sequence[:whole_bp]), sequence[whole_bp:]
            if not self._begin:
                known = np.flatnonzero(base_codes(sequence) < 4)
                values[number][known[: self._first_bp(tokens, sequence)]] = -np.log(4)
            ends.append(np.cumsum([self._length_bp(token) for token in tokens], dtype=np.int64))
            rows += self._windows(number, tokens, tail)
        for row, log_p in self._in_batches(rows):
            self._add(values[row.number], ends[row.number], row, log_p, sequences[row.number])
        return values

    def _add(
        self, values: Floats, ends: NDArray[np.int64], row: _Row, log_p: Tensor, sequence: str
    ) -> None:
        """Add the predictions of a row to the values of its sequence, (bases,)."""
        last = len(row.ids) - 1
        targets = self._place[row.ids[1:]][row.scored_from :]
        counted = np.flatnonzero(targets >= 0)
        steps = log_p[row.scored_from : last][torch.from_numpy(counted).to(log_p.device)]
        chosen = torch.from_numpy(targets[counted])[:, None].to(log_p.device)
        found = steps.gather(1, chosen)[:, 0].double().cpu().numpy()
        for token, value in zip(row.first + row.scored_from + counted, found, strict=True):
            length_bp = len(self._texts[targets[token - row.first - row.scored_from]])
            values[ends[token] - length_bp : ends[token]] = value / length_bp
        unknown = np.flatnonzero((targets < 0) & (self.step_bp > 1))
        parts = []
        for at in (row.scored_from + unknown).tolist():
            end = int(ends[row.first + at])
            parts.append((at, slice(end - self.step_bp, end)))
        if row.tail:
            parts.append((last, slice(len(sequence) - len(row.tail), len(sequence))))
        for at, part in parts:
            is_known = base_codes(sequence[part]) < 4
            mass = self._log_mass(log_p[at], sequence[part])
            values[part] = mass * is_known / max(is_known.sum(), 1)

    def _length_bp(self, token: int) -> int:
        """Return the bases of a token; a token of unknown bases is as long as a step."""
        place = self._place[token]
        return len(self._texts[place]) if place >= 0 else self.step_bp

    def next_base(self, prompts: Sequence[str]) -> Floats:
        """Return the mass of the tokens that begin with each base, after the prompt's own."""
        first = torch.from_numpy(np.eye(4, dtype=np.float32)[self._letters[:, 0]])
        rows = np.empty((len(prompts), 4))
        asked = [_Row(number, self._prompt(prompt)) for number, prompt in enumerate(prompts)]
        for row, log_p in self._in_batches(asked):
            mass = log_p[len(row.ids) - 1].exp().cpu() @ first
            rows[row.number] = (mass / mass.sum()).double().numpy()
        return rows

    @torch.inference_mode()
    def generate(self, prompts: Sequence[str], length_bp: int, mode: Mode = "token") -> list[str]:
        """Continue greedily; the last token is cut where it exceeds the length."""
        rows = [self._prompt(prompt) for prompt in prompts]
        alike: dict[int, list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            alike[len(row)].append(number)
        texts = [""] * len(prompts)
        for length, numbers in alike.items():
            for some in in_blocks(numbers, max(1, _BATCH_TOKENS // length)):
                found = self._continue([rows[n] for n in some], length_bp, mode)
                for number, text in zip(some, found, strict=True):
                    texts[number] = text
        return texts

    def deltas(
        self, reference: Reference, variants: Sequence[Variant], reading: Reading
    ) -> list[float | None]:
        """Compare whole windows."""
        return deltas_by_windows(self, reference, variants, reading)

    def _continue(self, rows: list[list[int]], length_bp: int, mode: Mode) -> list[str]:
        """Continue prompts of one number of tokens together."""
        texts = [""] * len(rows)
        history, cache = torch.tensor(rows, device=self.network.device), None
        fresh = history
        choose = self._best_token if mode == "token" else self._best_by_bases
        while any(len(text) < length_bp for text in texts):
            most = self.context_tokens
            if most is not None and history.shape[1] > most:
                history, cache = history[:, -max(most // 2, 1) :], None
                fresh = history
            output = self.network(input_ids=fresh, **cache_arguments(self.network, cache))
            places = choose(output.logits[:, -1, self._ids].float())
            texts = [text + self._texts[at] for text, at in zip(texts, places, strict=True)]
            chosen = self._ids[places][:, None]
            history = torch.cat([history, chosen], dim=1)
            cache = cache_of(output)
            fresh = history if cache is None else chosen
        return [text[:length_bp] for text in texts]

    def _best_token(self, logits: Tensor) -> list[int]:
        best: list[int] = logits.argmax(dim=1).tolist()
        return best

    def _best_by_bases(self, logits: Tensor) -> list[int]:
        """Take the most likely first base, then the most likely second one after it, and so on."""
        return [self._by_bases(row) for row in logits.softmax(dim=1).cpu().numpy()]

    def _by_bases(self, mass: NDArray[np.float32]) -> int:
        left = np.arange(len(mass))
        for letters in self._letters.T:
            # The fifth is the mass of the token that ends here.
            by_letter = np.bincount(letters[left], mass[left], minlength=5)
            left = left[letters[left] == by_letter.argmax()]
            if len(left) == 1:
                break
        return int(left[0])

    def _first_bp(self, tokens: list[int], sequence: str) -> int:
        """Return how many known bases the first token has, or a sequence without a token."""
        if tokens and (place := self._place[tokens[0]]) >= 0:
            return len(self._texts[place])
        return int((base_codes(sequence[: self.step_bp]) < 4).sum())

    def _log_mass(self, log_p: Tensor, tail: str) -> float:
        """Return the log of the mass of tokens that begin with a tail; unknown bases are any."""
        codes = base_codes(tail)
        agree = ((self._letters[:, : len(tail)] == codes) | (codes == 4)).all(axis=1)
        return float(log_p[torch.from_numpy(agree).to(log_p.device)].double().logsumexp(dim=0))

    def _in_batches(self, rows: Sequence[_Row]) -> Iterator[tuple[_Row, Tensor]]:
        """Yield log p over DNA tokens after each token, (tokens, DNA tokens) fp32, of each row."""
        waiting = sorted(rows, key=lambda row: -len(row.ids))
        while waiting:
            width = len(waiting[0].ids)
            some = waiting[: max(1, _BATCH_TOKENS // max(width, 1))]
            waiting = waiting[len(some) :]
            ids = pad_sequence([torch.tensor(row.ids) for row in some], batch_first=True)
            lengths = torch.tensor([len(row.ids) for row in some])
            seen = (torch.arange(width) < lengths[:, None]).long()
            yield from zip(some, self._log_p(ids, seen), strict=True)

    @torch.inference_mode()
    def _log_p(self, ids: Tensor, seen: Tensor) -> Tensor:
        device = self.network.device
        output = self.network(input_ids=ids.to(device), attention_mask=seen.to(device))
        return output.logits[..., self._ids].float().log_softmax(dim=-1)  # type: ignore[no-any-return]

    def _encode(self, sequence: str) -> list[int]:
        found = self.tokenizer(sequence.upper(), add_special_tokens=False, verbose=False)
        ids: list[int] = found["input_ids"]
        return ids

    def _windows(self, number: int, tokens: list[int], tail: str) -> Iterator[_Row]:
        """Yield the rows of a sequence; the last one has the tail."""
        room = (self.context_tokens or len(tokens) + 1) - len(self._begin)
        unpredicted = 1 - len(self._begin)  # a row without a beginning does not predict its first
        if len(tokens) == unpredicted:  # the tail alone is predicted
            yield _Row(number, self._begin + tokens, tail=tail)
        at, done = 0, unpredicted
        while done < len(tokens):
            ids, scored_from = self._begin + tokens[at : at + room], done - at - unpredicted
            is_last = at + room >= len(tokens)
            yield _Row(number, ids, at + unpredicted, scored_from, tail if is_last else "")
            at, done = at + max(room // 2, 1), at + room

    def _prompt(self, prompt: str) -> list[int]:
        """Return ids of the whole steps of a prompt, as many as fit, from its end."""
        tokens = self._encode(prompt[len(prompt) % self.step_bp :])
        if self.context_tokens is not None:
            tokens = tokens[max(len(tokens) - self.context_tokens + len(self._begin), 0) :]
        if not self._begin + tokens:
            raise UserError(f"{self.name}: has no token to begin with; give prompts")
        return self._begin + tokens

    def _bases_of_a_token(self) -> float:
        """Return the mean over a random sequence, which must come back from its tokens."""
        sample = "".join(np.random.default_rng(0).choice(list("ACGT"), _SAMPLE_BP))
        sample = sample[: len(sample) // self.step_bp * self.step_bp]
        places = self._place[self._encode(sample)]
        if "".join(self._texts[place] for place in places if place >= 0) != sample:
            raise ModelError(
                f"{self.name}: the tokenizer does not cut DNA in capitals into tokens of A, C, G "
                "and T that follow one another; its likelihoods cannot be counted by bases"
            )
        return len(sample) / len(places)


def _dna_tokens(tokenizer: Any, num_rows: int) -> dict[int, str]:
    """Return id to bases of every token that is DNA and nothing else."""
    specials = set(tokenizer.all_special_ids)
    num_tokens = min(len(tokenizer), num_rows)
    texts = tokenizer.convert_ids_to_tokens(list(range(num_tokens)))
    found = {}
    for token, text in enumerate(texts):
        bases = (text or "").removeprefix("##").upper()
        if bases and set(bases) <= set("ACGT") and token not in specials:
            found[token] = bases
    return found


def _letters_of(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the letters of tokens as 0 to 3, and 4 after their end: (tokens, longest + 1)."""
    letters = np.full((len(texts), max(map(len, texts)) + 1), 4, dtype=np.int64)
    for row, text in zip(letters, texts, strict=True):
        row[: len(text)] = ["ACGT".index(base) for base in text]
    return letters


def _context_tokens(config: Any, tokenizer: Any) -> int | None:
    for name in ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"):
        if isinstance(limit := getattr(config, name, None), int):
            return limit
    limit = tokenizer.model_max_length
    return int(limit) if limit < _UNLIMITED else None


def load_hugging_face(source: str, name: str, *, dtype: Dtype, device: str) -> HuggingFaceModel:
    """Load a folder or a Hub id with stock transformers: safetensors only, no remote code.

    Raises:
        ModelError: the model does not exist, needs custom code, or is not a DNA model.
        UserError: the device is not available.
    """
    if device == "auto":
        device = default_device()
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        network = AutoModelForCausalLM.from_pretrained(
            source, trust_remote_code=False, use_safetensors=True, dtype=DTYPES[dtype]
        )
    except Exception as error:  # missing or torn files surface as errors of many libraries
        raise ModelError(f"{source}: the model cannot be loaded: {reason_of(error)}") from None
    try:
        network.to(device)  # type: ignore[arg-type]
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device '{device}' cannot be used: {str(error).splitlines()[0]}") from None
    return HuggingFaceModel(network.train(False), tokenizer, name)
