"""`carbon convert`: write a model as a native stock folder or as a GGUF."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token

from carbon.inference.options import Dtype

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from carbon.inference import Model
    from carbon.model import LoadedModel

# Largest allowed change of a score, in nats per base: rounding errors of float32 if weights keep
# their dtype, otherwise the error of rounding weights to the 8 bits of bfloat16.
TOLERANCE_SAME_DTYPE, TOLERANCE_ROUNDED = 1e-5, 0.02
_LENGTHS_BP = (60, 61, 150, 301, 600, 1201)


def _size(hint: Any, tokens: Sequence[Token]) -> str:
    text = tokens[-1].value
    if not re.fullmatch(r"[1-9]\d*[KMG]B", text):
        raise ValueError(f"'{text}' is not a size such as 500MB or 5GB")
    return text


def convert(
    source: Annotated[str, Parameter(name="SRC")],
    output: Annotated[str, Parameter(name="DST")],
    /,
    *,
    to: Literal["folder", "gguf"] = "folder",
    dtype: Dtype | None = None,
    max_shard_size: Annotated[
        str | None, Parameter(converter=_size, n_tokens=1, metavar="SIZE")
    ] = None,
) -> None:
    """Write a model, native or hybrid, as a native stock folder or as a GGUF.

    Writes config.json, safetensors and a tokenizer.json that stock transformers and vLLM load. Of a
    hybrid's 155,776 rows it keeps the 4,224 for DNA. Both models score random sequences; if the
    scores differ, nothing is written and the exit code is 1. With --to gguf, DST is one file for
    llama.cpp, and nothing is scored.

    Args:
        source: model folder, or the name of a bundled or Hub model.
        output: folder to write (new or empty), or file.
        to: format of the output.
        dtype: type of the weights; as in the weight files of SRC if not given.
        max_shard_size: maximum size of a weights file, such as 5GB; 50GB if not given.
    """
    from carbon.errors import UserError
    from carbon.model.folder import carbon_folder

    if to == "gguf" and max_shard_size is not None:
        raise UserError("--max-shard-size has no effect with --to gguf; take it out")
    carbon_folder(source)  # before anything large is imported
    if to == "gguf":
        _write_gguf(source, output, dtype)
    else:
        _write_folder(source, output, dtype, max_shard_size or "50GB")


def _write_folder(path: str, output: str, dtype: Dtype | None, max_shard_size: str) -> None:
    from carbon.inference import Model
    from carbon.io.files import atomic_folder
    from carbon.model import load_model, save_model

    sequences = _random_sequences()
    with atomic_folder(output) as folder:
        source = load_model(path, "auto")
        stored = source.network.dtype
        before = _log_likelihoods(Model(source), sequences)
        native = _native(source, dtype)
        del source
        save_model(native, folder, max_shard_size=max_shard_size)
        written = native.dtype
        del native
        after = _log_likelihoods(Model(load_model(folder, "auto")), sequences)
        largest = _print_parity(sequences, before, after)
        tolerance = TOLERANCE_SAME_DTYPE if written == stored else TOLERANCE_ROUNDED
        if not largest <= tolerance:
            raise FloatingPointError(
                f"{path}: scores change by {largest:.3g} nats per base, more than "
                f"{tolerance:g}; nothing was written"
            )


def _write_gguf(source: str, output: str, dtype: Dtype | None) -> None:
    from pathlib import Path

    from carbon.io.files import atomic_file
    from carbon.model import load_model
    from carbon.model.convert import write_gguf
    from carbon.progress import say

    with atomic_file(output) as path:
        native = _native(load_model(source, "auto"), dtype)
        write_gguf(native, path, Path(source).name)
    say(f"{output}: give prompts as <dna> and DNA, and set the context size in llama.cpp")


def _native(source: "LoadedModel", dtype: Dtype | None) -> "PreTrainedModel":
    """Return the native network with the output dtype."""
    from carbon.inference import DTYPES
    from carbon.model.convert import native_network
    from carbon.progress import say

    if source.six_mers.name == "hybrid":
        say("metadata tags are left out: in a hybrid they are text, without their own rows")
    return native_network(source, DTYPES[dtype] if dtype else source.network.dtype)


def _random_sequences() -> list[str]:
    import random

    draw = random.Random(0)
    return ["".join(draw.choices("ACGT", k=length_bp)) for length_bp in _LENGTHS_BP]


def _log_likelihoods(model: "Model", sequences: list[str]) -> list[float]:
    return [score.log_likelihood for score in model.score(sequences)]


def _print_parity(sequences: list[str], before: list[float], after: list[float]) -> float:
    """Print both scores of every sequence and return the largest difference in nats per base."""
    import numpy as np

    differences = [abs(a - b) / len(s) for s, b, a in zip(sequences, before, after, strict=True)]
    print("bases", "source", "converted", "difference_per_base", sep="\t")
    for s, b, a, difference in zip(sequences, before, after, differences, strict=True):
        print(len(s), f"{b:.6f}", f"{a:.6f}", f"{difference:.3g}", sep="\t")
    largest = float(np.max(differences))  # NaN if any is NaN; `max` may skip it
    print(f"# largest difference {largest:.3g} nats per base")
    return largest
