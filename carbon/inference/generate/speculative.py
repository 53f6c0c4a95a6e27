"""Speculative decoding: a small model proposes, the large one checks several 6-mers in one pass.

What comes out is distributed as if the large model had drawn it (Leviathan et al. 2023, arXiv
2211.17192, algorithm 1); greedy text is the same text.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from carbon.errors import UserError
from carbon.inference.generate.decode import Decoder
from carbon.inference.generate.prompts import Continuation, Drawn, conditioned
from carbon.inference.generate.sampling import Floats, distribution, walk
from carbon.inference.runner import ModelRunner
from carbon.tokenizer import K


class ModelWithRunner(Protocol):
    """What a draft needs of a model: something that reads."""

    @property
    def runner(self) -> ModelRunner:
        """Runs the network."""
        ...


class Draft:
    """A small model that proposes, and how that went.

    Attributes:
        model: any Carbon model, of either vocabulary, for all have the same 6-mers.
        tokens: 6-mers that are proposed at a time.
        num_proposed: so far.
        num_accepted: of these.
    """

    def __init__(self, model: ModelWithRunner, tokens: int = 4) -> None:
        """Take a loaded model.

        Raises:
            UserError: there is no such number of tokens.
        """
        if not 1 <= tokens <= 32:
            raise UserError(f"{tokens} draft tokens: give 1 to 32")
        self.model = model
        self.tokens = tokens
        self.num_proposed = self.num_accepted = 0

    @property
    def accepted_share(self) -> float:
        """Return the share of proposals that were kept."""
        return self.num_accepted / max(self.num_proposed, 1)


# A draft is behind by two 6-mers where all that it proposed was kept. Where the target is about to
# start again nothing is proposed, twice at most, and it falls behind by as many more.
_MOST_BEHIND = 4


class _Proposal(NamedTuple):
    kmer: int
    shares: Floats  # (4096,), what it was drawn from


def speculative_rounds(
    target: Decoder, draft: Draft, rows: list[Continuation], tags: tuple[str, ...]
) -> Iterator[list[Drawn]]:
    """Draw until all rows are done; yield what each round gave."""
    most_kmers = max(row.whole_kmers for row in rows)
    helper = Decoder(draft.model.runner, [row.prompt for row in rows], tags, most_kmers)
    unread: list[list[int]] = [[] for _ in rows]  # by the target: what was drawn last
    behind: list[list[int]] = [[] for _ in rows]  # by the draft
    while rows:
        # Proposals end where the target starts again, so that it does so at the same 6-mers as
        # without a draft.
        wanted = [
            max(0, min(draft.tokens, target.room(n) - 1, row.tokens_left - 1))
            for n, row in enumerate(rows)
        ]
        proposals = _propose(helper, rows, behind, wanted)
        for row, proposed in zip(rows, proposals, strict=True):
            row.pop(len(proposed))
        fresh = [u + [p.kmer for p in ps] for u, ps in zip(unread, proposals, strict=True)]
        logits = target.read(fresh, at_once=draft.tokens + 1)
        drawn = [_check(*given) for given in zip(rows, proposals, logits, strict=True)]
        for n, (proposed, kept) in enumerate(zip(proposals, drawn, strict=True)):
            accepted = len(kept) - 1
            draft.num_proposed += len(proposed)
            draft.num_accepted += accepted
            target.forget(n, len(proposed) - accepted)
            unread[n] = [kept[-1].kmer]
            # The draft has read all proposals but the last.
            read = min(accepted, max(len(proposed) - 1, 0))
            helper.forget(n, max(len(proposed) - 1, 0) - read)
            behind[n] += [d.kmer for d in kept[read:]]
        yield [d for kept in drawn for d in kept]
        going = [n for n, row in enumerate(rows) if row.tokens_left]
        if len(going) < len(rows):
            rows = [rows[n] for n in going]
            unread, behind = ([x[n] for n in going] for x in (unread, behind))
            target.keep(going)
            helper.keep(going)


def _propose(
    helper: Decoder, rows: list[Continuation], behind: list[list[int]], wanted: list[int]
) -> list[list[_Proposal]]:
    """Let the draft go on by so many 6-mers a row; rows have them, `behind` is read."""
    proposals: list[list[_Proposal]] = [[] for _ in rows]
    for step in range(max(wanted)):
        some = [n for n, number in enumerate(wanted) if number > step]
        fresh: list[list[int]] = [[] for _ in rows]
        for n in some:
            fresh[n] = [proposals[n][-1].kmer] if step else behind[n]
        logits = helper.read(fresh, at_once=1 if step else _MOST_BEHIND)
        last = [max(len(fresh[n]) - 1, 0) for n in some]
        shares = _shares([rows[n] for n in some], logits[some, last])
        for n, q in zip(some, shares, strict=True):
            kmer = int(walk(q[None], rows[n].random.random((1, K)))[0])
            proposals[n].append(_Proposal(kmer, q))
            rows[n].push(kmer)
            if not step:
                behind[n] = []
    return proposals


def _check(row: Continuation, proposals: list[_Proposal], logits: Tensor) -> list[Drawn]:
    """Keep proposals up to the first that is refused, and draw one 6-mer behind them."""
    kept: list[Drawn] = []
    for proposal, behind in zip(proposals, logits, strict=False):
        kmer, q = proposal
        (p,) = _shares([row], behind[None])
        if row.random.random() * q[kmer] >= p[kmer]:
            rest = np.maximum(p - q, 0)
            shares = rest if rest.any() else p  # they may be equal but for rounding
            break
        kept.append(Drawn(row, kmer, row.push(kmer), behind))
    else:
        (shares,) = _shares([row], logits[len(proposals)][None])
    kmer = int(walk(shares[None], row.random.random((1, K)))[0])
    return [*kept, Drawn(row, kmer, row.push(kmer), logits[len(kept)])]


def _shares(rows: Sequence[Continuation], logits: Tensor) -> Floats:
    """Return how the next 6-mer of each row is distributed, by its rule and constraints."""
    penalised, allowed = conditioned(rows, logits)
    return distribution(penalised, rows[0].task.rule, allowed)
