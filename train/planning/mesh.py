"""How processes share a network, and where it is cut."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from carbon.errors import ConfigError
from carbon.io.config import check
from carbon.tokenizer import NUM_KMERS
from train.config import ParallelConfig, TrainConfig
from train.models.network import Sizes
from train.planning.pipeline import pipe_of, schedule_of, stages_per_rank
from train.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Mesh:
    """The processes of a worker as an array, which planner and runtime share.

    Neighbouring ranks differ in the last axis first: `tensor` exchanges the most, `pipeline` the
    least. FSDP divides a weight over `shard` x `context`.

    Attributes:
        pipeline: processes that the layers are divided over.
        replicate: copies of the sharded network.
        shard: processes that weights are divided over and that read rows of their own.
        context: processes that share each row.
        tensor: processes that share each matrix.
    """

    pipeline: int = 1
    replicate: int = 1
    shard: int = 1
    context: int = 1
    tensor: int = 1

    @classmethod
    def of(cls, parallel: ParallelConfig, world_size: int) -> "Mesh":
        """Arrange the processes; `shard` takes the processes that other axes leave.

        Raises:
            ConfigError: the processes do not fill such an array.
        """
        axes = ("pipeline", "replicate", "context", "tensor")
        sizes = {axis: getattr(parallel, axis) for axis in axes}
        shard, left = divmod(world_size, math.prod(sizes.values()))
        if left or not shard:
            names, numbers = " x ".join(axes), " x ".join(map(str, sizes.values()))
            raise ConfigError(
                f"parallel: {world_size} processes are not a multiple of {names} = {numbers}; "
                "change one of them"
            )
        return cls(shard=shard, **sizes)

    @property
    def size(self) -> int:
        """Processes of the mesh."""
        return self.pipeline * self.replicate * self.fsdp * self.tensor

    @property
    def fsdp(self) -> int:
        """Processes that FSDP divides a weight over."""
        return self.shard * self.context

    @property
    def dp_size(self) -> int:
        """Data-parallel degree: groups of processes that read rows of their own."""
        return self.replicate * self.shard

    def dp_rank(self, rank: int) -> int:
        """Return the data-parallel rank of a process."""
        return rank // (self.context * self.tensor) % self.dp_size

    def context_rank(self, rank: int) -> int:
        """Return the rank of a process on the context axis."""
        return rank // self.tensor % self.context


@dataclass(frozen=True, slots=True)
class Layout:
    """How the processes share a network.

    Attributes:
        mesh: the processes.
        stages: the layers of each pipeline stage.
        of_rank: the stages of each rank of a pipeline.
    """

    mesh: Mesh
    stages: tuple[range, ...]
    of_rank: tuple[tuple[int, ...], ...]


def layout_of(config: TrainConfig, sizes: Sizes, world_size: int) -> Layout:
    """Arrange the processes, and divide the layers over the ranks of a pipeline.

    Raises:
        ConfigError: they cannot be divided so.
    """
    parallel = config.parallel
    mesh = Mesh.of(parallel, world_size)
    check_tensor(sizes, mesh.tensor)
    num_stages = parallel.pipeline * stages_per_rank(parallel)
    stages = layers_of_stages(sizes, config.longest_context_tokens, num_stages)
    of_rank = tuple(tuple(stages_of_rank(parallel, rank)) for rank in range(parallel.pipeline))
    return Layout(mesh, tuple(stages), of_rank)


def check_tensor(sizes: Sizes, tensor: int) -> None:
    """Raise ConfigError unless the tensor degree divides heads, MLP and rows of 6-mers."""
    divided = {
        "query heads": sizes.num_heads,
        "key-value heads": sizes.num_key_heads,
        "columns of the MLP": sizes.mlp,
        "rows of the embedding": sizes.vocabulary,
    }
    for what, count in divided.items():
        check(
            count % tensor == 0,
            f"parallel.tensor = {tensor}: does not divide the {count} {what} of this network; give "
            f"a divisor of {math.gcd(*divided.values())}",
        )


def check_batches(schedule: Schedule, mesh: Mesh) -> None:
    """Raise ConfigError unless the processes can share a batch, and each row of it."""
    dp_size, context = mesh.dp_size, mesh.context
    for span in schedule.spans:
        if context > 1 and span.context_tokens % (2 * context):
            raise ConfigError(
                f"phases.{span.number} ('{span.phase.name}'): rows of {span.context_tokens} tokens "
                f"are not divided into the {2 * context} slices of parallel.context = {context}; "
                "change one of them"
            )
        if span.context_tokens // context % mesh.tensor:
            raise ConfigError(
                f"phases.{span.number} ('{span.phase.name}'): {span.context_tokens // context} "
                f"tokens of a row are not divided by parallel.tensor = {mesh.tensor}; change one "
                "of them"
            )
        if span.batch_rows % dp_size:
            raise ConfigError(
                f"phases.{span.number} ('{span.phase.name}'): batches of {span.batch_rows} rows of "
                f"{span.context_tokens} tokens cannot be shared by {dp_size} processes evenly; "
                "change batch_rows or the number of processes"
            )


def layers_of_stages(sizes: Sizes, context_tokens: int, num_stages: int) -> list[range]:
    """Cut a network into consecutive stages that take equally long; return the layers of each.

    The costs are multiplications a token: of a layer its weights and attention over the context,
    of the head its 4,096 rows; the embedding, a look-up, counts as its width.

    Raises:
        ConfigError: there are fewer layers than stages.
    """
    if num_stages > sizes.num_layers:
        raise ConfigError(
            f"parallel: {num_stages} stages of {sizes.num_layers} layers; give a smaller pipeline "
            "or stages_per_rank"
        )
    costs = [sizes.layer_parameters + sizes.query * context_tokens] * sizes.num_layers
    costs[0] += sizes.hidden
    costs[-1] += NUM_KMERS * sizes.hidden
    return balanced(costs, num_stages)


def stages_of_rank(parallel: ParallelConfig, pipeline_rank: int) -> list[int]:
    """Return which stages a rank of a pipeline holds, in the order of the layers."""
    if parallel.pipeline == 1:
        return [0]
    return list(schedule_of(parallel).stages_of_rank(pipe_of(parallel, 1), pipeline_rank))


def balanced(costs: Sequence[float], parts: int) -> list[range]:
    """Divide costs into consecutive parts, none empty, with the smallest largest sum.

    Of all such divisions it is one with the least sum of squares, which is the most even; parts
    that are still alike has the longer parts first.
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
