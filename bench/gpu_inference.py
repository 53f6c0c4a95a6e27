"""Variants and bases a second on a GPU, beside a plain transformers loop; random weights.

    python bench/gpu_inference.py [--output FILE]

For the shapes of `500m` and `3b` in bfloat16: `centered` with three ALTs a position against both
windows in full, `right_end` against one variant at a time, and a scan. Prints one line of JSON.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import inference as trials
import torch
from transformers import LlamaForCausalLM

from carbon.genome import Interval, Reference
from carbon.inference import Model
from carbon.model import PRESETS, LoadedModel
from carbon.tokenizer import NATIVE


def main() -> int:
    """Run the trials where there is a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--presets", nargs="+", default=["500m", "3b"])
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
    }
    with tempfile.TemporaryDirectory() as folder:
        reference = trials.random_reference(Path(folder), 200_000)
        for preset in arguments.presets:
            found[preset] = _of(_model(preset, device), reference, device)
    text = json.dumps(found)
    if arguments.output or "OUT" in os.environ:
        (arguments.output or Path(os.environ["OUT"]) / "inference.json").write_text(
            text + "\n", encoding="utf-8"
        )
    print(text)
    return 0


def _model(preset: str, device: str) -> Model:
    torch.manual_seed(0)
    with torch.device(device):
        network: Any = LlamaForCausalLM(PRESETS[preset]())
    return Model(LoadedModel(network.to(torch.bfloat16).train(False), NATIVE))


def _of(model: Model, reference: Reference, device: str) -> dict[str, float]:
    positions = 64 if device == "cuda" else 1
    some = trials.all_snvs(reference, 30_000, positions, 997)
    few = some[: 3 * max(positions // 8, 1)]

    def seconds(work: Any) -> float:
        work()
        return min(trials.taken(work)[0] for _ in range(2))

    shared = seconds(lambda: list(model.score_variants(reference, some, strands="forward")))
    in_full = seconds(lambda: trials.deltas_in_full(model, reference, few, trials.WINDOW_BP))
    alone = seconds(lambda: trials.right_end_in_full(model, reference, few[:8]))
    options: dict[str, Any] = {"protocol": "right_end", "strands": "forward"}
    right = seconds(lambda: list(model.score_variants(reference, some, **options)))
    region = Interval("c", 49_146, 49_146 + 25_146 * (2 if device == "cuda" else 1))
    options = {"window_bp": 49_146, "least_context_bp": trials.RIGHT_END_BP}
    scan = seconds(lambda: list(model.scan(reference, region, **options)))
    result = {
        "centered_variants_per_second": len(some) / shared,
        "both_in_full_variants_per_second": len(few) / in_full,
        "right_end_variants_per_second": len(some) / right,
        "one_by_one_variants_per_second": len(few[:8]) / alone,
        "scan_bases_per_second": region.length_bp / scan,
    }
    if device == "cuda":
        result["peak_memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()
    return result


if __name__ == "__main__":
    sys.exit(main())
