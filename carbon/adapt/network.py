"""The network that is adapted: a stock Llama, a vector a sequence or a base, and a head on it."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaForCausalLM, LlamaModel

from carbon.adapt.attention import use_rows
from carbon.adapt.batches import Batch, dna_rows
from carbon.errors import UserError
from carbon.model import LoadedModel
from carbon.tokenizer import K


class Head(nn.Module):
    """Numbers from a vector: layer norm, if it has one, and a linear map with a bias."""

    def __init__(self, width: int, num_outputs: int, *, norm: bool = True) -> None:
        """Begin with a small random map, so that the outputs begin near their bias."""
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.linear = nn.Linear(width, num_outputs)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (N, outputs) fp32 of (N, width)."""
        found: Tensor = self.linear(self.norm(vectors.float()))
        return found.float()


class AdaptedNetwork(nn.Module):
    """A stock backbone and a head, for sequences that lie one behind the other.

    A vector a sequence is the mean of its states by known bases, or the last of them, as
    `carbon.options.POOLS` says; it equals what `Carbon.embed` gives.

    A causal state has seen what is left of it and nothing of what is right. For a label of every
    base the reverse complement is read as well, and the head takes of each 6-mer two states: that
    of the forward pass, and that of the other pass, which has seen the right side. It gives six
    times the outputs of a base.

    Attributes:
        backbone: a `LlamaModel`, or that inside a peft model; its embedding has the rows of DNA
            alone, since no text is read: so little is kept of gradients and moments.
        head: on its vectors.
        per_base: whether there is a row of outputs for every base.
    """

    def __init__(self, backbone: nn.Module, head: Head, *, per_base: bool = False) -> None:
        """Join both."""
        super().__init__()
        self.backbone, self.head, self.per_base = backbone, head, per_base

    def forward(self, batch: Batch) -> Tensor:
        """Return logits, fp32: (rows, outputs), or (bases of all rows, outputs)."""
        states = self.states(batch)
        if not self.per_base:
            logits: Tensor = self.head(pooled(states, batch))
            return logits
        assert batch.bases is not None
        of_tokens: Tensor = self.head(both_sides(states, batch))
        return of_tokens.view(len(of_tokens) * K, -1).index_select(0, batch.bases)

    def states(self, batch: Batch) -> Tensor:
        """Return the state of every token behind the last layer and norm: (tokens, width)."""
        output: Any = self.backbone(
            input_ids=batch.ids[None],
            position_ids=batch.positions[None],
            layout=batch.layout,
            use_cache=False,
        )
        found: Tensor = output.last_hidden_state[0]
        return found


def pooled(states: Tensor, batch: Batch) -> Tensor:
    """Return the weighted mean of the states of each row: (rows, width) fp32, NaN of no weight."""
    weights = batch.layout.as_rows(batch.weights)
    sums = torch.einsum("rtw,rt->rw", batch.layout.as_rows(states.float()), weights)
    return sums / weights.sum(dim=1, keepdim=True)


def both_sides(states: Tensor, batch: Batch) -> Tensor:
    """Return of each 6-mer its state in either pass, side by side: (6-mers, 2 x width)."""
    assert batch.pairs is not None
    return torch.cat([states.index_select(0, places) for places in batch.pairs], dim=1)


class OpenedModel:
    """A loaded model whose decoder is adapted, and what it takes to close it again.

    Attributes:
        model: native or hybrid; not to be used otherwise until it is closed.
        backbone: its decoder, which reads flat batches. The embedding has the rows of DNA alone.
    """

    def __init__(self, model: LoadedModel, layer: int | None = None) -> None:
        """Take a model apart.

        Args:
            model: native or hybrid.
            layer: read so many layers, and no norm behind them; all and the last norm if None.

        Raises:
            UserError: there are not so many layers.
        """
        self.model = model
        self.backbone: LlamaModel = model.network.model
        whole: Any = self.backbone
        self._whole = (whole.embed_tokens, whole.layers, whole.norm)
        self._attention = whole.config._attn_implementation
        num_layers = len(whole.layers)
        if layer is not None:
            if not 0 <= layer <= num_layers:
                raise UserError(f"layer {layer}: the model has {num_layers}; give 0 to that")
            whole.layers, whole.norm = whole.layers[:layer], nn.Identity()
            whole.config.num_hidden_layers = layer
        rows = whole.embed_tokens.weight.detach()[dna_rows(model.vocabulary)].clone()
        embedding: Any = nn.Embedding
        whole.embed_tokens = embedding.from_pretrained(rows, freeze=False)
        use_rows(whole)

    def closed(self) -> LlamaForCausalLM:
        """Put the model together again, with what was learned, and return it."""
        backbone: Any = self.backbone
        learned = backbone.embed_tokens.weight.detach()
        backbone.embed_tokens, backbone.layers, backbone.norm = self._whole
        with torch.no_grad():
            backbone.embed_tokens.weight[dna_rows(self.model.vocabulary)] = learned
        backbone.config.num_hidden_layers = len(backbone.layers)
        backbone.config._attn_implementation = self._attention
        return self.model.network
