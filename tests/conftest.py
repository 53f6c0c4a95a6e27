"""The folder is the marker; material that many tests share."""

import os
import re
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from transformers import LlamaConfig, LlamaForCausalLM

from carbon.inference import Carbon
from carbon.model import PRESETS, LoadedModel, name_tags
from carbon.tokenizer import NATIVE

# The same examples every time, and no clock: a busy machine is no failure.
settings.register_profile("carbon", deadline=None, derandomize=True)
settings.load_profile("carbon")

FOLDERS = {"unit", "quickstart", "distributed", "browser", "real_data", "gpu", "servers"}
LONGEST = [
    "test_learners_come_and_go.py",
    "test_quickstart.py",
    "test_faults.py",
    "test_parallel.py",
    "test_demo.py",
    "test_readme.py",
    "test_tutorials.py",
    "test_curation.py",
    "test_docs_site.py",
    "test_training.py",
    "test_executors.py",
    "test_demo_server.py",
]


def pytest_collection_modifyitems(items):
    # Workers that take file after file end together when the longest come first.
    items.sort(key=lambda item: [*LONGEST, item.path.name].index(item.path.name))
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder not in FOLDERS:
            raise pytest.UsageError(f"{item.path}: tests live in {', '.join(sorted(FOLDERS))}")
        item.add_marker(folder)
        # The CPU is a device of theirs too, so that what they do is held where there is no GPU.
        on_cpu = getattr(item, "callspec", None) and item.callspec.params.get("device") == "cpu"
        if folder == "gpu" and not on_cpu and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no GPU"))


def named_skips() -> list[str]:
    """Return the reasons for a skip that CONTRIBUTING names."""
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.findall(
        r"`([^`]+)`", text.partition("These are all the reasons")[2].partition("\n- ")[0]
    )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return checked_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return checked_skip((yield))


def checked_skip(report):
    if report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2]
        if not any(name in reason for name in named_skips()):
            report.outcome, report.longrepr = "failed", f"CONTRIBUTING names no such skip: {reason}"
    return report


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real genomes; without it the test is skipped, or fails if it is required."""
    folder = os.environ.get("CARBON_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    if "real_data" in os.environ.get("CARBON_REQUIRE", ""):
        pytest.fail("CARBON_REQUIRE has real_data, but CARBON_DATA names no folder")
    pytest.skip("CARBON_DATA names no folder of real genomes")


def small_config(context_tokens: int = 48) -> LlamaConfig:
    config = PRESETS["tiny"]()
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = 32, 48, 2
    config.head_dim = 8
    config.max_position_embeddings = context_tokens
    # Larger than in training, so that the distributions of a random network are not flat.
    config.initializer_range = 0.3
    name_tags(config, NATIVE.tags)
    return config


@pytest.fixture(scope="session")
def network() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(small_config()).eval()


@pytest.fixture(scope="session")
def model(network) -> Carbon:
    return Carbon(LoadedModel(network, NATIVE))
