"""The network that is adapted: a stock Llama, a vector a sequence or a base, and a head on it."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaModel

from carbon.adapt.attention import use_rows
from carbon.adapt.batches import Batch, dna_rows
from carbon.errors import UserError
from carbon.model import LoadedModel
from carbon.tokenizer import K, Vocabulary


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
        found: Tensor = self.linear(self.norm(vectors))
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
        assert batch.pairs is not None and batch.bases is not None
        sides = [states.index_select(0, places) for places in batch.pairs]
        of_tokens: Tensor = self.head(torch.cat(sides, dim=1))
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


def backbone_of(model: LoadedModel, layer: int | None = None) -> LlamaModel:
    """Take a loaded model apart: return its decoder, which reads flat batches.

    The embedding keeps the rows of DNA alone. The model is not to be used otherwise afterwards.

    Args:
        model: native or hybrid.
        layer: keep so many layers, and no norm behind them; all and the last norm if None.
    """
    backbone = model.network.model
    use_rows(backbone)
    rows = backbone.embed_tokens.weight.detach()[dna_rows(model.vocabulary)].clone()
    backbone.embed_tokens = nn.Embedding.from_pretrained(rows, freeze=False)
    if layer is not None:
        if not 0 <= layer <= len(backbone.layers):
            raise UserError(f"layer {layer}: the model has {len(backbone.layers)}")
        backbone.layers = backbone.layers[:layer]
        backbone.config.num_hidden_layers = layer
        backbone.norm = nn.Identity()
    return backbone


def put_back(network: Any, embedding: Tensor, vocabulary: Vocabulary) -> None:
    """Undo `backbone_of` for a whole model that is to be written.

    Args:
        network: the `LlamaForCausalLM`, whose decoder was adapted.
        embedding: (vocabulary, width), all rows as they were before.
        vocabulary: of the model.
    """
    trained = network.model.embed_tokens.weight.detach()
    whole = nn.Embedding.from_pretrained(embedding.detach().to(trained.device).clone(), freeze=False)
    whole.weight.data[dna_rows(vocabulary)] = trained
    network.model.embed_tokens = whole
    network.tie_weights()
