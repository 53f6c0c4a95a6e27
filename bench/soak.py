"""Send damaged files, requests and kills at Carbon, and count how each trial ends.

    python bench/soak.py [--trials 1000] [--seed 0] [--load-seconds 0] [--serve-seconds 0]

Every trial follows from `--seed`. Nine in ten damage a file and give it to a command that reads
such files; the others send a request to a server, or kill a command and resume it. These endings
are in order:

- `done` or `refused`: the command succeeds, or it ends with a message and exit code 2 (1 for the
  machine), within the time limit, and leaves nothing half-written.
- `equal`: a good request has the same answer as without load, or a command that was killed and
  resumed writes the bytes of an undisturbed run.
- `flat`: with `--load-seconds`, the memory of a server and of a demo under 16 clients grows by at
  most 5 % from a fifth of the time on. With `--serve-seconds`, also the memory of `carbon serve`
  with the bundled model, while 64 clients send equal requests.
- `even`: of these requests, the 99th percentile of the seconds is at most 3 times the median.

All other trials are printed, and the exit code is 1.
"""

import argparse
import io
import itertools
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from carbon import load
from carbon.console import natural, run_command
from carbon.genome import Reference
from carbon.io.files import TEMPORARY
from carbon.model import PRESETS, save_model
from carbon.progress import track
from demo.app import make_panels
from tests.helpers.demo import make_lab
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.finetune import BINARY, motif_rows, untrained_folder, write_rows
from tests.helpers.serve import serving
from tests.helpers.server import asked
from train.models.network import stock_network

_MOST_BYTES = 12 << 30
_LEFTOVER = re.compile(rf"{TEMPORARY.pattern}|.*\.partial")
_ADDRESS = re.compile(r"https?://[\w.:]*\d")
_ODD = (b"\x00", b"\xff", b"\r", b";", b",", b"\t", b"\xc3\xa9", b"#", b'"', b"-9", b"NaN", b"null")
_GROWTH, _NUM_CLIENTS = 1.05, 16
_NUM_EQUAL_CLIENTS, _MOST_SPREAD = 64, 3.0  # the 99th percentile by the median
_IN_ORDER = ("done", "refused", "equal", "flat", "even")
Counts = defaultdict[str, Counter[str]]


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=natural, default=1000)
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument("--limit-seconds", type=float, default=120, help="of a trial")
    parser.add_argument("--load-seconds", type=float, default=0, help="of server and demo each")
    parser.add_argument("--serve-seconds", type=float, default=0, help="of 64 equal clients")
    arguments = parser.parse_args()
    return run_command(lambda: soak(arguments))


def soak(arguments: argparse.Namespace) -> int:
    """Run all trials and print their counts, also if interrupted; return 0 if all are in order."""
    torch.set_num_threads(1)
    counts: Counts = defaultdict(Counter)
    with tempfile.TemporaryDirectory(prefix="carbon-soak-") as folder:
        try:
            if arguments.serve_seconds:
                serve_under_load(arguments.serve_seconds, counts)
            if arguments.trials or arguments.load_seconds:
                _trials(arguments, Path(folder), counts)
        finally:
            endings = sorted({ending for each in counts.values() for ending in each})
            print("what", *endings, sep="\t")
            for what, each in sorted(counts.items()):
                print(what, *(each[ending] for ending in endings), sep="\t")
    return int(any(ending not in _IN_ORDER for ending in endings))


def _trials(arguments: argparse.Namespace, folder: Path, counts: Counts) -> None:
    files, draw = Files(folder), Random(arguments.seed)
    files.check()
    with serving(files.model(), name="soak", reference=files.genome()) as address:
        server = Server(address)
        trials = {"file": files.trial, "request": server.trial, "kill": files.kill}
        for number in track(range(arguments.trials), "trials"):
            kind = draw.choices(list(trials), (90, 5, 5))[0]
            what, ending = trials[kind](draw, arguments.limit_seconds)
            counts[what][ending.partition(":")[0]] += 1
            if ending not in _IN_ORDER:
                print(f"trial {number}: {what}: {ending}", flush=True)
        if seconds := arguments.load_seconds:
            ending = under_load(lambda draw: server.trial(draw, 120), seconds)
            counts["memory of the server"][ending] += 1
    if seconds := arguments.load_seconds:
        counts["memory of the demo"][demo_under_load(folder, seconds)] += 1


# What may happen to a file


def _cut(data: bytes, draw: Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _flipped(data: bytes, draw: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(min(len(data), 8)):
        changed[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(changed)


def _with_odd(data: bytes, draw: Random) -> bytes:
    for _ in range(4):
        place = draw.randrange(len(data) + 1)
        data = data[:place] + draw.choice(_ODD) + data[place:]
    return data


def _with_lines_changed(data: bytes, draw: Random) -> bytes:
    """Repeat, drop or swap lines."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[one : one + draw.randrange(2)] = [lines[other]] * draw.randrange(2)
    return b"".join(lines)


def _with_other_value(data: bytes, draw: Random) -> bytes:
    """Replace a value of JSON or TOML, or a number of a table."""
    values = list(re.finditer(rb'"[^"\n]*"|-?\d[\d.]*|true|false', data))
    if not values:
        return data
    start, end = draw.choice(values).span()
    others = (b"null", b"-1", b"1e999", b"9" * 5000, b'"x"', b"[]", b"{}", b"[" * 500, b"true")
    return data[:start] + draw.choice(others) + data[end:]


DAMAGES: dict[str, Callable[[bytes, Random], bytes]] = {
    "whole": lambda data, draw: data,
    "empty": lambda data, draw: b"",
    "cut": _cut,
    "flipped bytes": _flipped,
    "odd insertions": _with_odd,
    "changed lines": _with_lines_changed,
    "another value": _with_other_value,
    "CRLF": lambda data, draw: data.replace(b"\n", b"\r\n"),
    "byte-order mark": lambda data, draw: b"\xef\xbb\xbf" + data,
    "UTF-16": lambda data, draw: data.decode("latin-1").encode("utf-16"),
    "nested deep": lambda data, draw: b"[" * 10_000 + data,
    "one line": lambda data, draw: data.replace(b"\n", b""),
}


class Reader(NamedTuple):
    """A command, and the file or folder of its input that is damaged.

    Attributes:
        program: `carbon.cli` or the `__main__` module of a package.
        damaged: names of the files, or of folders: a file in the folder is damaged.
        words: of the command; `{in}` and `{out}` are folders.
        takes_pipes: the command waits for the writer of a pipe, as `cat` does.
    """

    program: str
    damaged: tuple[str, ...]
    words: str
    takes_pipes: bool = False

    def command(self, inside: Path, out: Path, file: Path) -> Callable[[], int]:
        """Return the command for a folder of inputs, one for outputs, and the damaged file."""
        words = self.words.format(**{"in": inside, "out": out, "file": file}).split()
        return partial(import_module(self.program).main, words)


_MODEL = "--model {in}/model"
_SCORE = f"score {_MODEL} {{in}}/s.fa"
_VARIANTS = f"variants {_MODEL} --reference {{in}}/g.fa --vcf {{in}}/v.vcf --window 48"
_SCORED = ("x.tsv", "x.json", "x.parquet", "x.vcf")
_CARBON, _BUILDER, _TRAIN = "carbon.cli", "data_pipeline.__main__", "train.__main__"
READERS = {
    "tokenize": Reader(_CARBON, ("s.fa", "s.fq", "s.txt"), "tokenize {file}", takes_pipes=True),
    "score": Reader(_CARBON, ("s.fa", "s.fq"), f"score {_MODEL} {{file}} --output {{out}}/o.json"),
    "model": Reader(_CARBON, ("model",), f"{_SCORE} --output {{out}}/o.tsv"),
    "embed": Reader(_CARBON, ("s.fa",), f"embed {_MODEL} {{file}} --output {{out}}/o.npz"),
    "scan": Reader(
        _CARBON,
        ("g.fa",),
        f"scan {_MODEL} --reference {{file}} --region c:1-60 --output {{out}}/o.bw",
    ),
    "variants": Reader(
        _CARBON, ("v.vcf", "g.fa"), f"{_VARIANTS} --skip-mismatches --output {{out}}/o.vcf"
    ),
    "annotation": Reader(
        _CARBON, ("a.gff3",), f"{_VARIANTS} --annotation {{file}} --output {{out}}/o.tsv"
    ),
    "compare": Reader(_CARBON, _SCORED, "compare {file} {in}/y.tsv --output {out}/o.tsv"),
    "predict": Reader(
        _CARBON,
        ("finetuned", "finetuned/model"),
        "predict --model {in}/finetuned {in}/s.fa --output {out}/o.tsv",
    ),
    "fine-tuning data": Reader(
        _CARBON, ("data.csv", "finetune.toml"), "finetune --config {in}/finetune.toml --dry-run"
    ),
    "corpus": Reader(_BUILDER, ("corpus",), "inspect {in}/corpus"),
    "build": Reader(_BUILDER, ("build.toml",), "build --config {in}/build.toml --dry-run"),
    "train": Reader(_TRAIN, ("train.toml", "corpus"), "--config {in}/train.toml --dry-run"),
    "training run": Reader(
        _TRAIN, ("run",), "summary --config {in}/train.toml --set output={in}/run"
    ),
}


class Files:
    """A folder with one good file for every reader, and trials on copies of it."""

    def __init__(self, folder: Path) -> None:
        """Write the files."""
        self.good, self.work = folder / "good", folder / "work"
        self.good.mkdir()
        with redirect_stdout(io.StringIO()):
            self._write()
        self._whole: dict[str, bytes] = {}

    def _write(self) -> None:
        good = self.good
        torch.manual_seed(0)
        save_model(stock_network(PRESETS["tiny"]()), good / "model")
        untrained_folder(good / "model", BINARY, good / "finetuned")
        bases = random_bases(3000)
        records = {f"s{n}": bases[100 * n : 100 * n + 90] for n in range(20)}
        write_fasta(good / "g.fa", {"c": bases})
        write_fasta(good / "s.fa", records)
        others = {"A": "C", "C": "G", "G": "T", "T": "A"}
        places = range(100, 2900, 100)
        lines = [f"c\t{p}\t.\t{bases[p - 1]}\t{others[bases[p - 1]]}\t.\t.\t." for p in places]
        write_vcf(good / "v.vcf", lines)
        gff = "".join(
            f"c\tx\t{kind}\t1\t300\t.\t+\t{phase}\t{key}\n"
            for kind, phase, key in (
                ("gene", ".", "ID=g"), ("mRNA", ".", "ID=t;Parent=g"), ("CDS", "0", "ID=p;Parent=t")
            )
        )  # fmt: skip
        step = {
            "tokens": 64, "phase": "ce", "objective": "ce", "context_tokens": 64, "loss": 8.0,
            "nats_per_base": 1.4, "marginal_nats_per_base": 1.4, "gradient_norm": 1.0,
            "learning_rate": 1e-3, "tokens_per_second": 100.0, "mfu": None,
        }  # fmt: skip
        (good / "run").mkdir()
        recipe = Path(__file__).parents[1] / "train" / "recipes" / "tiny.toml"
        train = recipe.read_text(encoding="utf-8")
        for key, value in {
            "corpus": f'"{good}/corpus"',
            "output": f'"{good}/run-1"',
            "mixture": "{ genome = 1.0 }",
        }.items():
            train = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", train)
        for name, text in {
            "s.fq": "".join(f"@{name}\n{s}\n+\n{'I' * len(s)}\n" for name, s in records.items()),
            "s.txt": "".join(f"{s}\n" for s in records.values()),
            "a.gff3": f"##gff-version 3\n{gff}",
            "run/metrics.jsonl": "".join(
                f"{json.dumps({'step': n} | step | {'tokens': 64 * n})}\n" for n in range(1, 30)
            ),
            "run/events.jsonl": '{"step": 0, "event": "start", "message": "from step 0"}\n',
            "run/config.toml": train,
            "train.toml": train,
            "build.toml": f'output = "{good}/built"\n[[assemblies]]\ngenome = "{good}/g.fa"\n'
            'sources = ["genome"]\n',
            "finetune.toml": f'model = "{good}/model"\noutput = "{good}/tuned"\n'
            f'[data]\npath = "{good}/data.csv"\nname = "id"\n'
            "[data.split]\nvalidation_share = 0.25\ntest_share = 0.25\n"
            '[task]\ntype = "binary"\n',
            "data.csv": "",
        }.items():
            (good / name).write_text(text, encoding="utf-8")
        write_rows(good / "data.csv", motif_rows(40))
        for name in (*_SCORED, "y.tsv"):
            self._run(_CARBON, f"{_VARIANTS} --output {{in}}/{name}")
        build = f"build --set assemblies.0.genome={good}/g.fa --set output={good}/corpus"
        self._run(_BUILDER, f'{build} --set assemblies.0.sources=["genome"]')

    def _run(self, program: str, words: str) -> None:
        code = import_module(program).main(words.format(**{"in": self.good}).split())
        assert code == 0, words

    def model(self) -> Any:
        """Return the model, loaded."""
        return load(self.good / "model")

    def genome(self) -> Reference:
        """Return the reference genome, opened."""
        return Reference(self.good / "g.fa")

    def _copies(self) -> tuple[Path, Path]:
        """Return a copy of all files, whose settings name the copies, and an empty folder."""
        inside, out = self.work / "in", self.work / "out"
        shutil.copytree(self.good, inside)
        for path in inside.rglob("*.toml"):
            text = path.read_text(encoding="utf-8").replace(str(self.good), str(inside))
            path.write_text(text, encoding="utf-8")
        out.mkdir()
        return inside, out

    def check(self) -> None:
        """Fail unless every reader accepts its undamaged files."""
        for name, reader in READERS.items():
            inside, out = self._copies()
            ending = run_apart(reader.command(inside, out, inside / reader.damaged[0]), out, 300)
            assert ending == "done", f"{name}: {ending}"
            shutil.rmtree(self.work)

    def trial(self, draw: Random, limit_seconds: float) -> tuple[str, str]:
        """Damage one file of one reader's input; return the reader and how it ended."""
        name = draw.choice(list(READERS))
        reader, damage = READERS[name], draw.choice(list(DAMAGES))
        inside, out = self._copies()
        path = inside / draw.choice(reader.damaged)
        file = path if path.is_file() else draw.choice(sorted(filter(Path.is_file, path.iterdir())))
        if draw.random() < 0.02 and not reader.takes_pipes:
            damage = "a pipe"
            file.unlink()
            os.mkfifo(file)
        elif file.suffix == ".safetensors" and draw.random() < 0.5:
            damage = _damage_tensors(file, draw)
        else:
            file.write_bytes(DAMAGES[damage](file.read_bytes(), draw))
        ending = run_apart(reader.command(inside, out, file), out, limit_seconds)
        shutil.rmtree(self.work)
        shown = "" if ending in _IN_ORDER else f" ({damage} in {file.name})"
        return name, f"{ending}{shown and ':'}{shown}"

    def kill(self, draw: Random, limit_seconds: float) -> tuple[str, str]:
        """Kill a command at a random moment, resume it, and compare its bytes."""
        name = draw.choice(["variants", "score", "embed"])
        words = {
            "variants": f"{_VARIANTS} --output {{out}}/o.vcf",
            "score": f"{_SCORE} --output {{out}}/o.tsv",
            "embed": "embed --model {in}/model {in}/s.fa --output {out}/o.parquet",
        }[name]
        out = self.work / "out"
        out.mkdir(parents=True)
        main = import_module("carbon.cli").main
        command = words.format(**{"in": self.good, "out": out}).split()
        start, resume = partial(main, command), partial(main, [*command, "--resume"])
        if name not in self._whole:
            run_apart(start, out, limit_seconds)
            self._whole[name] = _written(out)
            assert self._whole[name], name
            shutil.rmtree(out)
            out.mkdir()
        for _ in range(draw.randint(1, 3)):
            seconds = draw.uniform(0.05, 1.5)
            run_apart(resume if any(out.iterdir()) else start, out, seconds, kill=True)
        if not _written(out):
            run_apart(resume, out, limit_seconds)
        equal = _written(out) == self._whole[name]
        shutil.rmtree(self.work)
        return f"killed {name}", "equal" if equal else "UNEQUAL BYTES"


def _written(out: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(out.glob("o.*")))


def _damage_tensors(file: Path, draw: Random) -> str:
    """Change one tensor of a safetensors file in a way that its format allows."""
    tensors = load_file(file)
    name = draw.choice(sorted(tensors))
    damage = draw.choice(["dropped", "renamed", "another shape", "nan", "inf"])
    if damage == "dropped":
        del tensors[name]
    elif damage == "renamed":
        tensors[f"{name}x"] = tensors.pop(name)
    elif damage == "another shape":
        tensors[name] = torch.zeros(3, 3)
    else:
        tensors[name].view(-1)[0] = float(damage)
    save_file(tensors, file, metadata={"format": "pt"})
    return f"a tensor: {damage}"


# One command in a separate process


def run_apart(main: Callable[[], int], out: Path, seconds: float, *, kill: bool = False) -> str:
    """Run a command in a copy of this process, which has imported everything; return its ending.

    With `kill` it gets SIGKILL after the seconds, and its ending is not judged.
    """
    said = out.with_suffix(".stderr")
    said.touch()
    child = get_context("fork").Process(target=_run_here, args=(main, said))
    child.start()
    child.join(seconds)
    has_ended = child.exitcode is not None
    child.kill()
    child.join()
    lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
    said.unlink()
    return "killed" if kill else _ending(child.exitcode if has_ended else None, lines, out)


def _run_here(main: Callable[[], int], said: Path) -> None:
    """Run the command with its stderr in a file, and exit with its code."""
    with said.open("wb") as sink, open(os.devnull, "r+b") as nothing:
        for target, source in enumerate((nothing, nothing, sink)):
            os.dup2(source.fileno(), target)
    # The copied streams may lead elsewhere, as in a test.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (
        os.fdopen(target, "w", encoding="utf-8", buffering=1, closefd=False) for target in (1, 2)
    )
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
    sys.exit(main())


def _ending(code: int | None, lines: list[str], out: Path) -> str:
    """Return `done` or `refused`, or a fault in capitals."""
    if code is None:
        return "HANG"
    if code < 0:
        return f"CRASH BY SIGNAL {-code}"
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        return f"TRACEBACK: {lines[-1][:200]}"
    left = [path.name for path in out.rglob("*")]
    if any(_LEFTOVER.match(name) for name in left):
        return "LEFTOVERS"
    if code == 0:
        return "done"
    if any(name.startswith("o.") for name in left):
        return "HALF WRITTEN"
    if code not in (1, 2):
        return f"EXIT CODE {code}"
    return "refused" if any(re.match(r"([\w. -]+: )?error: ", line) for line in lines) else "SILENT"


# Requests


class Server:
    """Requests to a running server, good ones and damaged ones."""

    def __init__(self, address: str) -> None:
        """Prepare good requests, with their answers without load."""
        self._address = address
        bases = random_bases(600, 3)
        self._good = [
            ("/score", {"sequences": [bases, bases[:60]]}),
            ("/v1/embeddings", {"input": [bases[:120]]}),
            ("/v1/completions", {"prompt": bases[:60], "length_bp": 12, "seed": 1}),
            ("/variants", {"variants": ["c:500 A>C", "c:501 A>G"], "window_bp": 48}),
        ]
        self._alone: dict[str, tuple[int, Any]] = {}
        for path, body in self._good:
            status, answer = self._post(path, json.dumps(body).encode(), 60)
            self._alone[path] = status, _essence(answer)

    def _post(self, path: str, body: bytes, seconds: float) -> tuple[int, Any]:
        head = {"Content-Type": "application/json"}
        answer = httpx.post(self._address + path, content=body, headers=head, timeout=seconds)
        return answer.status_code, answer.json()

    def trial(self, draw: Random, limit_seconds: float) -> tuple[str, str]:
        """Send one request, whole or damaged."""
        path, body = draw.choice(self._good)
        damage = draw.choice(list(DAMAGES))
        content = json.dumps(body).encode()
        damaged = DAMAGES[damage](content, draw)
        try:
            status, answer = self._post(path, damaged, limit_seconds)
        except httpx.TimeoutException:
            return path, f"HANG: {damage}"
        except (httpx.HTTPError, ValueError) as error:
            return path, f"NO ANSWER: {damage}: {error}"
        if damaged == content:
            return path, "equal" if (status, _essence(answer)) == self._alone[path] else "UNEQUAL"
        if status == 200:
            return path, "done"
        is_error = 400 <= status < 500 and bool(answer.get("error", {}).get("message"))
        return path, "refused" if is_error else f"STATUS {status}: {damage}"


_PAGES = ("variant", "gene", "write", "inside")
"""Pages of the demo whose main field takes a sequence."""


def demo_under_load(folder: Path, seconds: float) -> str:
    """Ask the pages of a demo about sequences that differ; return whether its memory stays flat."""
    home = folder / "demo"
    home.mkdir()
    lab = make_lab(home, load(folder / "good" / "model"))
    fields = {panel.name: panel.fields for panel in make_panels(lab)}
    words = f"demo --model {home}/model --genome {home}/genome.fa --annotation {home}/genes.gff3"
    unlimited = f"--port 0 --calls-per-minute {10**6}"
    with _server_apart(*words.split(), *unlimited.split()) as (address, pid):

        def ask(draw: Random) -> None:
            name, bases = draw.choice(_PAGES), draw.choices("ACGT", k=draw.randint(24, 300))
            given = {"input": "".join(bases), "length_bp": 24}
            asked(address, name, [given.get(field.name, field.default) for field in fields[name]])

        return under_load(ask, seconds, pid=pid)


@contextmanager
def _server_apart(*words: str) -> Iterator[tuple[str, str]]:
    """Run a server in another process; yield its address and process ID."""
    command = [sys.executable, "-m", "carbon", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            lines = iter(process.stderr.readline, "")
            address = next(filter(None, map(_ADDRESS.search, lines)), None)
            assert address, f"the server of `carbon {words[0]}` did not start"
            yield address[0], str(process.pid)
        finally:
            process.terminate()


def serve_under_load(seconds: float, counts: Counts) -> None:
    """Send equal requests from 64 clients to `carbon serve`; count how they and the server end."""
    body = {"sequences": [random_bases(600, 3)]}
    took: list[float] = []
    endings: list[str] = []
    with (
        _server_apart("serve", "--model", "yeast", "--port", "0") as (address, pid),
        httpx.Client(timeout=120, limits=httpx.Limits(max_connections=None)) as client,
    ):

        def answer_to(body: dict[str, list[str]]) -> Any:
            return client.post(f"{address}/score", json=body).raise_for_status().json()

        alone = _essence(answer_to(body))
        # The largest batch, after which memory has no reason to grow.
        answer_to({"sequences": body["sequences"] * _NUM_EQUAL_CLIENTS})

        def ask(draw: Random) -> None:
            begin = time.monotonic()
            try:
                answer = answer_to(body)
            except (httpx.HTTPError, ValueError):
                endings.append("LOST")
                return
            took.append(time.monotonic() - begin)
            endings.append("equal" if _essence(answer) == alone else "UNEQUAL")

        flat = under_load(ask, seconds, _NUM_EQUAL_CLIENTS, pid)
    counts["requests of 64 clients"].update(endings)
    counts["memory of carbon serve"][flat] += 1
    if took:
        median, high = np.percentile(took, (50, 99))
        print(
            f"{len(took) / seconds:.0f} a second: median {median:.3f} s, 99 % within {high:.3f} s"
        )
        even = "even" if high <= _MOST_SPREAD * median else "UNEVEN"
        counts["seconds of 64 clients"][even] += 1


def under_load(
    ask: Callable[[Random], object],
    seconds: float,
    num_clients: int = _NUM_CLIENTS,
    pid: str = "self",
) -> str:
    """Ask from many clients at once; return whether the memory of a process stays flat."""
    end, sizes, questions = time.monotonic() + seconds, [], itertools.count()

    def client(number: int) -> None:
        draw = Random(number)
        while time.monotonic() < end:
            ask(draw)
            next(questions)

    threads = [threading.Thread(target=client, args=(n,), daemon=True) for n in range(num_clients)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        time.sleep(seconds / 50)
        sizes.append(_resident_mb(pid))
    for thread in threads:
        thread.join()
    fifth = len(sizes) // 5
    first, last = np.median(sizes[fifth : fifth + 5]), np.median(sizes[-5:])
    quarters = ", ".join(f"{sizes[len(sizes) * n // 4 - 1]:.0f}" for n in (1, 2, 3, 4))
    print(f"memory under load: {first:.0f} MB after a fifth of the time, {last:.0f} MB at the end")
    print(f"memory after each quarter of the time: {quarters} MB; {next(questions):,} questions")
    return "flat" if last <= _GROWTH * first else "GROWS"


def _essence(answer: Any) -> Any:
    """Return an answer without times and names, numbers rounded to five digits."""
    if isinstance(answer, dict):
        return {k: _essence(v) for k, v in answer.items() if k not in ("id", "created")}
    if isinstance(answer, list):
        return [_essence(each) for each in answer]
    return float(f"{answer:.4g}") if isinstance(answer, float) else answer


def _resident_mb(pid: str) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    raise SystemExit(main())
