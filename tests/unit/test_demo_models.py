"""The model's card, and the switch of models: one visitor's choice is nobody else's."""

import json
from pathlib import Path

import pytest
import torch
from gradio_client import Client
from gradio_client.exceptions import AppError

from carbon.about_model import about_model, model_of_run
from carbon.box import BOX
from carbon.errors import UserError
from carbon.inference import load
from carbon.model import save_model
from demo.app import make_panels
from demo.lab import Offer
from demo.models import model_card
from demo.panels.generate import Generate
from tests.conftest import small_config
from tests.helpers.demo import answered, make_lab
from tests.helpers.server import served


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with an export of another network, an hour at a token a second."""
    from transformers import LlamaForCausalLM

    folder = tmp_path_factory.mktemp("runs") / "my_run"
    (folder / "export").mkdir(parents=True)
    torch.manual_seed(7)
    save_model(LlamaForCausalLM(small_config()), folder / "export")
    (folder / "config.toml").write_text('[model]\npreset = "tiny"\n[data]\ncorpus = "/no/flies"\n')
    line = {"stage": "ce", "objective": "ce", "loss": 1.0, "tokens_per_second": 1.0}
    steps = [line | {"step": n, "tokens": 1800 * n} for n in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return folder


@pytest.fixture(scope="module")
def lab(model, run, tmp_path_factory):
    lab = make_lab(tmp_path_factory.mktemp("lab"), model)
    lab.offer = Offer({"my_run": str(run)}, False, load)
    return lab


def test_what_is_known_of_a_run(run):
    about = about_model(str(model_of_run(run)))
    assert about.what == "the run my_run, preset tiny"
    assert about.trained_on == "the corpus flies"
    assert about.hours == pytest.approx(1.0)  # 3,600 tokens, one a second
    assert about.context_bp == 6 * 47


@pytest.mark.skipif(not BOX["yeast"].is_there, reason="no model in the box")
def test_what_is_known_of_the_box():
    about = about_model("yeast")
    assert about.num_parameters == 4_770_560 and about.hours == 1.0
    assert "Saccharomyces cerevisiae" in about.trained_on


def test_a_visitor_gets_the_model_of_the_choice_and_all_others_the_first(lab, run):
    panel = Generate(lab)
    other = panel.with_model("my_run")
    assert panel.with_model("model") is panel
    assert other is panel.with_model("my_run") is other.with_model("my_run")
    given = {"length_bp": 60}
    expected = load(run / "export").generate(["ATGGCCAAG"], 60)[0]
    assert answered(other, given)["bases"] == expected != answered(panel, given)["bases"]
    assert f"carbon.load({str(run / 'export')!r})" in other.python(other_values(other, given))
    assert "my_run" in model_card(other.lab) and "my_run" not in model_card(lab)
    assert "base_model=" in other.link({"base_model": "my_run"})


def other_values(panel, given):
    from demo.fields import checked_values

    return checked_values(panel.fields, given)


def test_few_models_are_kept(lab, run, tmp_path):
    names = [str(run / "export")]
    for n in range(3):
        folder = tmp_path / f"model{n}"
        folder.symlink_to(run / "export")
        names.append(str(folder))
    opened = []
    lab.offer = Offer(
        {Path(n).name: n for n in names}, False, lambda name: opened.append(name) or load(name)
    )
    for name in [*names, names[-1], names[0]]:
        lab.with_model(Path(name).name)
    assert len(opened) == 5  # the last was kept, the first was not


def test_a_folder_by_path_only_where_it_is_allowed(lab, run):
    export = str(run / "export")
    lab.offer = Offer({"my_run": str(run)}, False, load)
    with pytest.raises(UserError, match="there is no"):
        lab.with_model(export)
    lab.offer = Offer({}, True, load)
    assert lab.with_model(export).model_name == export
    for name in ("owner/name", "/nowhere"):
        with pytest.raises(UserError, match="there is no"):
            lab.with_model(name)


def test_without_others_there_is_no_switch(model, tmp_path):
    panels = make_panels(make_lab(tmp_path, model))
    assert all("base_model" not in [f.name for f in panel.fields] for panel in panels)


def test_a_simulated_genome_is_called_so(model, tmp_path):
    lab = make_lab(tmp_path, model)
    assert "simulated" not in model_card(lab)
    lab.is_simulated = True
    assert "a simulated genome" in model_card(lab)


def test_programs_choose_a_model_of_their_own(lab, run):
    lab.offer = Offer({"my_run": str(run)}, False, load)
    with served(lab) as address:
        client = Client(address, verbose=False)
        ask = {"length_bp": 30, "api_name": "/generate"}
        other = client.predict(base_model="my_run", **ask)["bases"]
        assert other != client.predict(**ask)["bases"]
        assert other == client.predict(base_model="my_run", **ask)["bases"]
        with pytest.raises(AppError, match="not in the list of choices"):
            client.predict(base_model="/etc", **ask)
