"""Sequences drawn: rules, constraints, drafts, gaps."""

from carbon.inference.generation.constraints import Constraints
from carbon.inference.generation.continuation import Task, check_amount, samples_of
from carbon.inference.generation.continuous import generate_by
from carbon.inference.generation.drawing import Step, generate, stream
from carbon.inference.generation.infilling import Filling, infill
from carbon.inference.generation.sampling import SamplingRule
from carbon.inference.generation.speculative import Draft

__all__ = [
    "Constraints",
    "Draft",
    "Filling",
    "SamplingRule",
    "Step",
    "Task",
    "check_amount",
    "generate",
    "generate_by",
    "infill",
    "samples_of",
    "stream",
]
