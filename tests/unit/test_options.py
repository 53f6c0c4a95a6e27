"""Options by name: the command and the library take the same, with the same defaults."""

import copy
import dataclasses
import inspect
from types import SimpleNamespace
from typing import get_type_hints

import pytest
import torch

from carbon.cli import parse
from carbon.design.config import DesignConfig, DesignOptions, config_of
from carbon.errors import UserError
from carbon.genome import Interval
from carbon.inference import Model, model, options
from carbon.inference.jobs import VariantJob
from carbon.inference.options import (
    WINDOW_PROTOCOLS,
    SamplingRule,
    ScanOptions,
    VariantOptions,
    changed,
    input_files,
)
from carbon.inference.scan import scan_method_for
from carbon.inference.variants import method_for
from carbon.rl.config import RLConfig, RLOptions
from carbon.tokenizer import NATIVE

# By dataclass of options: the keywords that type checkers know.
KEYWORDS = {
    getattr(options, f"{kind}Options"): getattr(options, f"{kind}Keywords")
    for kind in ("Score", "Embed", "VariantEmbed", "Variant", "Scan", "Dependency")
} | {SamplingRule: options.SamplingKeywords, RLConfig: RLOptions}
METHODS = {
    "score": options.ScoreOptions,
    "score_fasta": options.ScoreOptions,
    "score_vcf": VariantOptions,
    "embed_fasta": options.EmbedOptions,
    "scan_region": ScanOptions,
    "embed": options.EmbedOptions,
    "embed_variants": options.VariantEmbedOptions,
    "score_variants": VariantOptions,
    "variant_method": VariantOptions,
    "background": VariantOptions,
    "scan": ScanOptions,
    "scan_method": ScanOptions,
    "dependency": options.DependencyOptions,
    "generate": SamplingRule,
    "stream": SamplingRule,
    "infill": SamplingRule,
}
LEAST = {
    "variants": ["--reference", "r", "--vcf", "v", "--output", "o"],
    "scan": ["--reference", "r", "--contig", "c", "--output", "o"],
    "dependency": ["--reference", "r", "--region", "c", "--output", "o"],
    "generate": ["--length", "6"],
}


@pytest.mark.parametrize("kind", KEYWORDS)
def test_type_checkers_know_the_fields_of_each_dataclass(kind):
    assert get_type_hints(KEYWORDS[kind]) == get_type_hints(kind)


def test_type_checkers_know_the_options_of_a_design():
    """Those of the parts, with their types, in place of the parts."""
    parts = (DesignConfig, SamplingRule, options.Constraints, options.RuleOptions)
    hints = {name: hint for part in parts for name, hint in get_type_hints(part).items()}
    assert get_type_hints(DesignOptions) == {
        name: hint for name, hint in hints.items() if name not in ("rules", "sampling")
    }


def test_flat_options_of_a_design_reach_their_parts():
    config = config_of(
        {"length_bp": 9, "temperature": 0.5, "gc": (0.2, 0.6), "sites": ("EcoRI",), "width": 2}
    )
    assert (config.sampling, config.width) == ({"temperature": 0.5}, 2)
    assert config.rules.constraints.gc == (0.2, 0.6) and config.rules.sites == ("EcoRI",)
    assert config_of({"start": "atgaaa", "protein": ""}).rules.constraints.protein == "MK"
    with pytest.raises(TypeError, match="lengths"):
        config_of({"lengths": 9})
    with pytest.raises(UserError, match="give its letters, or a --start"):
        config_of({"length_bp": 9, "protein": ""})


@pytest.mark.parametrize("method", METHODS)
def test_a_method_has_the_signature_and_the_help_of_its_options(method):
    function = getattr(Model, method)
    parameters = inspect.signature(function).parameters
    for field in dataclasses.fields(METHODS[method]):
        assert parameters[field.name].default == field.default
        assert f"    {field.name}: " in inspect.getdoc(function)


@pytest.mark.parametrize("command", LEAST)
def test_a_command_without_options_has_the_defaults_of_the_library(command):
    _, bound = parse([command, "--model", "m", *LEAST[command]])
    job = bound.arguments["job"]
    given = [getattr(job, name, None) for name in ("method", "sampling", "constraints")]
    parts = [part for part in given if part is not None]
    assert parts and all(type(part)() == part for part in parts)


def test_defaults_that_scores_depend_on():
    model = SimpleNamespace(context_tokens=32_768, vocabulary=NATIVE)
    method = method_for(model, VariantOptions())
    scan = scan_method_for(model, ScanOptions())
    assert (method.protocol, method.by, method.strands) == ("tiled", "chain", "both")
    assert (method.window_bp, method.offsets) == (8192, (0,))
    # Whole 6-mers of a sixth of the window: 8192 / 6 = 1365.3.
    assert (method.least_context_bp, method.downstream_bp) == (1362, 192)
    assert (scan.offsets, scan.combine, scan.strands) == ((0,), "mean", "forward")
    rule = SamplingRule()
    assert (rule.mode, rule.temperature, rule.repetition_penalty) == ("token", 1.0, 0.0)


def test_what_the_command_is_given_is_what_is_passed_on():
    words = ["--protocol", "right_end", "--window", "96", "--offsets", "0,2", "--tag", "<x>"]
    _, bound = parse(["variants", "--model", "m", *LEAST["variants"], *words])
    job = bound.arguments["job"]
    assert type(job) is VariantJob
    assert changed(job.method) == {
        "protocol": "right_end", "window_bp": 96, "offsets": (0, 2), "tags": ["<x>"]
    }  # fmt: skip


def test_the_last_of_a_repeated_option_counts_and_lists_grow():
    words = ["--window", "1", "--window=2", "--offsets", "0", "--offsets", "all", "--tag", "a"]
    _, bound = parse(["variants", "--model", "m", *LEAST["variants"], *words, "--tag", "b"])
    assert changed(bound.arguments["job"].method) == {
        "window_bp": 2, "offsets": "all", "tags": ["a", "b"]
    }  # fmt: skip
    goals = ["--function", "a", "--goal", "-3", "--goal", "minimize"]
    _, bound = parse(["design", "--model", "m", *goals, "--output", "o", "--hairpin", "-8"])
    assert bound.arguments["goals"] == ("-3", "minimize")
    assert changed(bound.arguments["rules"]) == {"least_kcal": -8.0}
    goals = ["--function", "a", "--function", "b", "--goal", "maximize", "-3"]
    _, bound = parse(["rl", "--model", "m", *goals, "--length", "12", "--output", "o"])
    assert bound.arguments["goals"] == ("maximize", "-3")
    assert bound.arguments["config"] == RLConfig(length_bp=12)


def test_input_files_are_those_of_a_job_and_its_parts():
    words = ["--annotation", "a", "--regions-file", "b", "--background", "c"]
    _, bound = parse(["variants", "--model", "m", *LEAST["variants"], *words])
    assert sorted(map(str, input_files(bound.arguments["job"]))) == ["a", "b", "c", "r", "v"]


def test_an_unknown_keyword_is_an_error_at_once(model):
    for call in (
        lambda: model.score_variants(None, [], window=12),
        lambda: model.variant_method(windw_bp=12),
        lambda: model.scan(None, Interval("c", 0, 1), window=12),
        lambda: model.generate(["A"], 6, temprature=1),
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()


@pytest.mark.parametrize(
    ("method", "choice"),
    [
        ("variant_method", "protocol"),
        ("variant_method", "by"),
        ("variant_method", "strands"),
        ("scan_method", "combine"),
        ("scan_method", "strands"),
    ],
)
def test_an_unknown_choice_is_an_error(model, method, choice):
    with pytest.raises(UserError, match=f"^{choice} 'x': give "):
        getattr(model, method)(**{choice: "x"})


@pytest.mark.parametrize("protocol", WINDOW_PROTOCOLS)
@pytest.mark.parametrize("window_bp", [96, 97])
def test_both_strands_read_windows_of_one_length_around_an_snv(protocol, window_bp):
    read = WINDOW_PROTOCOLS[protocol]
    before = {strand: read.before_bp(strand, window_bp) for strand in "+-"}
    counted = {strand: read.counted_bp(1, strand, window_bp) for strand in "+-"}
    if read.alleles_alone:
        assert set(before.values()) == {window_bp} and set(counted.values()) == {1}
        return
    # 48 + 48 of 96, and the base in the middle of 97 has 48 on either side of it; what is before
    # the SNV on one strand is behind it on the other.
    assert before == {"+": 48, "-": 47 if window_bp == 96 else 48}
    assert all(before[strand] + counted[strand] == window_bp for strand in "+-")
    assert counted["+"] - 1 == before["-"]


@pytest.mark.parametrize(
    ("device", "asked", "used"),
    [
        ("cpu", "auto", torch.float32),
        ("cuda", "auto", torch.bfloat16),
        ("cuda", "float32", torch.float32),
        ("cpu", "bfloat16", torch.bfloat16),
    ],
)
def test_a_gpu_computes_in_bfloat16_unless_asked_otherwise(device, asked, used, monkeypatch):
    class Loaded(Exception):
        pass

    def load_model(source, dtype, **_):
        raise Loaded(dtype)

    monkeypatch.setattr(model, "load_model", load_model)
    with pytest.raises(Loaded) as found:
        model.load("folder", device=device, dtype=asked)
    assert found.value.args == (used,)


def test_outputs_tell_the_dtype_that_was_used(model):
    assert model.dtype == "float32"
    rough = copy.deepcopy(model.model.network).bfloat16()
    assert Model(model.model._replace(network=rough)).dtype == "bfloat16"
