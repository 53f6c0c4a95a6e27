"""The scripts of `runs/`: what they call, skip and refuse; a small quickstart from end to end."""

import json
from pathlib import Path

import pytest

from tests.helpers.scripts import run_script
from tests.helpers.shell import ROOT
from train.config import TrainConfig
from train.planning import time_budget


def make(path: Path) -> int:
    """Make a file, or a folder where the name has no ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch() if path.suffix else path.mkdir()
    return 0


def result_of(command: list[str]) -> str:
    """Return the path that a script expects its command to make."""
    settings = dict(word.split("=", 1) for word in command if "=" in word)
    if "--resume" in command and command[-1] == "auto":
        return settings["output"] + "/summary.html"
    if "convert" in command:
        return command[3]
    if "eval" in command:
        output = command[command.index("--output") + 1]
        if "run" in command:
            data = command[command.index("--data") + 1]
            last = "labelled_variants" if Path(f"{data}/labelled_variants.parquet").exists() else ""
            name = command[command.index("--model") + 1].partition("=")[0]
            return f"{output}/{last or 'heldout_likelihood'}/{name}.json"
        tasks = command[command.index("build") + 1].split(",") if "build" in command else []
        return f"{output}/{tasks[-1]}.parquet" if tasks else f"{output}/results.json"
    if "build" in command:
        return settings["output"]
    return command[-2 if command[-1] == "--resume" else command.index("--output") + 1]


def name_of(command: list[str]) -> str:
    if "eval" in command:
        return f"eval {command[command.index('eval') + 1]}"
    names = ("simulate", "build", "variants", "train.planning.time_budget", "train.launch",
             "generate", "export", "convert", "background",
             "runs/yeast_model.py")  # fmt: skip
    return next((name for name in names if name in command), command[1])


@pytest.fixture
def start(tmp_path):
    """Return what runs a script whose commands only make their results, or end with a code."""

    def started(script, *words, codes=None, **environment):
        def answer(command):
            if code := (codes or {}).get(name_of(command), 0):
                return code
            if "-c" in command:
                return 0
            if "simulate" in command:
                make(Path(result_of(command), "variants.vcf"))
                return 0
            return make(Path(result_of(command)))

        place = {"folder": tmp_path, "pipes": tmp_path.parent}
        return run_script(script, *words, answer=answer, **place, **environment)

    return started


@pytest.fixture
def files(tmp_path):
    for name in ("g.fa", "a.gff3"):
        (tmp_path / name).write_text("x")
    return {"GENOME": "g.fa", "ANNOTATION": "a.gff3"}


def test_a_step_runs_until_its_result_exists(start, tmp_path):
    steps = ["simulate", "build", "train.launch", "variants", "eval build", "eval build",
             "eval run", "generate", "eval report"]  # fmt: skip
    assert start("quickstart.sh", codes={"simulate": 2}, SEED="3").code == 2  # no step is done
    ended = start("quickstart.sh", codes={"eval run": 1})
    assert ended.code == 1 and list(map(name_of, ended.commands)) == steps[:7]
    ended = start("quickstart.sh")
    assert ended.code == 0 and list(map(name_of, ended.commands)) == steps[6:]
    assert start("quickstart.sh") == (0, [], "")
    before = sorted(tmp_path.rglob("*"))
    ended = start("quickstart.sh", "--set", "phases.0.tokens=5", SEED="9")
    assert ended[:2] == (2, []) and sorted(tmp_path.rglob("*")) == before
    assert "settings other than SEED=9, arguments=--set phases.0.tokens=5; name" in ended.err


def test_your_own_genome(start, tmp_path, files):
    """Its path may be written in any way; a genome that has changed is another."""
    more = {"CONTIGS": "chr", "GENETIC_CODE": "4", "HOLDOUT": "II:1-9"}
    ended = start("quickstart.sh", **files, **more, OUTPUT="mine")
    build, choose, fit, train, score, labelled, held_out, measure, *_ = ended.commands
    genome = str(tmp_path / "g.fa")
    assert f"assemblies.0.genome={genome}" in build and 'assemblies.0.holdout=["II:1-9"]' in build
    assert "assemblies.0.genetic_code=4" in build and "assemblies.0.contigs=chr" in build
    assert choose[choose.index("--contigs") :][:4] == ["--contigs", "chr", "--genetic-code", "4"]
    assert fit[fit.index("--minutes") + 1] == "15"
    assert train[train.index("--config") + 1] == fit[-1] == f"{tmp_path}/mine/recipe.toml"
    assert score[1] == "variants" and "--resume" in score
    assert "labelled_variants" in labelled and "genome_recovery,heldout_likelihood" in held_out
    assert measure[measure.index("--train") + 1].startswith(f"{tmp_path}/mine/corpus/")
    (tmp_path / "link.fa").symlink_to("g.fa")
    again = start(
        "quickstart.sh", **files | {"GENOME": f"{tmp_path}/link.fa"}, **more, OUTPUT="mine/"
    )
    assert again == (0, [], "")
    (tmp_path / "g.fa").write_text("xy")
    changed = start("quickstart.sh", **files, **more, OUTPUT="mine")
    assert changed.code == 2 and f"GENOME={genome} (2 bytes of " in changed.err


def test_a_genome_without_genes_or_without_coding_genes(start, files):
    ended = start("quickstart.sh", GENOME="g.fa", MINUTES="", OUTPUT="bare")
    assert ended.code == 0
    assert list(map(name_of, ended.commands))[:2] == ["build", "train.launch"]
    assert "phases.1.mixture={genome=1.0}" in ended.commands[1]
    ended = start("quickstart.sh", **files, codes={"variants": 2})
    assert ended.code == 0 and "labelled_variants" not in " ".join(ended.commands[4])
    assert "without variants of known effect" in ended.err
    ended = start("quickstart.sh", **files, OUTPUT="other", codes={"variants": 1})
    assert ended.code == 1 and len(ended.commands) == 2


@pytest.mark.parametrize(
    ("script", "environment", "message"),
    [
        ("quickstart.sh", {"ANNOTATION": "a.gff3"}, "ANNOTATION: give the GENOME"),
        ("quickstart.sh", {"GENOME": "absent.fa"}, "absent.fa: no such file"),
        ("quickstart.sh", {"GENOME": "g.fa", "ANNOTATION": "no"}, "no: no such file"),
        ("quickstart.sh", {"OUTPUT": "."}, "holds other files; name another OUTPUT"),
        ("yeast.sh", {"GENOME": "g.fa"}, "no such file"),
        ("yeast.sh", {"GENOME": "g.fa", "ANNOTATION": "a.gff3", "OUTPUT": "g.fa"}, "g.fa: exists"),
    ],
)
def test_mistakes_leave_nothing_behind(start, tmp_path, files, script, environment, message):
    ended = start(script, **environment)
    assert ended[:2] == (2, []) and message in ended.err
    assert len(ended.err.splitlines()) == 1 and len(list(tmp_path.iterdir())) == 2


def test_the_bundled_model_is_trained_and_measured(start, tmp_path, files):
    place = {"OUTPUT": "new", "WORK": "a work"}
    ended = start("yeast.sh", "--set", "seed=3", **files, **place)
    assert ended.code == 0
    build, train, export, convert, background, *evaluations, make = ended.commands[1:]
    data, measure, report, scores = evaluations
    work = tmp_path / "a work"
    assert f"output={work}/corpus" in build and f"data.corpus={work}/corpus" in train
    assert train[-4:] == ["--set", "seed=3", "--resume", "auto"]
    assert export[-1] == convert[2] == f"{work}/export"
    assert background[-1] == f"{convert[3]}/background.json" and "VIII" in background
    assert (
        f"{work}/corpus" in data and measure[measure.index("--model") + 1] == f"yeast={work}/model"
    )
    assert report[-1] == f"{work}/eval/heldout"
    assert scores[:3] == ["python", "bench/known_variants.py", f"{work}/model"]
    assert scores[-1] == f"{work}/eval/variant_scores/results.json"
    assert make[-1] == str(tmp_path / "new")
    (tmp_path / "new").rmdir()
    again = start("yeast.sh", "--set", "seed=3", **files, **place)
    assert list(map(name_of, again.commands[1:])) == ["runs/yeast_model.py"]


TINY = str(ROOT / "train" / "recipes" / "tiny.toml")


def test_a_recipe_is_fitted_to_a_time(tmp_path, monkeypatch, capsys):
    """Of 130,000 tokens 16 parts in 26 are CE; 20 batches of 16 x 256 warm up over 5."""
    monkeypatch.setattr(time_budget, "timed_speed", lambda config, processes: 1000.0 * processes)
    words = ["--config", TINY, "--processes", "2", "--output", f"{tmp_path}/r.toml"]
    assert time_budget.main([*words, "--minutes", "1.0834", "--set", "seed=5"]) == 0
    assert "fewer than 3,000,000 tokens" in capsys.readouterr().err
    fitted = TrainConfig.load(tmp_path / "r.toml")
    assert [(s.tokens, s.warmup_steps) for s in fitted.phases] == [(80_004, 5), (50_002, 0)]
    assert fitted.seed == 5
    assert time_budget.main([*words, "--minutes", "0"]) == 2
    assert "--minutes 0: give more than 0" in capsys.readouterr().err


def test_a_short_run_is_timed(monkeypatch):
    """Each phase runs 16 steps; the first two warm up, and a step that stutters has no effect."""
    config = TrainConfig.load(TINY)

    def run(command, **_):
        config = TrainConfig.load(command[command.index("--config") + 1],
                                  [word for word in command if "=" in word])  # fmt: skip
        assert [phase.tokens for phase in config.phases] == [16 * 16 * 256] * 2
        Path(config.output).mkdir()
        speeds = [1, 1, 900, 1000, 5000]
        lines = [
            {"step": n, "tokens": n, "phase": "ce", "objective": "ce", "tokens_per_second": s}
            for n, s in enumerate(speeds, start=1)
        ]
        (Path(config.output) / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
        return type("Done", (), {"returncode": 0})

    monkeypatch.setattr(time_budget.subprocess, "run", run)
    assert time_budget.timed_speed(config, 2) == 1000
