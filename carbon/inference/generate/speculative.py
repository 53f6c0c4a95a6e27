"""Speculative decoding: a small model proposes 6-mers, the large one checks several in one pass.

The text is distributed as if the large model had drawn it (Leviathan et al. 2023, arXiv 2211.17192,
algorithm 1); greedy text is identical.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from carbon.errors import UserError
from carbon.inference.generate.decode import Decoder
from carbon.inference.generate.prompts import DrawnKmer, GeneratedRow
from carbon.inference.generate.sampling import conditioned, distribution, walk
from carbon.inference.runner import ModelRunner
from carbon.tokenizer import K


class ModelWithRunner(Protocol):
    """The interface of a model that a draft needs."""

    @property
    def runner(self) -> ModelRunner:
        """Runs the network."""
        ...


class Draft:
    """A small model that proposes 6-mers, with counts of its proposals.

    Attributes:
        model: any Carbon model, with either vocabulary, since all share the 6-mers.
        tokens: number of 6-mers in a proposal.
        num_proposed: proposed 6-mers so far.
        num_accepted: accepted 6-mers so far.
    """

    def __init__(self, model: ModelWithRunner, tokens: int = 4) -> None:
        """Take a loaded model.

        Raises:
            UserError: `tokens` is out of range.
        """
        if not 1 <= tokens <= 32:
            raise UserError(f"{tokens} draft tokens: give 1 to 32")
        self.model = model
        self.tokens = tokens
        self.num_proposed = self.num_accepted = 0

    @property
    def accepted_share(self) -> float:
        """Return the share of accepted proposals."""
        return self.num_accepted / max(self.num_proposed, 1)


# A draft lacks two 6-mers if all of its proposals were accepted. It proposes nothing, at most
# twice, when the target is about to restart, and then lacks as many more.
_MOST_BEHIND = 4


class _Proposal(NamedTuple):
    kmer: int
    shares: Tensor  # (4096,) fp64, its distribution


def speculative_rounds(
    target: Decoder, draft: Draft, rows: list[GeneratedRow], tags: tuple[str, ...]
) -> Iterator[list[DrawnKmer]]:
    """Draw until all rows are complete; yield the 6-mers of each round."""
    most_kmers = max(row.whole_kmers for row in rows)
    helper = Decoder(draft.model.runner, [row.prompt for row in rows], tags, most_kmers)
    target_unread: list[list[int]] = [[] for _ in rows]  # drawn, but not yet run by the target
    draft_unread: list[list[int]] = [[] for _ in rows]
    while rows:
        # Proposals end where the target restarts, so that it restarts at the same 6-mers as without
        # a draft.
        counts = [
            max(0, min(draft.tokens, target.room(n) - 1, row.tokens_left - 1))
            for n, row in enumerate(rows)
        ]
        proposals = _propose(helper, rows, draft_unread, counts)
        for row, proposed in zip(rows, proposals, strict=True):
            row.pop(len(proposed))
        fresh = [u + [p.kmer for p in ps] for u, ps in zip(target_unread, proposals, strict=True)]
        logits = target.extend(fresh, max_fresh=draft.tokens + 1)
        drawn = [_check(*of_row) for of_row in zip(rows, proposals, logits, strict=True)]
        for n, (proposed, new) in enumerate(zip(proposals, drawn, strict=True)):
            accepted = len(new) - 1
            draft.num_proposed += len(proposed)
            draft.num_accepted += accepted
            target.drop_last(n, len(proposed) - accepted)
            target_unread[n] = [new[-1].kmer]
            # The draft has run all proposals except the last.
            num_run = min(accepted, max(len(proposed) - 1, 0))
            helper.drop_last(n, max(len(proposed) - 1, 0) - num_run)
            draft_unread[n] += [d.kmer for d in new[num_run:]]
        yield [d for new in drawn for d in new]
        unfinished = [n for n, row in enumerate(rows) if row.tokens_left]
        if len(unfinished) < len(rows):
            rows = [rows[n] for n in unfinished]
            target_unread = [target_unread[n] for n in unfinished]
            draft_unread = [draft_unread[n] for n in unfinished]
            target.keep_rows(unfinished)
            helper.keep_rows(unfinished)


def _propose(
    helper: Decoder, rows: list[GeneratedRow], unread: list[list[int]], counts: list[int]
) -> list[list[_Proposal]]:
    """Propose 6-mers of each row with the draft; append them to the rows and clear `unread`."""
    proposals: list[list[_Proposal]] = [[] for _ in rows]
    for step in range(max(counts)):
        active = [n for n, number in enumerate(counts) if number > step]
        fresh: list[list[int]] = [[] for _ in rows]
        for n in active:
            fresh[n] = [proposals[n][-1].kmer] if step else unread[n]
        logits = helper.extend(fresh, max_fresh=1 if step else _MOST_BEHIND)
        last = [max(len(fresh[n]) - 1, 0) for n in active]
        shares = _shares([rows[n] for n in active], logits[active, last])
        for n, q in zip(active, shares, strict=True):
            kmer = _drawn(rows[n], q)
            proposals[n].append(_Proposal(kmer, q))
            rows[n].push(kmer)
            if not step:
                unread[n] = []
    return proposals


def _check(row: GeneratedRow, proposals: list[_Proposal], logits: Tensor) -> list[DrawnKmer]:
    """Accept proposals up to the first rejected one, and draw one 6-mer after them."""
    accepted: list[DrawnKmer] = []
    for proposal, row_logits in zip(proposals, logits, strict=False):
        kmer, q = proposal
        (p,) = _shares([row], row_logits[None])
        if row.random.random() * float(q[kmer]) >= float(p[kmer]):
            rest = (p - q).clamp(min=0)
            shares = rest if bool(rest.any()) else p  # p and q may be equal up to rounding
            break
        accepted.append(DrawnKmer(row, kmer, row.push(kmer), row_logits))
    else:
        (shares,) = _shares([row], logits[len(proposals)][None])
    kmer = _drawn(row, shares)
    return [*accepted, DrawnKmer(row, kmer, row.push(kmer), logits[len(accepted)])]


def _drawn(row: GeneratedRow, shares: Tensor) -> int:
    """Sample a 6-mer of a row from its distribution (4096,)."""
    uniform = torch.from_numpy(row.random.random((1, K)))
    return int(walk(shares[None], uniform)[0])


@torch.inference_mode()
def _shares(rows: Sequence[GeneratedRow], logits: Tensor) -> Tensor:
    """Return the distribution of the next 6-mer of each row on the CPU: (rows, 4096) fp64."""
    penalised, allowed = conditioned(rows, logits)
    return distribution(penalised, rows[0].task.rule, allowed).cpu()
