"""What one process of a run holds in memory, counted from the shapes.

docs/developers/planner.md has the formulas, their sources, and their limits.
"""

from dataclasses import dataclass

from carbon.tokenizer import NUM_KMERS
from train.config import ParallelConfig
from train.models.network import Sizes
from train.optim import OptimizerEntry, UpdateSizes
from train.planning.compute import ACTIVATION_CHECKPOINTINGS
from train.planning.mesh import Mesh
from train.planning.pipeline import pipe_of, schedule_of, stages_per_rank

_FP32_BYTES = 4
_CHUNK_TOKENS = 512  # whose logits exist at once on a CPU; see carbon.losses.fused


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one process, each item at its largest.

    Attributes:
        weights: the shard, fp32.
        moments: the optimizer's state, fp32.
        gathered: whole weights, in the dtype that computes.
        whole_gradients: gradients that are not yet reduced to shards.
        activations: what backward needs of all microbatches in flight.
        layer: additional memory of one layer's backward.
        logits: of a chunk of tokens, and the gradient of the head.
        transfers: where a pipeline's messages are received.
        gradients: the shard, fp32, whole once activations are gone.
        update: temporaries of the optimizer's step, none for a fused kernel of a GPU.
        probe: the whole network, fp32, which the first process puts together to evaluate it.
    """

    weights: int
    moments: int
    gathered: int
    whole_gradients: int
    activations: int
    layer: int
    logits: int
    transfers: int
    gradients: int
    update: int
    probe: int

    @property
    def peak(self) -> int:
        """Most at any time: as the last backward begins, at the optimizer's step, at a probe."""
        computing = self.gathered + self.whole_gradients + self.activations
        computing += max(self.layer, self.logits)
        updating = self.gradients + self.update
        most = max(computing, updating, self.probe)
        return self.weights + self.moments + self.transfers + most


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its place, its pieces of the network, what of them is trained, how it computes.

    Attributes:
        rank: of its pipeline.
        pieces: the layers of each piece that it holds.
        mesh: the processes.
        dtype_bytes: of what computes.
        has_mask: whether attention reads a mask of all pairs of positions.
        optimizer: that updates trained parameters.
        frozen: parameters of the network that are not trained, before sharding.
        added: parameters of adapters.
        probed: parameters that it puts together for a probe: all, or none.
    """

    sizes: Sizes
    parallel: ParallelConfig
    mesh: Mesh
    rank: int
    pieces: tuple[range, ...]
    checkpointing: str
    dtype_bytes: int
    on_gpu: bool
    has_mask: bool
    optimizer: OptimizerEntry
    frozen: int = 0
    added: int = 0
    probed: int = 0

    @property
    def shard(self) -> int:
        """Processes that a weight is divided over."""
        return self.mesh.fsdp * self.mesh.tensor

    @property
    def num_layers(self) -> int:
        """Layers that it holds."""
        return sum(map(len, self.pieces))

    @property
    def num_firsts(self) -> int:
        """How many of its pieces are the first of all: one or none."""
        return sum(piece.start == 0 for piece in self.pieces)

    @property
    def num_lasts(self) -> int:
        """How many of its pieces are the last of all: one or none."""
        return sum(piece.stop == self.sizes.num_layers for piece in self.pieces)

    @property
    def end_parameters(self) -> int:
        """Parameters outside layers."""
        last = self.sizes.num_layers
        return sum(self.sizes.end_parameters(p.start == 0, p.stop == last) for p in self.pieces)

    @property
    def num_parameters(self) -> int:
        """Parameters before sharding, including adapters."""
        of_layers = self.num_layers * self.sizes.layer_parameters
        return of_layers + self.end_parameters + self.added

    @property
    def num_trained(self) -> int:
        """Parameters that have a gradient and moments."""
        return self.num_parameters - self.frozen

    @property
    def num_trained_matrices(self) -> int:
        """Trained parameters that are elements of matrices of layers; adapters are such."""
        if self.added:
            return self.added
        a_layer = self.sizes.layer_parameters
        layers = self.num_trained // a_layer if self.frozen else self.num_layers
        return layers * (a_layer - self.sizes.norm_parameters)


def memory_of(
    process: Process, context_tokens: int, microbatch_rows: int, num_microbatches: int
) -> Memory:
    """Return the memory of a process for rows of a length."""
    sizes, tensor = process.sizes, process.mesh.tensor
    tokens = microbatch_rows * context_tokens // process.mesh.context
    layer, kept = _layer_bytes_a_token(process, context_tokens)
    shard = _FP32_BYTES * -(-process.num_parameters // process.shard)
    backward = process.dtype_bytes * (sizes.hidden + sizes.mlp)  # gradients next to activations
    trained = _FP32_BYTES * -(-process.num_trained // process.shard)
    largest = sizes.hidden * max(sizes.mlp, sizes.vocabulary * (process.end_parameters > 0))
    largest = min(largest, process.num_trained)
    return Memory(
        weights=shard,
        moments=_moment_bytes(process),
        gathered=_gathered_bytes(process),
        whole_gradients=_gradient_bytes(process, num_microbatches, trained),
        activations=_activation_bytes(process, kept, context_tokens, tokens, num_microbatches),
        layer=tokens * (layer - kept + backward // tensor),
        logits=_logit_bytes(process, tokens // tensor),
        transfers=_transfer_bytes(process, tokens // tensor) * num_microbatches,
        gradients=trained,
        update=_update_bytes(process, largest),
        probe=_FP32_BYTES * process.probed,
    )


def _moment_bytes(process: Process) -> int:
    matrices = process.num_trained_matrices
    return process.optimizer.moment_bytes(
        -(-matrices // process.shard), -(-(process.num_trained - matrices) // process.shard)
    )


def _update_bytes(process: Process, largest: int) -> int:
    sizes = process.sizes
    matrix = sorted((sizes.hidden, max(sizes.mlp, sizes.query)))
    return process.optimizer.update_bytes(
        UpdateSizes(
            largest=largest,
            matrix=(matrix[0], matrix[1]),
            shard=process.shard,
            on_gpu=process.on_gpu,
        )
    )


def _gathered_bytes(process: Process) -> int:
    """Return what FSDP2 copies weights to; it does so for a shard that is whole as well."""
    a_layer, tensor = process.sizes.layer_parameters, process.mesh.tensor
    ahead = a_layer * (process.mesh.fsdp > 1)  # the next layer's, on its way
    if process.parallel.pipeline > 1 or not process.parallel.reshard_after_forward:
        return process.dtype_bytes * (process.num_parameters + ahead) // tensor
    return process.dtype_bytes * (process.end_parameters + a_layer + ahead) // tensor


def _gradient_bytes(process: Process, num_microbatches: int, of_shard: int) -> int:
    """Return gradients next to activations: fp32 sums, whole until the last microbatch.

    If each microbatch's are reduced there is the shard of the sums instead. A layer's are there
    twice while they are reduced.
    """
    several = num_microbatches > 1
    each = process.parallel.reduce_each_microbatch and process.parallel.pipeline == 1
    a_layer = (process.dtype_bytes + _FP32_BYTES) * process.sizes.layer_parameters
    waiting = process.num_parameters if several and not each else process.end_parameters
    # A frozen network has at most as many gradients as trained weights.
    most = process.num_trained
    reduced = min(a_layer, (process.dtype_bytes + _FP32_BYTES) * most)
    whole = (reduced + _FP32_BYTES * min(waiting, most)) // process.mesh.tensor
    return whole + (of_shard if several and each else 0)


def _layer_bytes_a_token(process: Process, context_tokens: int) -> tuple[int, int]:
    """Return what autograd keeps of a stock layer, and what of that until backward, per token."""
    sizes, width, tensor = process.sizes, process.dtype_bytes, process.mesh.tensor
    # Of a norm: its input in fp32, and the output before and after the weight.
    norms = 2 * sizes.hidden * (_FP32_BYTES + 2 * width) // tensor
    gathered = 2 * sizes.hidden * width * (tensor > 1)  # what columns of matrices multiply
    # With a mask, keys and values are repeated for each head of queries, and each layer makes the
    # mask into numbers to add.
    keys = (sizes.query if process.has_mask else sizes.key) * _keys_a_token(process)
    row_sums = _FP32_BYTES * sizes.num_heads
    heads = (width * int(2 * sizes.query + 2 * keys) + row_sums) // tensor
    masks = width * process.has_mask * context_tokens
    layer = norms + gathered + heads + masks + width * 4 * sizes.mlp // tensor
    products = 2 * sizes.query + 2 * sizes.key + 2 * sizes.hidden + 2 * sizes.mlp
    checkpointing = ACTIVATION_CHECKPOINTINGS[process.checkpointing]
    if not checkpointing.recomputes:
        return layer, layer
    kept = width * sizes.hidden + checkpointing.keeps_products * (width * products + row_sums)
    return layer, kept // tensor


def _keys_a_token(process: Process) -> float:
    """Return how many keys are gathered for a token of this process: of whole rows.

    Without a mask its second slice uses the keys of the first again.
    """
    context = process.mesh.context
    return context + (context > 1 and not process.has_mask) / 2


def _activation_bytes(
    process: Process, kept: int, context_tokens: int, tokens: int, num_microbatches: int
) -> int:
    """Return what all microbatches in flight keep; a rank's pieces count as their mean."""
    sizes, width = process.sizes, process.dtype_bytes
    num_pieces = len(process.pieces)
    rotary = 2 * width * sizes.query // sizes.num_heads
    tensor = process.mesh.tensor
    # Of the last stage's norm, and the gradient of its states.
    of_last = sizes.hidden * (_FP32_BYTES + 2 * width) // tensor
    outputs = width * sizes.hidden * (num_pieces - process.num_lasts) // tensor
    of_pieces = process.num_layers * kept + num_pieces * rotary + process.num_lasts * of_last
    masks = process.has_mask * context_tokens * num_pieces  # a byte a pair
    if ACTIVATION_CHECKPOINTINGS[process.checkpointing].recomputes:
        in_flight_bytes, once = of_pieces + outputs + masks, 0
    else:  # masks are alive during forward only
        in_flight_bytes, once = of_pieces + outputs, masks // num_pieces
    flying = in_flight(process.parallel, process.rank, num_microbatches)
    waiting = _waiting(process.parallel, process.rank, num_microbatches)
    of_weights = sizes.query + 2 * sizes.key + 4 * sizes.hidden + 2 * sizes.mlp
    held = waiting * process.num_layers * width * of_weights // tensor
    return tokens * ((flying * in_flight_bytes + held) // num_pieces + once)


def in_flight(parallel: ParallelConfig, rank: int, num_microbatches: int) -> int:
    """Return the most microbatches, times pieces, whose activations a pipeline rank holds."""
    if parallel.pipeline == 1:
        return 1
    return schedule_of(parallel).in_flight(pipe_of(parallel, num_microbatches), rank)


def _waiting(parallel: ParallelConfig, rank: int, num_microbatches: int) -> int:
    """Return the most that have had their backward for inputs and not the one for weights."""
    held = schedule_of(parallel).held_for_weights
    if parallel.pipeline == 1 or held is None:
        return 0
    return min(held(rank), stages_per_rank(parallel) * num_microbatches)


def _transfer_bytes(process: Process, tokens: int) -> int:
    """Return, for a microbatch, what states are received into, and gradients of states."""
    if process.parallel.pipeline == 1:
        return 0
    edges = 2 * len(process.pieces) - process.num_firsts - process.num_lasts
    return tokens * process.dtype_bytes * process.sizes.hidden * edges


def _logit_bytes(process: Process, tokens: int) -> int:
    """Return the memory of the fused head: logits of a chunk, states, gradients of its rows."""
    if not process.num_lasts:
        return 0
    hidden, width = process.sizes.hidden, process.dtype_bytes
    # A kernel on a GPU overwrites logits with their gradient; without it there are four in fp32.
    chunk, a_logit = (8 * _CHUNK_TOKENS, width) if process.on_gpu else (_CHUNK_TOKENS, 16)
    of_weights = hidden * (_FP32_BYTES * (process.frozen == 0) + width)
    of_chunk = min(tokens, chunk) * a_logit
    rows = hidden * width * (process.mesh.tensor > 1)  # of the head, gathered
    return int(NUM_KMERS) * (of_chunk + of_weights + rows) + tokens * hidden * width
