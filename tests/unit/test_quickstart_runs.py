"""The quickstart: what it refuses, what it leaves, what is seen of a command; one small whole."""

import gzip
import importlib
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest

from scripts.quickstart_commands import Ended, Screen

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Return what starts a quickstart in a folder, with steps that `ends` says the end of."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.chdir(tmp_path)
    quickstart = importlib.import_module("quickstart")

    def started(*words, ends=None):
        ran = []

        def run_python(given, *_, **options):
            is_corpus = given[2] == "corpus"
            ran.append("corpus" if is_corpus else given[1])
            step = (ends or {}).get(given[3 if is_corpus else 2], Ended(0))
            if isinstance(step, BaseException):
                raise step
            return step

        monkeypatch.setattr(quickstart, "run_python", run_python)
        monkeypatch.setattr(quickstart.Quickstart, "_training", lambda self: {"seed": 0})
        monkeypatch.setattr(quickstart.Quickstart, "_write_results", lambda self: None)
        monkeypatch.setattr(sys, "argv", ["quickstart", *words])
        return quickstart.main(), ran

    return started


def folder_of(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def test_a_finished_one_is_left_alone(start, tmp_path, capsys):
    code, ran = start()
    assert code == 0 and len(ran) == 6  # no variants: there is no genome to have any
    output = tmp_path / "quickstart"
    (output / "run").mkdir()
    (output / "run" / "model").write_text("trained")
    before = folder_of(output)
    capsys.readouterr()
    assert start() == (0, [])
    assert capsys.readouterr().err.startswith(f"finished already: report {output}/report.html")
    assert folder_of(output) == before


def test_it_is_told_what_differs(start, tmp_path, capsys):
    start("--minutes", "5")
    before = folder_of(tmp_path)
    assert start("--seed", "9", "--set", "phases.0.tokens=500000") == (2, [])
    told = capsys.readouterr().err.splitlines()[-1]
    for differs in ("--minutes was 5.0, is not", "--seed was 0, is 9", "is phases.0.tokens=500000"):
        assert differs in told
    assert folder_of(tmp_path) == before


def test_a_file_is_the_same_by_any_name(start, tmp_path, capsys):
    genome = tmp_path / "genome.fa"
    genome.write_text(">1\nACGT\n")
    (tmp_path / "link.fa").symlink_to(genome)
    (tmp_path / "other").mkdir()
    assert start("--genome", "genome.fa", "--output", "q")[0] == 0
    assert start("--genome", "link.fa", "--output", "q") == (0, [])
    elsewhere = ("--genome", str(tmp_path / "other" / ".." / "genome.fa"))
    assert start(*elsewhere, "--output", str(tmp_path / "q")) == (0, [])
    genome.write_text(">1\nACGTACGT\n")
    assert start("--genome", "genome.fa", "--output", "q") == (2, [])
    told = capsys.readouterr().err.splitlines()[-1]
    assert f"--genome was {genome} (8 bytes of " in told and f"is {genome} (12 bytes of " in told


def test_other_minutes_before_the_training_is_done(start, capsys, tmp_path):
    """The training begins anew, which is told; what stands before it stays."""
    assert start("--minutes", "9", ends={"--standalone": KeyboardInterrupt()})[0] == 130
    (tmp_path / "quickstart" / "run").mkdir()
    code, ran = start("--minutes", "3")
    told = capsys.readouterr().err
    assert code == 0 and "corpus" not in ran
    assert "other --minutes: the training begins anew\n" in told
    assert not (tmp_path / "quickstart" / "run").exists()


def test_ctrl_c_is_told_once_and_last(start, capsys):
    assert start(ends={"build": KeyboardInterrupt()})[0] == 130
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("about seven minutes") and told[-1].startswith("interrupted")
    assert sum("interrupted" in line for line in told) == 1


def test_minutes_are_told_before_anything_runs(start, tmp_path, capsys):
    (tmp_path / "g.fa").write_text(">1\nACGT\n")
    start("--genome", "g.fa", ends={"build": Ended(2)})
    assert capsys.readouterr().err.startswith("about 20 minutes")
    assert not (tmp_path / "quickstart").exists()


def test_why_there_are_no_variants_is_a_sentence(start, tmp_path, capsys):
    for name in ("g.fa", "a.gff3"):
        (tmp_path / name).write_text("x")
    said = "scoring\nerror: a.gff3: no coding transcript\n"
    words = ("--genome", "g.fa", "--annotation", "a.gff3")
    code, ran = start(*words, ends={"variants": Ended(2, said)})
    told = capsys.readouterr().err
    assert code == 0 and "eval" in ran
    assert "no variants of known effect: a.gff3: no coding transcript" in told
    assert "error" not in told
    code, _ = start("--genome", "g.fa", "--output", "other")
    assert code == 0
    assert "no variants of known effect: no annotation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--annotation", "a.gff3"], "--genome"),
        (["--genome", "absent.fa"], "--genome absent.fa: no such file"),
        (["--genome", "absent.fa", "--annotation", "a.gff3"], "absent.fa"),
        (["--genome", "g.fa", "--contigs", "absent.tsv"], "--contigs absent.tsv"),
        (["--genome", "g.fa", "--annotation", "absent.gff3"], "--annotation absent.gff3"),
        (["--minutes", "0"], "more than 0"),
        (["--processes", "0"], "1 or more"),
        (["--processes", "3"], "16 rows"),
        (["--set", "phases.0.tokns=5"], "'tokens'"),
        (["--set", "output=x"], "output"),
    ],
)
def test_mistakes_leave_nothing_behind(start, tmp_path, capsys, words, message):
    for name in ("g.fa", "a.gff3"):
        (tmp_path / name).write_text("x")
    before = folder_of(tmp_path)
    assert start(*words) == (2, [])
    (line,) = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error")]
    assert message in line and folder_of(tmp_path) == before


def in_this_process(words, log, *, results=None, **_):
    """Run the command of a step where we are; what trains is one process."""
    module, *argv = words[len(words) - words[::-1].index("-m") :]
    entry = "carbon.cli" if module == "carbon.cli" else f"{module}.__main__"
    with results.open("w") if results else io.StringIO() as printed, redirect_stdout(printed):
        return Ended(importlib.import_module(entry).main(argv))


def test_the_steps_lead_from_nothing_to_a_report(tmp_path, monkeypatch, capsys):
    """As commands that are called, on the smallest genome that has all that they need."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    quickstart = importlib.import_module("quickstart")
    monkeypatch.setattr(quickstart, "run_python", in_this_process)
    monkeypatch.chdir(tmp_path)
    less = ["--genome-bp", "60000", "--variants", "30", "--sites", "20", "--processes", "1"]
    for stage, tokens in enumerate((2560, 1024)):
        for setting in (f"tokens={tokens}", "context_tokens=128", "batch_rows=4"):
            less += ["--set", f"phases.{stage}.{setting}"]
    less += ["--set", "phases.0.warmup_steps=1"]
    monkeypatch.setattr(sys, "argv", ["quickstart", *less])
    assert quickstart.main() == 0
    output = tmp_path / "quickstart"
    results = json.loads((output / "results.json").read_text())
    assert results["switch_step"] == 6  # 2,560 tokens are 5 batches of 4 x 128
    assert 1.3 < results["nats_per_base_start"] < 1.45 and results["variant_auroc"] is not None
    assert 1 < results["heldout_nats_per_base"] < 2 and 0 <= results["sequence_recovery"] <= 1
    page = (output / "report.html").read_text()
    assert page.count("<svg") == 3 and "Generated" in page
    with gzip.open(output / "scored.vcf.gz", "rt") as lines:
        assert sum("CARBON_DELTA=" in line for line in lines if line[0] != "#") > 5
    assert capsys.readouterr().out.splitlines()[0] == f"report: {output}/report.html"


def test_the_reason_is_the_line_of_the_error():
    assert Ended(2, "a\nerror: b: c; d\n").reason == "b: c; d"
    assert Ended(1, "Killed\n").reason == "Killed"


DRIVER = """
import sys
import threading
from pathlib import Path
sys.path.insert(0, "scripts")
from quickstart_commands import run_python
try:
    ended = run_python([sys.argv[1]], Path(sys.argv[2]), on_the_side=sys.argv[3] == "side")
    print(ended.code, repr(ended.said))
except KeyboardInterrupt:
    print("ours", file=sys.stderr)
"""
WAITS = """
import sys, time
print("a bar" if sys.stderr.isatty() else "lines", file=sys.stderr, flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("theirs", file=sys.stderr, flush=True)
    time.sleep(0.2)  # as a large program takes to end
"""


def driver(script: Path, log: Path, where: str, stderr: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(script), str(log), where],
        cwd=ROOT, env=os.environ | {"COLUMNS": "80"}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=stderr, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(("pair", "seen"), [(os.pipe, "lines"), (os.openpty, "a bar")])
def test_behind_ctrl_c_a_command_is_not_heard(tmp_path, pair, seen):
    """The signal reaches both, as from a terminal; what was said before it was passed on."""
    reader, writer = pair()
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    process = driver(script, tmp_path / "log", "screen", writer)
    os.close(writer)
    told, end = b"", time.monotonic() + 300
    while seen.encode() not in told.partition(b"\n")[2]:
        assert time.monotonic() < end
        told += os.read(reader, 4096)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    with suppress(OSError):  # how a terminal says that nobody writes to it any longer
        while more := os.read(reader, 4096):
            told += more
    os.close(reader)
    text = told.decode().replace("\r", "").replace("\x1b[?25h", "")
    lines = [line for line in text.splitlines() if line]
    assert lines[0].startswith("  $ python ") and len(lines[0]) <= 80
    assert lines[1:] == [seen, "ours"]
    assert (b"\x1b[?25h" in told) == (pair is os.openpty)  # a bar has hidden the cursor


class SlowTerminal(io.BytesIO):
    def __init__(self):
        super().__init__()
        self.is_writing = threading.Event()

    def write(self, said):
        self.is_writing.set()
        time.sleep(0.3)
        return super().write(said)


def test_a_line_that_is_being_passed_on_is_ended_too(monkeypatch):
    slow = SlowTerminal()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(slow))
    with Screen() as screen:
        os.write(screen.writer, b"half a line")
        assert slow.is_writing.wait(300)
        screen.hide()
    assert slow.getvalue() == b"half a line\n"


def test_what_runs_on_the_side_is_in_the_log(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    script = tmp_path / "a script.py"
    script.write_text("import sys; print('out', flush=True); sys.exit('error: why')")
    process = driver(script, log, "side", subprocess.PIPE)
    printed, told = process.communicate(timeout=300)
    assert printed == "1 'out\\nerror: why\\n'\n"
    (line,) = told.splitlines()
    assert line.startswith("  $ python ")
    command = [f"$ python {shlex.quote(str(script))}"]
    assert log.read_text().splitlines() == ["before", *command, "out", "error: why"]


@pytest.mark.parametrize(("given", "threads"), [(None, "4"), ("1", "1")])
def test_cores_are_shared_out_unless_the_environment_says_otherwise(given, threads, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    quickstart = importlib.import_module("quickstart")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert quickstart.threads_of(2) == {"OMP_NUM_THREADS": threads}
