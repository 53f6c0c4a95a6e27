"""How a process of a run computes."""

from dataclasses import dataclass
from typing import Annotated

from carbon.config import OneOf, check, check_choices
from train.choices.attentions import ATTENTION_CHOICES
from train.choices.computing import ACTIVATION_CHECKPOINTINGS, COMPUTE_DTYPES, DEVICES, FLOAT8_SIDE


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeConfig:
    """How a process computes."""

    device: Annotated[str, OneOf(DEVICES)] = "auto"
    """`auto` is GPUs where there are any; one that is there and cannot be used stops the run."""
    dtype: Annotated[str, OneOf(COMPUTE_DTYPES)] = "auto"
    """Of products and activations, `auto` for bf16 on a GPU and fp32 without; all else is fp32."""
    attention: Annotated[str, OneOf(ATTENTION_CHOICES)] = "auto"
    """Inside the pieces of packed rows: `auto` is torch's own for rows of varied pieces on a GPU in
    bf16, and SDPA with a mask of all pairs otherwise."""
    activation_checkpointing: Annotated[str, OneOf(ACTIVATION_CHECKPOINTINGS)] = "none"
    """What is computed anew in backward: nothing, all but the results of matrix products and of
    attention, or all of a layer."""
    compile: bool = False
    """`torch.compile` of each layer."""
    float8: bool = False
    """Products of the layers in float8, scaled by rows (torchao); embedding and head are not."""
    deterministic: bool = False
    """Operations of a GPU that give the same bits each time, which are slower at some places; a CPU
    has no others."""
    profile_steps: tuple[int, ...] = ()
    """First and last step that the profiler traces, into `profile/` of the run folder."""

    def __post_init__(self) -> None:
        check_choices(self)
        check(
            not self.float8 or self.dtype != "float32",
            "float8 = true with dtype = 'float32': all else is in bf16 then; leave dtype out",
        )
        steps = self.profile_steps
        check(
            not steps or (len(steps) == 2 and 1 <= steps[0] <= steps[1]),
            f"profile_steps = {list(steps)}: give the first step and the last",
        )

    def check_float8(self, tune: str, rows_tokens: list[int]) -> None:
        """Hold `float8` against the rest of a run.

        Raises:
            ConfigError: weights are frozen, or rows have lengths that its kernel does not take.
        """
        check(
            not self.float8 or tune == "whole",
            f"compute.float8 does not go with model.tune = {tune!r}; leave one out",
        )
        odd = [tokens for tokens in rows_tokens if tokens % FLOAT8_SIDE]
        check(
            not self.float8 or not odd,
            f"compute.float8: processes read {odd} tokens of a row (context_tokens over "
            f"parallel.context): give multiples of {FLOAT8_SIDE}",
        )
