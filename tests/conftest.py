"""The folder is the marker; material that many tests share."""

import gc
import os
from collections import Counter
from functools import cache, wraps
from itertools import islice
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from carbon import uncertainty
from carbon.inference import Model
from carbon.model import PRESETS, LoadedModel, load_model, name_tags
from carbon.pretrained import BUNDLED_MODELS
from carbon.tokenizer import NATIVE

# The same examples every time, and no clock: a busy machine is no failure.
settings.register_profile("carbon", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("carbon")

FOLDERS = {"unit", "quickstart", "distributed", "browser", "real_data", "gpu", "servers"}
LONGEST = [
    "test_training.py",
    "test_demo.py",
    "test_parallel.py",
    "test_demo_panels.py",
    "test_diloco.py",
    "test_job.py",
    "test_stock_models.py",
    "test_tasks_of_genomes.py",
    "test_alleles.py",
    "test_messages.py",
    "test_start.py",
    "test_commands.py",
]
SLOW = {
    "test_alleles.py",
    "test_background_command.py",
    "test_both_sides.py",
    "test_commands.py",
    "test_compare.py",
    "test_data_pipeline.py",
    "test_demo_panels.py",
    "test_demo_server.py",
    "test_drafts_and_gaps.py",
    "test_driver.py",
    "test_eval_commands.py",
    "test_eval_models.py",
    "test_files.py",
    "test_filters.py",
    "test_functions.py",
    "test_held_out.py",
    "test_job.py",
    "test_limits.py",
    "test_locks.py",
    "test_messages.py",
    "test_near_duplicates.py",
    "test_predictor.py",
    "test_ray.py",
    "test_readme.py",
    "test_report.py",
    "test_rl.py",
    "test_stock_models.py",
    "test_task_representation.py",
    "test_tasks_matched.py",
    "test_tasks_of_genomes.py",
    "test_variant_files.py",
    "test_variant_score_types.py",
}
"""Files of `unit` that take 9 s or more: whole runs, servers and pages."""


def pytest_collection_modifyitems(items):
    # Workers that take file after file end together when the longest come first.
    items.sort(key=lambda item: [*LONGEST, item.path.name].index(item.path.name))
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder not in FOLDERS:
            raise pytest.UsageError(f"{item.path}: tests live in {', '.join(sorted(FOLDERS))}")
        item.add_marker(folder)
        if item.path.name in SLOW:
            item.add_marker("slow")
        # The CPU is a device of theirs too, so that what they do is held where there is no GPU.
        on_cpu = getattr(item, "callspec", None) and item.callspec.params.get("device") == "cpu"
        if folder == "gpu" and not on_cpu and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no GPU"))


def pytest_collection_finish():
    """Collect garbage seldom, and not among what all test files import: a sixth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def pytest_sessionfinish():
    """Let what is frozen be collected as the process ends."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter):
    """Print the seconds of each file, setup and teardown included, the longest first."""
    seconds = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    if not seconds:
        return
    terminalreporter.section("seconds per file")
    for file, taken in seconds.most_common():
        terminalreporter.write_line(f"{taken:8.2f} {file}")
    terminalreporter.write_line(f"{seconds.total():8.2f} in all, over all processes")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real genomes; without it the test is skipped, or fails if it is required."""
    folder = os.environ.get("CARBON_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    if "real_data" in os.environ.get("CARBON_REQUIRE", ""):
        pytest.fail("CARBON_REQUIRE has real_data, but CARBON_DATA names no folder")
    pytest.skip("CARBON_DATA names no folder of real genomes")


@pytest.fixture
def few_resamples(monkeypatch):
    """Draw 40 resamples for an interval, not 1,000, in tests of what lies around it."""
    draw = uncertainty.resamples
    monkeypatch.setattr(
        uncertainty, "resamples", lambda *given, **more: islice(draw(*given, **more), 40)
    )


@pytest.fixture(scope="module")
def loaded_once():
    """Read the weights of a bundled model once, not for each command line."""
    once = cache(load_model)

    def load(source, *arguments, **options):
        return (once if source in BUNDLED_MODELS else load_model)(source, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("carbon.inference.model.load_model", load)
        yield


@pytest.fixture
def read_tokens(monkeypatch):
    """The number of input tokens of each forward pass of a Llama network, counted by itself."""
    numbers: list[int] = []
    forward = LlamaModel.forward

    @wraps(forward)
    def counted(network, input_ids=None, *arguments, **options):
        numbers.append(input_ids.numel())
        return forward(network, input_ids, *arguments, **options)

    monkeypatch.setattr(LlamaModel, "forward", counted)
    return numbers


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
def model(network) -> Model:
    return Model(LoadedModel(network, NATIVE))
