"""A model whose weights are not finite is refused; other output that is not finite names its input.

Overflow in a dtype gives such output from finite weights. Here a NaN in one row of the embeddings
stands for it, with the check of weights switched off.
"""

import json
import math
import shutil

import pytest
import torch
from transformers import LlamaForCausalLM

import carbon
from carbon import Interval, Reference, Variant, load
from carbon.cli import main
from carbon.errors import ModelError
from carbon.finetune.predict import load_finetuned
from carbon.inference import base_log_likelihoods
from carbon.model import model_folder, save_model
from carbon.model.folder import tensor_shapes
from carbon.tokenizer import NATIVE, encode
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.finetune import BINARY, motif_rows, run_config, untrained_folder, write_rows
from train.models.start import Start

BROKEN = "GATTAC"  # the 6-mer that the network cannot read
GOOD, BAD = random_bases(90), random_bases(30, 1) + BROKEN + random_bases(54, 2)
MESSAGE = "the model's output is not finite; are its weights damaged"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that a 6-mer breaks, and files of which the second record has it."""
    folder = tmp_path_factory.mktemp("broken")
    for name in ("nan", "inf"):
        save_model(broken_by(float(name)), folder / name)
    save_model(broken_by(0.1), folder / "good")
    records = {"good": GOOD, "bad": BAD, "good2": GOOD[::-1]}
    write_fasta(folder / "s.fa", records)
    records = [f"good\t50\t.\t{GOOD[49]}\t{'A' if GOOD[49] != 'A' else 'C'}\t.\t.\t."]
    records += [f"bad\t50\t.\t{BAD[49]}\t{'A' if BAD[49] != 'A' else 'C'}\t.\t.\t."]
    write_vcf(folder / "v.vcf", records)
    return folder


def broken_by(value):
    config = small_config()
    config.tie_word_embeddings = False
    torch.manual_seed(0)
    network = LlamaForCausalLM(config)
    row = NATIVE.first_kmer + int(encode(BROKEN, NATIVE).kmers[-1])
    network.model.embed_tokens.weight.data[row] = value
    return network


def fine_tune(broken, folder):
    write_rows(folder / "data.csv", motif_rows(8))
    carbon.finetune.run(None, run_config(folder) | {"model": str(broken)})


def predict(broken, folder):
    finetuned = untrained_folder(broken.parent / "good", BINARY, folder / "finetuned")
    shutil.rmtree(finetuned / "model")
    shutil.copytree(broken, finetuned / "model")
    load_finetuned(finetuned)


def train(broken, folder):
    start = Start(model_folder(broken))
    assert torch.isfinite(start.weight("model.norm.weight")).all()
    start.weight("model.embed_tokens.weight")


LOADERS = {
    "score, embed, generate": lambda broken, _: load(broken),
    "finetune": fine_tune,
    "predict": predict,
    "train": train,
}


@pytest.mark.parametrize(
    ("loader", "value"), [*((loader, "nan") for loader in LOADERS), ("train", "inf")]
)
def test_weights_that_are_not_finite_are_refused(folder, tmp_path, loader, value):
    with pytest.raises(ModelError, match=r"weight model\.embed_tokens\.weight is not finite"):
        LOADERS[loader](folder / value, tmp_path)


@pytest.mark.parametrize(
    "loader",
    [
        LOADERS["score, embed, generate"],
        LOADERS["finetune"],
        lambda broken, _: load(broken, dtype="auto"),
        lambda broken, _: Start(model_folder(broken)).check_memory(num_processes=1),
    ],
    ids=["score, embed, generate", "finetune", "convert", "train"],
)
def test_weights_beyond_the_memory_are_refused_before_they_are_read(
    folder, tmp_path, monkeypatch, loader
):
    """A sparse file of 4 TB whose header is right takes no room on the disk."""
    broken = shutil.copytree(folder / "nan", tmp_path / "huge")
    config = json.loads((broken / "config.json").read_text())
    rows = 10**9
    (broken / "config.json").write_text(json.dumps(config | {"intermediate_size": rows}))
    shapes, at = {}, 0
    for name, shape in tensor_shapes(broken / "model.safetensors").items():
        shape = [rows if size == config["intermediate_size"] else size for size in shape]
        end = at + 4 * math.prod(shape)
        shapes[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    header = json.dumps(shapes).encode()
    with (broken / "model.safetensors").open("wb") as sink:
        sink.write(len(header).to_bytes(8, "little") + header)
        sink.truncate(8 + len(header) + at)
    monkeypatch.setattr("carbon.model.load.AutoModelForCausalLM", None)
    with pytest.raises(ModelError, match=r"huge: the weights take .* GB, and this machine has"):
        loader(broken, tmp_path)


@pytest.fixture
def unchecked(monkeypatch):
    """Load models without the check of their weights."""
    monkeypatch.setattr("carbon.model.load.check_finite_weights", lambda network, where: None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["score", "{f}/s.fa", "--output", "{t}/o.json"], "s.fa: record 'bad'"),
        (["next", "--prompt", BAD[:36]], f"context '{BAD[:12]}"),
        (["generate", "--length", "9", "--prompts", "{f}/s.fa"], "prompt 'bad'"),
        (["generate", "--length", "6", "--prompt", GOOD[:6], "--right", BAD[30:60]], "the gap"),
        (
            ["variants", "--reference", "{f}/s.fa", "--vcf", "{f}/v.vcf", "--output", "{t}/o.tsv"],
            "variant bad:50",
        ),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_command_names_the_input_and_writes_nothing(folder, tmp_path, capsys, words, name):
    verb, *rest = (word.format(f=folder, t=tmp_path) for word in words)
    assert main([verb, "--model", str(folder / "nan"), *rest]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    error = [line for line in error if line.startswith("error: ")]
    assert len(error) == 1 and name in error[0] and MESSAGE in error[0]
    assert not list(tmp_path.glob("o.*"))


@pytest.mark.usefixtures("unchecked")
def test_the_package_says_which(folder):
    model = load(folder / "inf")
    with pytest.raises(ModelError, match=f"sequence 2: {MESSAGE}"):
        list(model.score([GOOD, BAD]))
    with pytest.raises(ModelError, match=f"sequence 2: {MESSAGE}"):
        list(model.embed([GOOD, BAD]))
    with pytest.raises(ModelError, match=f"sequence 2: {MESSAGE}"):
        base_log_likelihoods(model.runner, [GOOD, BAD])
    with pytest.raises(ModelError, match=f"prompt 2: {MESSAGE}"):
        model.generate([GOOD, BAD], 6)
    with pytest.raises(ModelError, match=f"prompt 1: {MESSAGE}"):
        list(model.stream(BAD, 6))
    with Reference(folder / "s.fa") as reference:
        with pytest.raises(ModelError, match="region bad:1-90"):
            list(model.scan(reference, Interval("bad", 0, 90)))
        variant = Variant("bad", 49, BAD[49], "A" if BAD[49] != "A" else "C")
        with pytest.raises(ModelError, match="variant bad:50"):
            list(model.score_variants(reference, [variant]))


@pytest.mark.usefixtures("unchecked")
def test_what_it_can_read_has_its_numbers(folder):
    model = load(folder / "inf")
    (score,) = model.score([GOOD])
    assert -1000 < score.log_likelihood < -50 and len(model.generate([GOOD], 6)[0]) == 6
