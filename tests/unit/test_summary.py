"""The page about a run, and the card of its model."""

import html
import math
import re

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import LlamaForCausalLM

from carbon.corpus import read_manifest
from carbon.errors import ConfigError
from carbon.losses.objectives import OBJECTIVES
from carbon.model import save_model
from tests.conftest import small_config
from tests.helpers.run_lines import probe_line, skipped_line, step_line, write_run
from tests.helpers.runs import corpus_of_three_sources
from train.runs.card import write_card
from train.runs.record import Work, objective_changes, read_run
from train.runs.summary import loss_figure, write_summary


def whole_run(folder):
    steps = [skipped_line(n) if n in (7, 55) else step_line(n) for n in range(1, 61)]
    events = [
        {"step": 0, "event": "start", "message": "from step 0"},
        {"step": 7, "event": "skip", "message": "the loss is nan"},
        *({"step": n, "event": "save", "message": f"saved {n}"} for n in (20, 40, 60)),
        {"step": 30, "event": "rollback", "message": "back to step 20"},
        {"step": 40, "event": "signal", "message": "the gap widens"},
    ]
    return write_run(folder, steps, [probe_line(20), probe_line(60)], events)


class Page:
    """The rows of all tables of a page, and by their first cells."""

    def __init__(self, text):
        rows = re.findall("<tr>(.*?)</tr>", text, re.DOTALL)
        cells = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
        self.rows = [[html.unescape(re.sub("<.*?>", "", cell)) for cell in row] for row in cells]
        self.table = {row[0]: row[1:] for row in reversed(self.rows)}  # the first of a name


def page_of(run) -> tuple[str, Page]:
    text = write_summary(run).read_text(encoding="utf-8")
    return text, Page(text)


@pytest.fixture
def unpainted(monkeypatch):
    """Leave the pictures of a page empty: painting them takes most of its time."""
    monkeypatch.setattr("train.runs.summary.svg_of", lambda figure: "<svg></svg>")


class TestSummary:
    def test_what_a_whole_run_says(self, tmp_path):
        text, page = page_of(whole_run(tmp_path / "run"))
        assert text.count("<svg") == 7
        assert not re.search("http|src=|<link|<script|@import|<image|xmlns", text)
        totals = {
            "steps": ["60 of 60 planned"],
            "steps skipped": ["2"],
            "tokens": ["61,440"],
            "time of computing": ["30.0 seconds"],  # 61,440 / 2,048
            "tokens a second, mean": ["2,048"],
            "nats per base of training rows, chain": ["1.3400 at step 60"],
            "held-out nats per base, marginals": ["1.4200 at step 60"],
            "sequence recovery in bf16": ["0.3500 at step 60"],
        }
        assert {name: page.table[name] for name in totals} == totals
        recipe = {
            "phase": ["first", "second"],
            "objective": ["ce", "blend"],
            "weight of FNS": ["-", "0.5 to 0.9"],
            "steps taken": ["40", "20"],
            "mixture": ["eukaryote 0.75, mrna 0.25", "eukaryote 0.5, mrna 0.5"],
            "shorter rows first": ["-", "5 steps of 64"],
            "learning rate": ["0.003", "0.001 to 0.0001"],
            "schedule": ["wsd, 4 steps of warm-up", "linear"],
            "ends early by": ["gradient norm", "-"],
        }
        assert {name: page.table[name] for name in recipe} == recipe
        assert ["steps", "40", "20"] in page.rows and ["tokens", "40,960", "20,480"] in page.rows
        assert page.rows[-4:] == [
            ["0", "start", "from step 0"],
            ["7", "skip", "the loss is nan"],
            ["30", "rollback", "back to step 20"],
            ["40", "signal", "the gap widens"],
        ]

    def test_every_change_of_the_objective_is_named(self, tmp_path):
        """There may be several, and a phase may begin without one."""
        steps = [step_line(n) for n in range(1, 13)]
        for first, phase, objective in ((1, "a", "ce"), (4, "b", "fns"), (7, "c", "fns"),
                                        (10, "d", "ce")):  # fmt: skip
            for line in steps[first - 1 :]:
                line |= {"phase": phase, "objective": objective}
        run = write_run(tmp_path / "run", steps, [], [])
        ce, fns = (OBJECTIVES[name].label for name in ("ce", "fns"))
        sentences = [
            f"At step 4 the objective changes from {ce} to {fns}.",
            f"At step 10 the objective changes from {fns} to {ce}.",
        ]
        assert objective_changes(read_run(run)) == sentences

    def test_equal_input_gives_equal_bytes(self, tmp_path, unpainted):
        one, other = (write_summary(whole_run(tmp_path / name / "run")) for name in "ab")
        assert one.read_bytes() == other.read_bytes()
        assert not list(one.parent.glob(".*"))

    def test_a_run_that_has_only_begun(self, tmp_path, unpainted):
        assert "<svg" not in page_of(write_run(tmp_path / "none"))[0]
        _, page = page_of(write_run(tmp_path / "one", [step_line(1)]))
        assert page.table["steps"] == ["1 of 60 planned"]
        assert page.table["time of computing"] == ["0.5 seconds"]
        assert page.table["steps taken"] == ["1", "0"]
        _, page = page_of(write_run(tmp_path / "bad", [skipped_line(1)]))
        assert page.table["steps skipped"] == ["1"]

    def test_a_line_that_is_being_written(self, tmp_path, unpainted):
        run = write_run(tmp_path / "run", [step_line(1), step_line(2)])
        with (run / "metrics.jsonl").open("a") as sink:
            sink.write('{"step": 3, "tok')
        assert ["steps", "2 of 60 planned"] in page_of(run)[1].rows
        (run / "metrics.jsonl").write_text('{"st\n{"step": 2}\n')
        with pytest.raises(ConfigError, match=r"metrics\.jsonl line 1: Invalid JSON"):
            write_summary(run)

    def test_steps_that_were_taken_back_do_not_count(self, tmp_path, unpainted):
        lines = [step_line(n, nats_per_base=9.0) for n in range(1, 31)]
        lines += [step_line(n) for n in range(21, 26)]
        record = read_run(write_run(tmp_path / "run", lines))
        assert [line["step"] for line in record.steps] == list(range(1, 26))
        assert [line["nats_per_base"] == 9.0 for line in record.steps] == [True] * 20 + [False] * 5
        _, page = page_of(tmp_path / "run")
        assert page.table["time of computing"] == ["12.5 seconds"]

    def test_the_loss_of_a_skipped_step_is_not_drawn(self, tmp_path, unpainted):
        steps = [step_line(n) for n in range(1, 21)]
        for line in (steps[9], steps[19]):
            line |= {"skipped": "the loss is 50", "nats_per_base": 50.0, "gradient_norm": 900.0}
        run = write_run(tmp_path / "run", steps)
        axes = loss_figure(read_run(run)).axes[0]
        assert np.nanmax(axes.lines[0].get_ydata()) < 1.4
        assert list(axes.lines[-1].get_xdata()) == [10, 20]  # the crosses
        _, page = page_of(run)
        assert page.table["nats per base of training rows, chain"] == ["1.3810 at step 19"]

    def test_a_long_run_is_thinned_by_means_that_reach_over_no_boundary(self, tmp_path):
        losses = 1 + np.random.default_rng(0).random(9000)
        steps = [step_line(n, nats_per_base=x) for n, x in enumerate(losses, start=1)]
        steps[10]["nats_per_base"] = losses[10] = math.nan  # as json writes it
        record = read_run(write_run(tmp_path / "run", steps))
        assert record.boundaries == [40]  # where the objective changes
        curve = loss_figure(record).axes[0].lines[0]
        parts = [*np.array_split(losses[:40], 2), *np.array_split(losses[40:], 299)]  # of 30
        assert np.asarray(curve.get_ydata()) == pytest.approx([np.nanmean(part) for part in parts])
        assert curve.get_xdata()[:2] == pytest.approx([10.5, 30.5])

    def test_no_mean_reaches_over_a_boundary(self, tmp_path):
        steps = [step_line(n, nats_per_base=1.0 + (n > 4001)) for n in range(1, 9001)]
        for line in steps:
            line["phase"] = "first" if line["step"] <= 4001 else "second"
        record = read_run(write_run(tmp_path / "run", steps))
        assert record.boundaries == [40, 4001]  # the objective changes at the one, the name at both
        values = np.asarray(loss_figure(record).axes[0].lines[0].get_ydata())
        assert set(values.tolist()) == {1.0, 2.0}


@pytest.fixture(scope="module")
def manifest():
    return read_manifest(corpus_of_three_sources() / "corpus")


@pytest.fixture
def export(tmp_path):
    torch.manual_seed(0)
    save_model(LlamaForCausalLM(small_config()), tmp_path / "export")
    return tmp_path / "export"


def card_rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[html.unescape(re.sub(r"\\(.)", r"\1", cell.strip())) for cell in row] for row in cells]


class TestCard:
    def test_what_it_says(self, tmp_path, export, manifest):
        run = whole_run(tmp_path / "my run")
        write_card(run, export, corpus_manifest=manifest)
        text = (export / "README.md").read_text()
        assert "# my run\n" in text
        assert "61,440 tokens, in 60 of 60 planned steps" in text
        assert "2 steps were skipped" in text
        assert " ".join(objective_changes(read_run(run))) in text
        rows = card_rows(text)
        assert ["phase", "first", "second"] in rows and ["steps taken", "40", "20"] in rows
        for source, splits in manifest["sources"].items():
            counts = [f"{splits[s][k]:,}" for s in ("train", "test") for k in ("records", "bases")]
            read = "none" if source == "promoter" else "first, second"
            assert [source, *counts, read] in rows
        (region,) = manifest["held_out"]
        assert f"Held out of the assemblies: {region}." in text
        sha = manifest["inputs"][0]["files"][0]["sha256"][:12]
        assert ["Simulata <vulgaris>", "", "CC0|1.0", "genome.fa", sha] in rows
        assert str(tmp_path.parent) not in text and manifest["recipe"]["output"] not in text
        assert ["held-out nats per base, chain", "1.4100", "60"] in rows
        assert ["nats per base of training rows, marginals", "1.3700", "60"] in rows
        assert "not clinical advice" in text.replace("\n", " ")
        assert (export / "curves.png").read_bytes()[:4] == b"\x89PNG"

    def test_workers_of_one_run_say_the_same_of_their_training(self, tmp_path, export, manifest):
        """What differs between them is named by its worker."""
        texts = []
        for number, taken in ((0, 60), (1, 59)):
            run = write_run(tmp_path / f"worker-{number}", [step_line(n) for n in range(1, taken)])
            config = re.sub(r"until = .*", 'until = "tokens"', (run / "config.toml").read_text())
            (run / "config.toml").write_text(f"{config}\n[workers]\ncount = 2\n")
            trained = Work(tokens=60_000, steps=58)
            write_card(run, export, corpus_manifest=manifest, trained=trained)
            text = (export / "README.md").read_text()
            assert "on 60,000 tokens, in 58 of 60 planned steps" in text
            assert f"The last values of worker-{number}." in text
            texts.append(text.partition("## Results")[0].replace(f"worker-{number}", ""))
        assert texts[0] == texts[1]

    def test_the_hub_reads_its_head_and_names_are_escaped(self, tmp_path, export):
        steps = [step_line(1, "a|b <b>")]
        run = write_run(tmp_path / "[x](y) <script>", steps, first="a|b <b>")
        write_card(run, export, corpus_manifest=None)
        text = (export / "README.md").read_text()
        data = ModelCard(text).data.to_dict()
        assert data["library_name"] == "transformers"
        assert (data["license"], data["license_name"]) == ("other", "unknown")
        assert data["pipeline_tag"] == "text-generation" and "dna" in data["tags"]
        assert ["phase", "a|b <b>", "second"] in card_rows(text)
        assert "<script>" not in text and "<b>" not in text and "\\[x\\](y)" in text
        count = sum(p.numel() for p in LlamaForCausalLM(small_config()).parameters())
        assert f"{count:,} parameters" in text
        assert "The corpus came without a manifest" in text

    def test_its_code_runs(self, tmp_path, export, monkeypatch, capsys):
        write_card(whole_run(tmp_path / "run"), export, corpus_manifest=None)
        codes = re.findall(r"```python\n(.*?)```", (export / "README.md").read_text(), re.DOTALL)
        assert len(codes) == 2
        monkeypatch.chdir(export)
        names: dict = {}
        torch.manual_seed(1)
        for code in codes:
            exec(code, names)
        assert names["kmer_logits"].shape == (1, 3, 4096)
        printed = capsys.readouterr().out.splitlines()
        assert re.fullmatch(r"<dna>ATGGCCAAGTAA[ACGT]{60}", printed[0])
        assert float(printed[1]) == pytest.approx(names["score"].nats_per_base)
        assert re.fullmatch(r"\['[ACGT]{60}'\]", printed[2])
        # The logits of the one give the score of the other.
        log_p = names["kmer_logits"][0, :2].log_softmax(dim=1)
        ids = names["inputs"]["input_ids"][0, 1:] - 128
        nats = -log_p.detach()[torch.arange(2), ids].sum()
        assert float(nats) / 12 == pytest.approx(names["score"].nats_per_base, abs=1e-5)
