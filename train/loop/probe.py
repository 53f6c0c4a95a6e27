"""Held-out measures in the middle of a run, as `eval` takes them of an exported model."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from carbon.corpus import read_source
from carbon.errors import CorpusError
from carbon.inference import Model, base_log_likelihoods
from carbon.inference.held_out import (
    MOST_PROMPT_BP,
    TARGET_BP,
    choose_records,
    choose_sites,
    measured_bases,
    recovered_shares,
)
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE, K
from train.config import TrainConfig
from train.run_folder.record import HELDOUT_OF


class Probe:
    """The held-out records of a run, the same bases and sites each time."""

    def __init__(self, config: TrainConfig) -> None:
        """Read the test split of each source.

        Raises:
            CorpusError: there is none, or it has nothing to measure.
        """
        self._also = {name: _chosen(config, _held_out(config, name)) for name in config.probe.also}
        records = _held_out(config, config.probe.source)
        context_bp = (config.longest_context_tokens - 1) * K
        prompt_bp = min(MOST_PROMPT_BP, context_bp - TARGET_BP)
        self._records = _chosen(config, records)
        self._sites = choose_sites(records, config.probe.sites, prompt_bp, config.seed)
        self._seed = config.seed
        if not self._records or not self._sites or not all(self._also.values()):
            raise CorpusError(
                f"{config.data.corpus}: has nothing held out to probe; hold a contig out, or set "
                "probe.every_steps=0"
            )

    def measure(self, network: LlamaForCausalLM) -> dict[str, float]:
        """Return nats per base of the records, and sequence recovery in fp32 and in bf16.

        The network is in bf16 afterwards: a copy of it may have no room.
        """
        model = Model(LoadedModel(network, NATIVE))
        of_others = {
            f"{HELDOUT_OF}{name}": _nats_per_base(model, records)
            for name, records in self._also.items()
        }
        exact = {
            "heldout_nats_per_base": _nats_per_base(model, self._records),
            **of_others,
            "recovery": self._recovery(model),
        }
        rough = Model(LoadedModel(network.bfloat16(), NATIVE))
        return exact | {"recovery_bf16": self._recovery(rough)}

    def _recovery(self, model: Model) -> float:
        return float(recovered_shares(model, self._sites, "token", self._seed).mean())


def _held_out(config: TrainConfig, source: str) -> list[str]:
    corpus, name = config.data.place_of(source)
    found: list[str] = read_source(corpus, name, "test", ["sequence"])["sequence"].to_pylist()
    return found


def _chosen(config: TrainConfig, records: list[str]) -> list[str]:
    return choose_records(records, config.probe.heldout_bp, config.seed)


def _nats_per_base(model: Model, records: list[str]) -> float:
    nats = bases = 0.0
    for record in records:
        (likelihoods,) = base_log_likelihoods(model.runner, [record])
        measured = measured_bases(record)
        nats -= float(likelihoods[measured].sum(dtype="float64"))
        bases += int(measured.sum())
    return nats / bases if bases else math.nan


def assembled(
    llama: LlamaConfig, weights: Mapping[str, Tensor], device: torch.device
) -> LlamaForCausalLM:
    """Return a stock network with these weights, of which one at a time is asked for."""
    with torch.device("meta"):
        network = LlamaForCausalLM(llama)
    network.to_empty(device=device)
    rotary: Any = network.model.rotary_emb
    with device:
        network.model.rotary_emb = type(rotary)(llama)
    network.tie_weights()
    with torch.no_grad():
        for name, parameter in network.named_parameters():  # tied ones once
            parameter.copy_(weights[name])
    network.eval()  # type: ignore[no-untyped-call]
    return network
