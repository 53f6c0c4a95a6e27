"""Peak speeds of GPUs, against which a run's model FLOP utilisation is measured."""

import re

_PEAKS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("H100", "PCIe"), 756e12),
    (("H100", "NVL"), 835e12),
    (("H100", "HBM3"), 989e12),  # SXM5, whose name is that of its memory
    (("H200", "NVL"), 835e12),
    (("H200",), 989e12),  # SXM
    (("GH200",), 989e12),
    (("A100",), 312e12),  # SXM and PCIe alike
)
"""Words of a GPU's name and its dense bf16 operations a second.

Source: NVIDIA's data sheets of H100 (for NVL that of 2024), H200, GH200 and A100. Those since H100
give numbers with sparsity; the dense ones are half of them.
"""


def peak_flops(gpu: str) -> float | None:
    """Return the peak dense bf16 operations a second of a GPU, by the name that its driver gives.

    None where the name is not in the table, or is that of a MIG slice, which is a share of a GPU.
    """
    words = set(re.findall(r"\w+", gpu))
    if "MIG" in words:
        return None
    return next((peak for wanted, peak in _PEAKS if words.issuperset(wanted)), None)
