"""`carbon doctor`: check this machine and installation."""

import json
from typing import Annotated, Any

from cyclopts import Parameter

from carbon.__version__ import __version__
from carbon.progress import say


def doctor(*, as_json: Annotated[bool, Parameter(name="--json")] = False) -> int:
    """Check this machine and installation.

    Prints packages, extras and GPUs, and runs a self-test. Exits with 1 if the self-test fails.

    Args:
        as_json: JSON instead of tables.
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
    print(json.dumps(facts, indent=1) if as_json else _text(facts))
    return 0 if facts["self_test"] == "ok" else 1


def _text(facts: dict[str, Any]) -> str:
    """Return the facts as short tables."""
    from carbon.progress import TableRow, text_table

    gpu = facts["gpu"]
    cards = [f"{each['name']}, {each['gb']} GB" for each in gpu["devices"]]
    versions = {name: gpu[name] for name in ("driver", "cuda", "nccl") if gpu[name]}
    summary: list[TableRow] = [
        ("carbon", facts["carbon"]),
        ("python", facts["python"]),
        ("machine", f"{facts['machine']}, {facts['cores']} cores"),
        ("GPUs", "; ".join(cards) or facts["why_no_gpu"] or "none"),
        *versions.items(),
        ("self-test", facts["self_test"]),
    ]
    uses = [(name, choice["used"], choice["why"] or "") for name, choice in gpu["parts"].items()]
    packages = (facts["packages"] | facts["optional"]).items()
    tables: list[list[TableRow]] = [
        summary,
        [("computation", "uses", "because"), *uses],
        [("package", "version"), *((name, version or "absent") for name, version in packages)],
        [("extra", "state"), *facts["extras"].items()],
    ]
    return "\n\n".join(map(text_table, tables))


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
