"""Compare a stock network run by `ModelRunner` with the same network run by transformers.

The runner takes the head's product with the last states, shares prefixes, and masks tiles. A
network that does more, such as scaling its logits, or that cannot do this, such as one without a KV
cache or a mask of its own, is refused here and not scored wrongly.
"""

from typing import Any

import numpy as np
import torch

from carbon.errors import ModelError, reason_of
from carbon.inference.passages import STEP_TOKENS, Continuation, Passage, padded_length, prefix_of
from carbon.inference.runner import ModelRunner
from carbon.tokenizer import kmer_texts

_TOLERANCE_NATS = {"float32": 1e-3}
_ROUNDED_NATS = 0.3  # of other dtypes
_HEAD_TOLERANCE = 0.01  # share of the largest logit; bfloat16 rounds by 0.004 of it at most
_CONTINUED_TOKENS = 6


def check_runs_as_stock(runner: ModelRunner, source: str) -> None:
    """Check the attention, and the logits and log-probabilities of a short sequence.

    Raises:
        ModelError: the attention does not reach over the context, the numbers differ from those of
            transformers, or the network cannot run in parts.
    """
    _check_attention(runner, source)
    try:
        share, difference = _difference_of_heads(runner), _largest_difference(runner)
    except Exception as error:  # a network may fail in any way
        raise _refusal(runner, source, f"cannot run in parts ({reason_of(error)})") from None
    if not share <= _HEAD_TOLERANCE:
        problem = f"has logits that differ by {share:.2g} of the largest from those of its head"
        raise _refusal(runner, source, problem)
    if not difference <= _TOLERANCE_NATS.get(runner.dtype, _ROUNDED_NATS):
        raise _refusal(runner, source, f"differs by {difference:.2g} nats when it runs in parts")


def _check_attention(runner: ModelRunner, source: str) -> None:
    """Refuse a network that attends to a part of its context.

    A KV cache of a sliding window keeps a token less than the window.
    """
    config, needed = runner.network.config, padded_length(runner.context_tokens) + 1
    layers = getattr(config, "layer_types", None) or ("sliding_attention",)
    window = getattr(config, "sliding_window", None) or needed
    if "chunked_attention" in layers:
        raise _refusal(runner, source, "attends in chunks")
    if "sliding_attention" in layers and window < needed:
        raise _refusal(
            runner, source, f"attends to {window} tokens at most, and its context needs {needed}"
        )


def _drawn_kmers(runner: ModelRunner) -> list[str]:
    """Return random k-mers, as many as the check reads."""
    vocabulary = runner.vocabulary
    room = runner.context_tokens - len(vocabulary.prefix())
    texts = kmer_texts(vocabulary.k)
    num_tokens = min(room, STEP_TOKENS + 2 * _CONTINUED_TOKENS)
    return [texts[kmer] for kmer in np.random.default_rng(0).integers(len(texts), size=num_tokens)]


@torch.inference_mode()
def _difference_of_heads(runner: ModelRunner) -> float:
    """Return the largest difference between the runner's logits and the network's.

    It is a share of the largest logit. Both have the same states.
    """
    bases, network = "".join(_drawn_kmers(runner)), runner.network
    tokens = torch.from_numpy(prefix_of(bases, runner.vocabulary))[None].to(runner.device)
    kmers = torch.from_numpy(runner.vocabulary.ids).to(runner.device)
    states = network.base_model(input_ids=tokens, use_cache=False)[0][0]
    stock = network(input_ids=tokens, use_cache=False).logits[0, :, kmers].float()
    return float((runner.logits(states) - stock).abs().max() / stock.abs().max())


def _refusal(runner: ModelRunner, source: str, problem: str) -> ModelError:
    kind = type(runner.network).__name__
    return ModelError(
        f"{source}: {kind} {problem}; Carbon reads causal decoders with a KV cache whose logits "
        "are a linear map of their last states"
    )


def _largest_difference(runner: ModelRunner) -> float:
    """Return the largest difference in nats over a row, a shared prefix and a tile."""
    vocabulary, bases = runner.vocabulary, _drawn_kmers(runner)
    num_tokens = len(bases)
    follows = num_tokens - min(_CONTINUED_TOKENS, num_tokens - 1)
    expected = _stock_log_p(runner, prefix_of("".join(bases), vocabulary))[-num_tokens:]

    def tokens_of(part: list[str]) -> Continuation:
        return Continuation(*vocabulary.tokens("".join(part)))

    begin, whole, rest = prefix_of("", vocabulary), tokens_of(bases), tokens_of(bases[follows:])
    shared = Passage(prefix_of("".join(bases[:follows]), vocabulary), (rest,), is_shared=True)
    ((alone,), (after,)) = runner.measure([Passage(begin, (whole,)), shared], _log_p)
    tile = runner.tile(begin, whole, num_tokens)
    continued = runner.measure_continued(tile, [(follows, rest)], _log_p)[0].values
    pairs = [(alone, expected), (after, expected[follows:]), (continued, expected[follows:])]
    return max(float(np.abs(found - stock).max()) for found, stock in pairs)


def _log_p(logits: torch.Tensor, kmers: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(logits, dim=1)


@torch.inference_mode()
def _stock_log_p(runner: ModelRunner, ids: Any) -> Any:
    """Return log p over the k-mers of every token of a row, as transformers computes it."""
    tokens = torch.from_numpy(ids)[None].to(runner.device)
    kmers = torch.from_numpy(runner.vocabulary.ids).to(runner.device)
    logits = runner.network(input_ids=tokens, use_cache=False).logits[0, :, kmers].float()
    log_p = torch.log_softmax(logits, dim=1)
    uniform = torch.full_like(log_p[:1], -np.log(log_p.shape[1]))
    return torch.cat([uniform, log_p[:-1]]).cpu().numpy()
