"""Which tags a model knows stands in its config: written, kept by whoever saves, read again."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from carbon.cli import main
from carbon.errors import ModelError, UserError
from carbon.inference import load
from carbon.model import load_model, name_tags, save_model
from carbon.tokenizer import HYBRID, NATIVE
from tests.conftest import small_config

KNOWN = ["<fungi_species>", "<protein_coding_region>"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Hold `two`, which knows two tags, and `none`, whose config says nothing; rows are random."""
    folder = tmp_path_factory.mktemp("tags")
    torch.manual_seed(3)
    network = LlamaForCausalLM(small_config())
    name_tags(network.config, KNOWN)
    save_model(network, folder / "two")
    delattr(network.config, "carbon_tags")
    save_model(network, folder / "none")
    assert "carbon_tags" not in config_of(folder / "none")
    return folder


def config_of(folder) -> dict:
    return json.loads((folder / "config.json").read_text())


def test_the_config_names_them(folder, capsys):
    assert config_of(folder / "two")["carbon_tags"] == KNOWN
    model = load(folder / "two")
    assert model.model.vocabulary.tags == tuple(KNOWN)
    (bare,), (tagged,) = model.score(["ACGTACGT"]), model.score(["ACGTACGT"], tags=KNOWN)
    assert bare.log_likelihood != tagged.log_likelihood
    with pytest.raises(UserError, match="<plant_species>"):
        model.score(["ACGT"], tags=["<plant_species>"])
    assert main(["info", str(folder / "two")]) == 0
    assert json.loads(capsys.readouterr().out)["tags"] == KNOWN


def test_a_config_that_names_none_has_none(folder, tmp_path, capsys):
    """Its rows for tags are random, as those of any network are before it is trained."""
    rows = load_model(folder / "none").network.get_input_embeddings().weight
    assert rows[4:18].abs().sum(dim=1).min() > 0
    assert load(folder / "none").model.vocabulary.tags == ()
    (tmp_path / "s.fa").write_text(">s\nACGTACGT\n")
    words = ["score", "--model", f"{folder}/none", "--tag", "<fungi_species>", f"{tmp_path}/s.fa"]
    assert main(words) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "<fungi_species>" in last and "config.json names none" in last


def test_stock_transformers_loads_and_keeps_them(folder, tmp_path):
    stock, report = AutoModelForCausalLM.from_pretrained(folder / "two", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert type(stock) is LlamaForCausalLM
    stock.save_pretrained(tmp_path / "again")
    assert load(tmp_path / "again").model.vocabulary.tags == tuple(KNOWN)
    folders = (folder / "two", tmp_path / "again")
    before, after = (load_file(each / "model.safetensors") for each in folders)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_convert_keeps_them(folder, tmp_path):
    for name, tags in (("two", KNOWN), ("none", [])):
        output = tmp_path / name
        assert main(["convert", str(folder / name), str(output)]) == 0
        assert config_of(output)["carbon_tags"] == tags
        assert load(output).model.vocabulary.tags == tuple(tags)
        before, after = (f / "model.safetensors" for f in (folder / name, output))
        assert before.read_bytes() == after.read_bytes()


def test_tags_of_a_config_are_read_in_the_order_of_the_table_or_refused(folder, tmp_path):
    shutil.copytree(folder / "two", tmp_path / "m")
    for named in (KNOWN[::-1], ["<dragon>"], "<fungi_species>x", None):
        config = config_of(tmp_path / "m") | {"carbon_tags": named}
        (tmp_path / "m" / "config.json").write_text(json.dumps(config))
        if named == KNOWN[::-1]:
            assert load(tmp_path / "m").model.vocabulary.tags == tuple(KNOWN)
            continue
        with pytest.raises(ModelError, match=r"carbon_tags in config\.json"):
            load(tmp_path / "m")


def test_a_hybrid_has_those_of_its_text(tmp_path, capsys):
    """What its config may say of native rows counts for nothing, also when it is converted."""
    config = small_config()
    config.vocab_size, config.pad_token_id = HYBRID.size, HYBRID.pad
    name_tags(config, NATIVE.tags)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "hybrid")
    assert load(tmp_path / "hybrid").model.vocabulary.tags == ()
    assert main(["convert", f"{tmp_path}/hybrid", f"{tmp_path}/out"]) == 0
    assert "metadata tags are left out" in capsys.readouterr().err
    assert config_of(tmp_path / "out")["carbon_tags"] == []
    with pytest.raises(UserError, match="<fungi_species>"):
        load(tmp_path / "out").score(["ACGT"], tags=["<fungi_species>"])
