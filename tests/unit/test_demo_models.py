"""The model's card, and the switch of models: one visitor's choice is nobody else's."""

import gc
import json
import weakref
from types import SimpleNamespace

import pytest
import torch

from carbon.errors import UserError
from carbon.inference import load
from carbon.model import save_model
from carbon.pretrained import BUNDLED_MODELS
from demo.app import make_panels
from demo.limits import Limits
from demo.lru_cache import LruCache
from demo.models import AllowedModels, about_model, model_of_run
from demo.page import model_details
from demo.panels.gene import Gene
from demo.panels.write import Write
from tests.conftest import small_config
from tests.helpers.demo import answered, make_lab, page_of, values_of, visited


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with an export of another network, an hour at a token a second."""
    from transformers import LlamaForCausalLM

    folder = tmp_path_factory.mktemp("runs") / "my_run"
    (folder / "export").mkdir(parents=True)
    torch.manual_seed(7)
    save_model(LlamaForCausalLM(small_config()), folder / "export")
    (folder / "config.toml").write_text('[model]\npreset = "tiny"\n[data]\ncorpus = "/no/flies"\n')
    line = {"phase": "ce", "objective": "ce", "loss": 1.0, "tokens_per_second": 1.0}
    steps = [line | {"step": n, "tokens": 1800 * n} for n in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    return folder


@pytest.fixture(scope="module")
def lab(model, run, tmp_path_factory):
    lab = make_lab(tmp_path_factory.mktemp("lab"), model)
    lab.allowed = AllowedModels({"my_run": str(run)}, False, load)
    return lab


def test_what_is_known_of_a_run(run):
    about = about_model(str(model_of_run(run)))
    assert about.what == "the run my_run, preset tiny"
    assert about.trained_on == "the corpus flies"
    assert about.hours == pytest.approx(1.0)  # 3,600 tokens, one a second
    assert about.context_bp == 6 * 47


@pytest.mark.skipif(not BUNDLED_MODELS["yeast"].is_installed, reason="no model in the box")
def test_what_is_known_of_the_box():
    about = about_model("yeast")
    assert about.num_parameters == 1_279_104 and about.hours == 1.5
    assert "Saccharomyces cerevisiae" in about.trained_on


def test_a_visitor_gets_the_model_of_the_choice_and_all_others_the_first(lab, run):
    panel = Write(lab)
    other = panel.with_model("my_run")
    assert panel.with_model("model") is panel
    assert other is panel.with_model("my_run") is other.with_model("my_run")
    given = {"input": "ATGGCCAAG", "length_bp": 36}
    expected = load(run / "export").generate(["ATGGCCAAG"], 36)[0]
    assert answered(other, given)["bases"] == expected != answered(panel, given)["bases"]
    assert f"carbon.load({str(run / 'export')!r})" in other.python(values_of(other, **given))
    assert "my_run" in model_details(other.lab) and "my_run" not in model_details(lab)
    assert "base_model=" in other.link({"base_model": "my_run"})


def test_a_folder_by_path_only_where_it_is_allowed(lab, run):
    export = str(run / "export")
    lab.allowed = AllowedModels({"my_run": str(run)}, False, load)
    with pytest.raises(UserError, match="there is no"):
        lab.with_model(export)
    lab.allowed = AllowedModels({}, True, load)
    assert lab.with_model(export).model_name == export
    for name in ("owner/name", "/nowhere"):
        with pytest.raises(UserError, match="there is no"):
            lab.with_model(name)


def test_without_others_there_is_no_switch_and_a_simulated_genome_is_called_so(model, tmp_path):
    panels = make_panels(make_lab(tmp_path, model))
    assert all("base_model" not in [f.name for f in panel.fields] for panel in panels)
    lab = panels[0].lab
    assert "simulated" not in model_details(lab)
    lab.is_simulated = True
    assert "a simulated genome" in model_details(lab)


def test_what_was_offered_is_loaded_and_nothing_that_lies_there_since(lab, run, tmp_path):
    """A link of a run that is turned elsewhere, and a folder that takes a name, before any load."""
    turned, secret, loaded = tmp_path / "turned", tmp_path / "secret", []
    turned.mkdir()
    secret.mkdir()
    (turned / "config.toml").write_text("")
    (turned / "export").symlink_to(run / "export")
    appears = tmp_path / "appears"
    sources = {"turned": str(turned), "appears": str(appears)}
    lab.allowed = AllowedModels(sources, False, lambda path: loaded.append(path) or load(path))
    assert lab.with_model("turned").model_name == str(turned / "export") and len(loaded) == 1
    (turned / "export").unlink()
    (turned / "export").symlink_to(secret)
    (secret / "config.json").write_text("{}")
    appears.symlink_to(run)
    for name in sources:
        with pytest.raises(UserError, match=f"'{name}' has changed since"):
            lab.with_model(name)
    assert len(loaded) == 1


def test_a_model_is_not_loaded_for_an_address_that_asks_too_much(lab, run):
    """Neither by a link that is opened, nor for a name longer than any folder's."""
    loaded = []
    lab.allowed = AllowedModels({"my_run": str(run)}, True, loaded.append)
    lab._others = LruCache(2)
    asks = {"base_model": "my_run"}
    page = page_of(Write(lab), Limits(calls_per_minute=1))
    page.shell.limits.admit("1.2.3.4")
    request = SimpleNamespace(client=SimpleNamespace(host="1.2.3.4"), query_params=asks)
    (told,) = page._open(request)
    assert "1 questions a minute" in str(told) and loaded == []
    page.shell = page.shell._replace(limits=Limits())
    (told,) = page._open(SimpleNamespace(client=None, query_params={"base_model": "x" * 5000}))
    assert "there is no &#39;xxx" in str(told) and loaded == []


def test_the_model_that_was_asked_for_longest_ago_is_let_go(lab, run, tmp_path):
    """With its panels and what they keep, before the next one is loaded."""
    names, refs, alive = ("one", "two", "three"), [], []

    def opened(path):
        alive.append([ref() is not None for ref in refs])
        return load(path)

    for name in names:
        (tmp_path / name).symlink_to(run / "export")
    lab.allowed = AllowedModels({name: str(tmp_path / name) for name in names}, False, opened)
    gc.disable()
    try:
        for name in names:
            for panel, given in (
                (Write(lab), {"input": "ATGGCCAAG", "length_bp": 36}),
                (Gene(lab), {"input": "c1:1-60", "phases": ["0"]}),
            ):
                other = panel.with_model(name)
                visited(other, **given)
            refs.append(weakref.ref(other.lab.model.model.network))
            del panel, other
    finally:
        gc.enable()
    assert alive == [[], [True], [False, True]]
