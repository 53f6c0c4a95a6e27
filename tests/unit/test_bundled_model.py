"""The bundled model: loaded by name everywhere, never written, and packed into the wheel."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from huggingface_hub import constants

import carbon
from carbon import NativeDNATokenizer, pretrained
from carbon.cli import main
from carbon.errors import ModelError, UserError
from carbon.genome import Interval, Reference, Variant, read_annotation
from carbon.model import folder as model_folders
from carbon.model import model_folder, save_model
from eval.entrants import entrants_of
from eval.models import load_any
from tests.helpers.bundled_model import CONTIG_BP, NATS_PER_BASE, count_parameters, fill

ROOT = Path(__file__).parents[2]
MOST_BYTES_IN_THE_WHEEL = 11_000_000


@pytest.fixture
def filled(monkeypatch, tmp_path, network):
    """A bundled model with random weights; the working directory is empty."""
    monkeypatch.setattr(pretrained, "ROOT", tmp_path / "pretrained")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fill(tmp_path / "pretrained" / "yeast", network)
    return pretrained.entry("yeast")


@pytest.fixture
def emptied(monkeypatch, tmp_path):
    """An installation without its bundled model."""
    monkeypatch.setattr(pretrained, "ROOT", tmp_path / "empty")
    monkeypatch.chdir(tmp_path)


def test_the_name_of_a_bundled_model_is_its_folder(filled):
    assert model_folder("yeast").path == filled.folder
    sequences = ["ATGGCCAAGTAA", "ACGTN" * 9]
    by_name, by_path = (carbon.load(s).score(sequences) for s in ("yeast", filled.folder))
    assert [s.log_likelihood for s in by_name] == [s.log_likelihood for s in by_path]
    ids, expected = (
        tokenizer("<dna>ACGTAC</dna>")["input_ids"]
        for tokenizer in (NativeDNATokenizer.from_pretrained("yeast"), NativeDNATokenizer())
    )
    assert ids == expected


def test_a_local_folder_comes_first(filled, network):
    save_model(network, "yeast")
    assert model_folder("yeast").path == Path("yeast")
    shutil.rmtree("yeast")
    Path("yeast").write_text("a file is no folder")
    assert model_folder("yeast").path == filled.folder


def test_other_names_are_the_hubs_as_before(filled, monkeypatch):
    asked = []

    def hub_folder(name, *, with_weights):
        asked.append((name, with_weights))
        return filled.folder

    monkeypatch.setattr(model_folders, "hub_folder", hub_folder)
    assert model_folder("somebody/yeast").path == filled.folder
    assert asked == [("somebody/yeast", False), ("somebody/yeast", True)]
    with pytest.raises(ModelError, match="Yeast: no such model folder; `carbon models` lists"):
        model_folder("Yeast")


def test_the_bundled_folder_is_read_and_never_written(filled):
    """In an installation the folder may be another user's, and what is added there stays."""

    def state():
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns)
                for path in filled.folder.rglob("*")}  # fmt: skip

    before = state()
    with Reference(filled.genome) as genome:
        assert genome.contig_lengths_bp == {"VIII": CONTIG_BP}
        (gene,) = read_annotation(filled.annotation, genome).genes
        assert genome.fetch(Interval("VIII", gene.interval.start, gene.interval.start + 3)) == "ATG"
        base = genome.fetch(Interval("VIII", 303, 304))
        variant = Variant("VIII", 303, base, "T")
        (score,) = carbon.load("yeast").score_variants(genome, [variant])
    assert base == "G" and score.delta is not None
    assert state() == before


def test_every_door_takes_the_name(filled, tmp_path, capsys):
    (tmp_path / "one.fa").write_text(">a\nATGGCCAAGTAA\n")
    assert main(["info", "yeast"]) == 0
    assert json.loads(capsys.readouterr().out)["context_tokens"] == 48
    for words in (
        ["score", "--model", "yeast", f"{tmp_path}/one.fa"],
        ["next", "--model", "yeast", "--prompt", "ATGGCC"],
        ["scan", "--model", "yeast", "--reference", str(filled.genome), "--region", "VIII:301-330",
         "--output", f"{tmp_path}/scan.tsv"],
        ["convert", "yeast", f"{tmp_path}/converted", "--dtype", "bfloat16"],
    ):  # fmt: skip
        assert main(words) == 0, words
    assert model_folder(tmp_path / "converted").shapes == model_folder("yeast").shapes
    before = entrants_of(["yeast"], ["float32"])
    assert load_any("yeast", "yeast", yarn=None).name == "yeast"
    weights = filled.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes())
    assert entrants_of(["yeast"], ["float32"]) == before, "the same content is the same model"
    weights.write_bytes(weights.read_bytes()[:-4] + bytes(4))
    (after,) = entrants_of(["yeast"], ["float32"])
    assert before[0].identity != after.identity, "another model of this name is another"


def test_an_installation_without_it_says_so(emptied):
    for ask in (
        lambda: carbon.load("yeast"),
        lambda: pretrained.entry("yeast"),
        lambda: entrants_of(["yeast"], ["float32"]),
        lambda: load_any("yeast", "yeast", yarn=None),
    ):
        with pytest.raises(UserError, match="yeast: this installation of Carbon lacks it"):
            ask()
    with pytest.raises(ModelError, match="wheat"):
        pretrained.entry("wheat")


def test_models_lists_the_bundled_model(filled, network, capsys):
    assert main(["models", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["bundled"]
    assert model["parameters"] == count_parameters(network)
    assert model["heldout_nats_per_base"] == NATS_PER_BASE
    assert model["bytes"] == sum(path.stat().st_size for path in filled.folder.glob("*"))
    for key in ("folder", "genome", "annotation"):
        assert Path(model[key]).exists()


def test_models_says_where_a_fetched_one_lies(emptied, tmp_path, monkeypatch, capsys):
    """The layout of the cache: refs/main names the snapshot; a config alone is no model."""
    hub = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(hub))
    for name, files in (
        ("Carbon-3B", ("config.json", "model-00001-of-00001.safetensors")),
        ("Carbon-8B", ("config.json",)),
    ):
        repository = hub / f"models--HuggingFaceBio--{name}"
        (repository / "snapshots" / "abc").mkdir(parents=True)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("abc")
        for file in files:
            (repository / "snapshots" / "abc" / file).touch()
    assert main(["models", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = {m["name"]: m["folder"] for m in told["hub"] if m["folder"]}
    assert found == {
        "HuggingFaceBio/Carbon-3B": f"{hub}/models--HuggingFaceBio--Carbon-3B/snapshots/abc"
    }
    assert [(each["name"], each["is_there"]) for each in told["bundled"]] == [("yeast", False)]


def test_models_needs_no_torch(filled):
    code = (
        "import sys; from pathlib import Path\n"
        "from carbon import pretrained; from carbon.cli import main\n"
        f"pretrained.ROOT = Path({str(filled.folder.parent)!r})\n"
        "assert main(['models']) == 0 and 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert "1.2345" in done.stdout


@pytest.mark.parametrize("builder", [WheelBuilder, SdistBuilder])
def test_the_wheel_takes_the_bundled_folder(builder, filled, tmp_path):
    """All of it, under the project's own rules of what is built and what git does not see."""
    root = tmp_path / "project"
    shutil.copytree(
        ROOT / "carbon", root / "carbon", ignore=shutil.ignore_patterns("__pycache__", "yeast")
    )
    for name in ("pyproject.toml", ".gitignore", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(filled.folder, root / "carbon" / "pretrained" / "yeast")
    taken = {file.distribution_path for file in builder(str(root)).recurse_included_files()}
    assert "carbon/pretrained/__init__.py" in taken
    wanted = {f"carbon/pretrained/yeast/{path.name}" for path in filled.folder.iterdir()}
    assert len(wanted) >= 7 and wanted - taken == set()


def test_the_bundled_model_of_the_wheel_is_small():
    files = [
        Path(file.path)
        for file in WheelBuilder(str(ROOT)).recurse_included_files()
        if file.distribution_path.startswith("carbon/pretrained/")
    ]
    assert files and sum(path.stat().st_size for path in files) <= MOST_BYTES_IN_THE_WHEEL
    on_disk = {p for p in (ROOT / "carbon" / "pretrained").rglob("*") if p.is_file()}
    assert {p for p in on_disk if "__pycache__" not in p.parts} == set(files)


def test_what_lies_beside_a_model_is_copied_and_scored(filled, capsys):
    assert main(["models", "--copy", "yeast"]) == 0
    out, err = capsys.readouterr()
    genome, annotation, _ = out.split()
    assert genome == f"yeast_VIII/{filled.genome_file}"
    assert Path(genome).read_bytes() == filled.genome.read_bytes()
    told = err.strip().removeprefix("score them: carbon ").split()
    assert main(told) == 0, "the command that is told works"
    rows = Path("yeast_VIII/scored.tsv").read_text().splitlines()
    assert rows[-1].startswith("VIII\t301\t") and Path(annotation).exists()
    assert main(["models", "--copy", "yeast"]) == 2
    assert "yeast_VIII: already exists" in capsys.readouterr().err
