"""`carbon doctor`: check this machine and installation."""

import json

from carbon.__version__ import __version__
from carbon.progress import say


def doctor() -> int:
    """Check this machine and installation.

    Prints packages and GPUs, and runs a self-test.
    """
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from carbon.devices import gpu_facts, why_no_cuda
    from carbon.errors import extras_status

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    packages = ("torch", "transformers", "tokenizers", "numpy", "pyarrow", "pysam")
    optional = ("matplotlib", "scikit-learn", "pyBigWig", "datasets", "datatrove", "gradio",
                "flash-attn", "torchao", "triton")  # fmt: skip
    say("checking packages, and scoring with a small random model: takes some seconds")
    facts = {
        "carbon": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "why_no_gpu": why_no_cuda(),
        "gpu": gpu_facts(),
        "packages": {package: installed(package) for package in packages},
        "optional": {package: installed(package) for package in optional},
        "extras": extras_status(),
        "self_test": _self_test(),
    }
    print(json.dumps(facts, indent=1))
    return 0 if facts["self_test"] == "ok" else 1


def _self_test() -> str:
    """Score and sample with a small random network."""
    import torch
    from transformers import AutoModelForCausalLM

    from carbon.inference import Model
    from carbon.model import PRESETS, LoadedModel
    from carbon.tokenizer import NATIVE

    try:
        network = AutoModelForCausalLM.from_config(PRESETS["tiny"]())  # type: ignore[no-untyped-call]
        model = Model(LoadedModel(network.train(False), NATIVE))
        (score,) = model.score(["ACGTN" * 20])
        (text,) = model.generate(["ACGTA"], 20)
        finite = torch.isfinite(torch.tensor(score.log_likelihood))
        return "ok" if finite and len(text) == 20 else "wrong numbers"
    except (RuntimeError, OSError, ImportError) as error:
        return f"failed: {str(error).splitlines()[0]}"
