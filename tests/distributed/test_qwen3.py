"""A second architecture: a stock Qwen3 is planned, trained, evaluated, exported and scored."""

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3ForCausalLM

import carbon
from tests.distributed.test_tensor import train_in_fp64
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import lines_of, make_config, run_to_the_end, steps_of_each
from train.config import ParallelConfig
from train.planning.plan import plan_of
from train.schedule import Schedule

SEQUENCE = "ATGGCCAAGTAA" * 4


@pytest.fixture(scope="module")
def config(corpus, tmp_path_factory):
    probe = ("probe.every_steps=2", "probe.sites=4", "probe.heldout_bp=600")
    more = ("model.architecture=qwen3", *probe, *steps_of_each(1))
    return make_config(corpus, tmp_path_factory.mktemp("qwen3") / "run", *more)


def test_a_run_ends_with_a_model_that_stock_transformers_and_carbon_read(config):
    weights = run_ranks(1, run_to_the_end, config)[0]
    network = AutoModelForCausalLM.from_pretrained(f"{config.output}/export")
    assert isinstance(network, Qwen3ForCausalLM)
    for name, parameter in network.named_parameters():
        assert np.array_equal(parameter.detach().numpy(), weights[name]), name
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    assert plan_of(config, Schedule(config), 1).num_parameters == num_parameters
    (probe,) = lines_of(config.output, "probes")
    assert 1.3 < probe["heldout_nats_per_base"] < 1.45
    model = carbon.load(f"{config.output}/export")
    (score,) = model.score([SEQUENCE])
    tokenizer = AutoTokenizer.from_pretrained(f"{config.output}/export")
    ids = tokenizer(f"<dna>{SEQUENCE}", return_tensors="pt").input_ids
    kmers = network(ids).logits[0, :-1, 128:].log_softmax(-1)
    expected = -kmers.gather(1, ids[0, 1:, None] - 128).mean() / 6
    assert score.nats_per_base == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.nightly
@pytest.mark.parametrize("parallel", [ParallelConfig(tensor=2), ParallelConfig(pipeline=2)])
def test_two_processes_equal_one(parallel, config):
    config = config.replace(data=config.data.replace(microbatch_tokens=64))
    lines, weights = run_ranks(1, train_in_fp64, config)[0]
    config = config.replace(parallel=parallel)
    found, theirs = run_ranks(2, train_in_fp64, config, parallel=parallel, apart=True)[0]
    np.testing.assert_allclose(found, lines, rtol=1e-9)
    for name, weight in weights.items():
        np.testing.assert_allclose(theirs[name], weight, rtol=0, atol=1e-9, err_msg=name)
