"""Going on from a hybrid that has its byte pairs: tags are text, and no row of text changes."""

import itertools
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from carbon.inference import load
from carbon.tokenizer import HYBRID, NATIVE, TAGS
from tests.conftest import small_config
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import make_config, make_corpus
from train.models.start import open_start

pytestmark = pytest.mark.nightly


@pytest.fixture
def config(real_data, tmp_path):
    config = small_config(128)
    config.vocab_size, config.pad_token_id = HYBRID.size, HYBRID.pad
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "start")
    for path in (real_data / "qwen3_bpe").iterdir():
        shutil.copy(path, tmp_path / "start")
    return make_config(
        make_corpus(tmp_path), tmp_path / "run", "model.preset=", f"model.start={tmp_path}/start"
    )


def first_batch_and_all(ranks, config):
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    rows = [(trainer.rows.order[i], trainer.rows[i]) for i in range(8)]
    pieces = [piece for sample, _ in rows for piece in trainer.rows.segments(sample)]
    (metrics,) = itertools.islice(trainer.steps(), 1)
    trainer.run(False)
    return metrics["nats_per_base"], [(p.prefix, p.letters.tobytes().decode()) for p in pieces]


def test_the_first_loss_is_what_scoring_with_tags_finds(config, tmp_path):
    start = open_start(config)
    ((found, pieces),) = run_ranks(1, first_batch_and_all, config)
    texts = {
        (): (NATIVE.begin,),
        **{tags: start.prefixes[tuple(NATIVE.prefix(tags))] for tags in combinations()},
    }
    tags_of = {prefix: tags for tags, prefix in texts.items()}
    model = load(tmp_path / "start")
    nats = bases = tagged = 0
    for prefix, letters in pieces:
        (score,) = model.score([letters], tags=tags_of[prefix])
        nats -= score.log_likelihood
        bases += score.log_likelihood / -score.nats_per_base
        tagged += bool(tags_of[prefix])
    assert found == pytest.approx(nats / bases, abs=1e-5)
    assert tagged > 3 and max(len(prefix) for prefix, _ in pieces) > 3
    before, after = (
        load_file(tmp_path / name / "model.safetensors")["model.embed_tokens.weight"]
        for name in ("start", "run/export")
    )
    assert torch.equal(before[: HYBRID.begin], after[: HYBRID.begin])
    assert not torch.equal(before, after)
    assert (tmp_path / "run" / "export" / "merges.txt").is_file()


def combinations():
    known = {kind: [t.text for t in TAGS if t.kind == kind and t.released] for kind in KINDS}
    yield from ((tag,) for kind in KINDS for tag in known[kind])
    yield from itertools.product(known["species"], known["gene"])


KINDS = ("species", "gene")
