"""Who holds what: how processes share a network, and where it is cut."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carbon.errors import ConfigError
from carbon.tokenizer import NUM_KMERS
from train.config import ParallelConfig, TrainConfig
from train.models.spec import Sizes
from train.planning.pipeline import pipe_of, schedule_of, stages_per_rank

if TYPE_CHECKING:
    from transformers import LlamaConfig


@dataclass(frozen=True, slots=True)
class Layout:
    """How processes share a network.

    Attributes:
        pipeline: processes that the layers are divided over.
        replicate: copies of the sharded network.
        shard: processes that a weight is divided over.
        context: of them, that share each row.
        pieces: the layers of each piece of the network.
        of_rank: the pieces of each rank of a pipeline.
    """

    pipeline: int
    replicate: int
    shard: int
    context: int
    pieces: tuple[range, ...]
    of_rank: tuple[tuple[int, ...], ...]

    @property
    def readers(self) -> int:
        """Groups of processes, pipelines that share rows, that read rows of their own."""
        return self.replicate * self.shard // self.context


def layout_of(config: TrainConfig, llama: "LlamaConfig", world_size: int) -> Layout:
    """Divide the processes, and the layers over the ranks of a pipeline.

    Raises:
        ConfigError: they cannot be divided so.
    """
    parallel = config.parallel
    shard, left = divmod(world_size, parallel.pipeline * parallel.replicate)
    if left or not shard:
        raise ConfigError(
            f"parallel: {world_size} processes are no multiple of pipeline x replicate = "
            f"{parallel.pipeline} x {parallel.replicate}; change one of them"
        )
    parallel.check_context(shard)
    num_pieces = parallel.pipeline * stages_per_rank(parallel)
    pieces = layers_of_stages(llama, config.longest_context_tokens, num_pieces)
    of_rank = tuple(tuple(stages_of_rank(parallel, rank)) for rank in range(parallel.pipeline))
    shape = (parallel.pipeline, parallel.replicate, shard, parallel.context)
    return Layout(*shape, tuple(pieces), of_rank)


def layers_of_stages(llama: "LlamaConfig", context_tokens: int, num_pieces: int) -> list[range]:
    """Cut a network into consecutive pieces that take as long; return the layers of each.

    The costs are multiplications a token: of a layer its weights and attention over the context,
    of the head its 4,096 rows; the embedding, a look-up, counts as its width.

    Raises:
        ConfigError: there are fewer layers than pieces.
    """
    sizes = Sizes.of(llama)
    if num_pieces > sizes.num_layers:
        raise ConfigError(
            f"parallel: {num_pieces} pieces of {sizes.num_layers} layers; give a smaller pipeline "
            "or stages_a_rank"
        )
    costs = [sizes.layer_parameters + sizes.query * context_tokens] * sizes.num_layers
    costs[0] += sizes.hidden
    costs[-1] += NUM_KMERS * sizes.hidden
    return balanced(costs, num_pieces)


def stages_of_rank(parallel: ParallelConfig, pipeline_rank: int) -> list[int]:
    """Return which pieces a rank of a pipeline holds, in the order of the layers."""
    if parallel.pipeline == 1:
        return [0]
    return list(schedule_of(parallel).pieces_of_rank(pipe_of(parallel, 1), pipeline_rank))


def balanced(costs: Sequence[float], parts: int) -> list[range]:
    """Divide costs into so many consecutive parts, none empty, with the least largest sum.

    Of all such divisions it is one with the least sum of squares, which is the most even; what is
    still alike has the longer parts first.
    """
    sums = [0.0, *itertools.accumulate(costs)]
    largest, _ = _division(len(costs), parts, lambda i, j: sums[j] - sums[i], max)

    def square(i: int, j: int) -> float:
        cost = sums[j] - sums[i]
        return cost * cost if cost <= largest else math.inf

    _, ranges = _division(len(costs), parts, square, lambda a, b: a + b)
    return ranges


def _division(
    count: int,
    parts: int,
    price: Callable[[int, int], float],
    join: Callable[[float, float], float],
) -> tuple[float, list[range]]:
    """Return the least joined price of dividing `range(count)`, and the division."""
    best: dict[int, tuple[float, list[range]]] = {0: (0.0, [])}
    for _ in range(parts):
        ends = range(min(best) + 1, count + 1)
        best = {
            end: min(
                (
                    (join(value, price(start, end)), [*ranges, range(start, end)])
                    # From the last start on: of equal ones, `min` takes the first.
                    for start, (value, ranges) in reversed(best.items())
                    if start < end
                ),
                key=lambda found: found[0],
            )
            for end in ends
        }
    return best[count]
