"""Speed and memory as ratios, side by side in one run: `python bench/run.py NAME|all [--quick]`.

Prints a table and writes `bench/results/NAME.json`, a list of `{name, value, unit, target, holds}`
with the machine and the versions. One thread, so that a ratio means one core.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from timing import seconds
from tokenizers import Tokenizer

from carbon.losses import head_loss, log_likelihoods, nucleotide_loss
from carbon.objectives import FNS
from carbon.tokenizer import decode, encode, encode_batch, encode_kmers, save_stock_tokenizer

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number; `target` None where there is none to reach."""

    name: str
    value: float
    unit: str
    target: float | None = None
    holds: bool | None = None


def tokenizer(quick: bool) -> list[Measure]:
    """Encoding and decoding in bases a second, beside what people write and beside memcpy."""
    size = 6_000_000 if quick else 48_000_000
    letters = np.random.default_rng(0).choice(np.frombuffer(b"ACGT", dtype=np.uint8), size)
    data = letters.tobytes()
    text = data.decode()
    encoding = encode(data)
    some = text[: size // 50]
    reads = [data[at : at + 150] for at in range(0, size // 10, 150)]
    few = [text[at : at + 6_000] for at in range(0, 60_000, 6_000)]
    with tempfile.TemporaryDirectory() as folder:
        save_stock_tokenizer(folder)
        stock = Tokenizer.from_file(f"{folder}/tokenizer.json")

    def speed(bases: int, work: Callable[[], object]) -> float:
        return bases / seconds(work, 3) / 1e6

    encoded = speed(size, lambda: encode(data))
    of_str, of_numpy = (speed(size, partial(encode, form)) for form in (text, letters))
    decoded = speed(size, lambda: decode(encoding))
    loop = speed(len(some), lambda: _encode_by_loop(some))
    bare = speed(len(some), lambda: [_INDEX[some[i : i + 6]] for i in range(0, len(some) - 5, 6)])
    word_level = speed(60_000, lambda: [stock.encode(part) for part in few])
    peaks = [_peak_of_streaming(bases) for bases in (20_000_000, 200_000_000)]
    growth = peaks[1] / peaks[0]
    return [
        Measure("encode_bytes", encoded, "MB/s", 300, encoded >= 300),
        Measure("encode_str", of_str, "MB/s", 300, of_str >= 300),
        Measure("encode_numpy", of_numpy, "MB/s", 300, of_numpy >= 300),
        Measure("kmers_alone", speed(size, lambda: encode_kmers(data)), "MB/s"),
        Measure("decode", decoded, "MB/s", 300, decoded >= 300),
        Measure("batch_of_150_bp", speed(150 * len(reads), lambda: encode_batch(reads)), "MB/s"),
        Measure("loop_over_chunks", loop, "MB/s"),
        Measure("encode_against_loop", encoded / loop, "times", 50, encoded >= 50 * loop),
        Measure("bare_dictionary_loop", bare, "MB/s"),
        Measure("word_level_of_tokenizers", word_level, "MB/s"),
        Measure("memcpy", speed(size, letters.copy), "MB/s"),
        Measure("tokenize_peak_at_200_Mbp", peaks[1] / 2**20, "MiB"),
        Measure("peak_at_200_against_20_Mbp", growth, "times", 1.1, growth <= 1.1),
    ]


# The peak of this program's own memory: that of getrusage counts what its parent had as well.
_PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if "VmHWM" in line).split()[1])
"""
_INDEX = {"".join(bases): i for i, bases in enumerate(itertools.product("ATCG", repeat=6))}


def _encode_by_loop(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Do for each chunk what `encode` gives: its id, its 6-mer and its mask, as arrays."""
    ids, kmers, known = [], [], []
    for at in range(0, len(text), 6):
        chunk = text[at : at + 6].upper()
        index = _INDEX.get(chunk.ljust(6, "A"))
        ids.append(1 if index is None else index + 128)
        kmers.append(index or 0)
        known.append(0 if index is None else (1 << len(chunk)) - 1)
    return np.array(ids), np.array(kmers), np.array(known, dtype=np.uint8)


def _peak_of_streaming(bases: int) -> int:
    """Return the peak of resident memory of `carbon tokenize` on one contig of one line."""
    code = (
        f"{_PEAK}import sys; from carbon.cli import main; sys.stdout = open('/dev/null', 'w')\n"
        "main(['tokenize'])\n"
        "print(peak(), file=sys.__stdout__)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b">contig\n")
    block = np.random.default_rng(0).choice(np.frombuffer(b"ACGT", dtype=np.uint8), 1_000_000)
    for _ in range(bases // len(block)):
        process.stdin.write(block.tobytes())
    process.stdin.close()
    return int(process.stdout.read())


def _loss_step(kind: str, num_tokens: int, width: int) -> Callable[[], object]:
    """Return forward and backward of head and loss, from hidden states of `width`."""
    generator = torch.Generator().manual_seed(0)
    rows = 155_776 if kind == "masked_sums_of_vocabulary" else 4096
    first = 151_672 if rows > 4096 else 0
    hidden = torch.randn(num_tokens, width, generator=generator, requires_grad=True)
    weight = (torch.randn(rows, width, generator=generator) / width**0.5).requires_grad_()
    kmers = torch.randint(4096, (num_tokens,), generator=generator)
    known = torch.ones(num_tokens, 6, dtype=torch.bool)
    digits = torch.arange(4096)[:, None] // 4 ** torch.arange(5, -1, -1) % 4

    def masked_sums() -> torch.Tensor:
        p = (hidden @ weight.T).softmax(dim=1)[:, first : first + 4096]
        total = torch.zeros(())
        for j in range(6):
            sums = torch.stack([p[:, digits[:, j] == b].sum(dim=1) for b in range(4)], dim=1)
            total = total - sums.gather(1, digits[kmers, j][:, None]).log().sum() / 6
        return total

    def of_logits() -> torch.Tensor:
        return nucleotide_loss(log_likelihoods(hidden @ weight.T, kmers), known, FNS).loss

    losses: dict[str, Callable[[], torch.Tensor]] = {
        "fused": lambda: head_loss(hidden, weight, kmers, known, FNS).loss,
        "fns": of_logits,
        "ce": lambda: torch.nn.functional.cross_entropy(hidden @ weight.T, kmers, reduction="sum"),
        "masked_sums": masked_sums,
        "masked_sums_of_vocabulary": masked_sums,
    }

    def step() -> None:
        hidden.grad = weight.grad = None
        losses[kind]().backward()  # type: ignore[no-untyped-call]

    return step


def _peak_bytes(kind: str, num_tokens: int, width: int) -> int:
    """Return the peak of resident memory of one step in a process of its own.

    A step of 128 tokens goes before, so that what torch loads at first use (75 MiB for a custom
    operator) is not counted as the loss's.
    """
    code = (
        f"{_PEAK}import sys, torch; torch.set_num_threads(1); sys.path.insert(0, 'bench')\n"
        f"from run import _loss_step; _loss_step({kind!r}, 128, {width})()\n"
        f"step = _loss_step({kind!r}, {num_tokens}, {width})\n"
        "before = peak(); step()\n"
        "print(peak() - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=RESULTS.parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


def losses(quick: bool) -> list[Measure]:
    """Forward and backward of head and loss: CE, FNS, FNS fused, FNS as 24 masked sums."""
    widths, lengths = ((512,), (2048,)) if quick else ((512, 1536, 3072), (2048, 8192, 32_768))
    sizes = [(num_tokens, width) for width in widths for num_tokens in lengths]
    measures = []
    for num_tokens, width in sizes:
        at = f"{num_tokens}x{width}"
        kinds = ["fused", "fns", "ce"] + (["masked_sums"] if num_tokens == 2048 else [])
        took = {k: seconds(_loss_step(k, num_tokens, width), 3) for k in kinds}
        peak = {k: _peak_bytes(k, num_tokens, width) for k in kinds}
        measures += [
            _ratio(f"fns_time_against_ce_{at}", took["fns"] / took["ce"], 1.1),
            _ratio(f"fns_peak_against_ce_{at}", peak["fns"] / peak["ce"], 1.1),
            _ratio(f"fused_time_against_fns_{at}", took["fused"] / took["fns"], 1.05),
            _ratio(
                f"fused_peak_against_fns_{at}",
                peak["fused"] / peak["fns"],
                0.25 if num_tokens == 32_768 else None,
            ),
            Measure(f"fused_tokens_per_second_{at}", num_tokens / took["fused"], "1/s"),
        ]
        if "masked_sums" in kinds:
            times = took["masked_sums"] / took["fused"]
            measures.append(_ratio(f"masked_sums_time_against_fused_{at}", times, None))
    kind, num_tokens, width = "masked_sums_of_vocabulary", 512, 512
    step, fused = (_loss_step(k, num_tokens, width) for k in (kind, "fused"))
    times = seconds(step, 1) / seconds(fused, 3)
    peaks = _peak_bytes(kind, num_tokens, width) / _peak_bytes("fused", num_tokens, width)
    return [
        *measures,
        _ratio("vocabulary_masked_sums_time_against_fused_512x512", times, None),
        _ratio("vocabulary_masked_sums_peak_against_fused_512x512", peaks, None),
    ]


def data_pipeline(quick: bool) -> list[Measure]:
    """Building a corpus beside the loop that one would write first, and beside reading alone."""
    data = Path(os.environ.get("CARBON_DATA", ""))
    measures: list[Measure] = []
    for name, (genome, annotation) in _GENOMES.items():
        files = (str(data / genome), str(data / annotation))
        if not Path(files[0]).is_file():
            raise SystemExit(f"{files[0]}: no such file; CARBON_DATA names the folder of genomes")
        with tempfile.TemporaryDirectory() as folder:
            ours, peak = _in_own_process(f"build_corpus({files!r}, {folder!r} + '/c')")
            near, _ = _in_own_process(f"build_corpus({files!r}, {folder!r} + '/n', 0.9)")
            loop, loop_peak = _in_own_process(f"biopython_corpus(*{files!r}, Path({folder!r}))")
        reading, _ = _in_own_process(f"read_all({files!r})")
        size_mbp = _MBP[name]
        measures += [
            Measure(f"{name}_build", size_mbp / ours, "Mbp/s"),
            Measure(f"{name}_build_with_near_duplicates", size_mbp / near, "Mbp/s"),
            Measure(f"{name}_build_against_biopython", loop / ours, "times", 5, loop >= 5 * ours),
            Measure(f"{name}_build_against_reading", ours / reading, "times"),
            Measure(f"{name}_peak", peak / 2**20, "MiB"),
            Measure(f"{name}_peak_of_biopython", loop_peak / 2**20, "MiB"),
        ]
    size_bp = 100_000_000 if quick else 1_000_000_000
    with tempfile.TemporaryDirectory() as folder:
        files = _one_long_contig(Path(folder), size_bp)
        took, peak = _in_own_process(f"build_corpus({files!r}, {folder!r} + '/c')")
    holds = peak < 2 * 2**30
    measures += [
        Measure(f"contig_of_{size_bp // 10**6}_Mbp_peak", peak / 2**20, "MiB", 2048, holds),
        Measure(f"contig_of_{size_bp // 10**6}_Mbp", size_bp / 1e6 / took, "Mbp/s"),
    ]
    return measures


_GENOMES = {
    "yeast": (
        "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
        "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
    ),
    "ecoli": (
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.fna.gz",
        "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.gff.gz",
    ),
}
_MBP = {"yeast": 12.157105, "ecoli": 4.641652}


def _one_long_contig(folder: Path, size_bp: int) -> tuple[str, str]:
    """Write a FASTA of one contig, and a gene of 3,000 bases every 100 kbp."""
    genome, annotation = folder / "genome.fa", folder / "genes.gff3"
    generator = np.random.default_rng(0)
    with genome.open("wb") as sink:
        sink.write(b">c\n")
        for _ in range(size_bp // 10_000_000):
            letters = generator.choice(np.frombuffer(b"ACGT", dtype=np.uint8), (100_000, 100))
            lines = np.full((100_000, 101), ord("\n"), dtype=np.uint8)
            lines[:, :100] = letters
            sink.write(lines.tobytes())
    with annotation.open("w") as sink:
        for i, at in enumerate(range(50_000, size_bp, 100_000)):
            sink.write(f"c\tx\tgene\t{at}\t{at + 2999}\t.\t+\t.\tID=g{i}\n")
            sink.write(f"c\tx\tCDS\t{at}\t{at + 2999}\t.\t+\t0\tID=p{i};Parent=g{i}\n")
    return str(genome), str(annotation)


def _in_own_process(work: str, module: str = "curation") -> tuple[float, int]:
    """Return the seconds and the peak of resident memory of a call of one of these scripts."""
    code = (
        f"{_PEAK}import os, sys, time; from pathlib import Path; sys.path[:0] = ['bench', '.']\n"
        f"from {module} import *; sys.stderr = open(os.devnull, 'w'); start = time.perf_counter()\n"
        f"{work}\nprint(time.perf_counter() - start, peak())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=RESULTS.parents[1],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    took, peak = done.stdout.splitlines()[-1].split()
    return float(took), int(peak)


def corpus(quick: bool) -> list[Measure]:
    """The data order, the loader beside `datasets`, and a corpus of 10^9 records."""
    import order as trials

    count = 50 if quick else 400
    lookups, far = trials.lookups()
    with tempfile.TemporaryDirectory() as folder:
        path = trials.write_records(Path(folder) / "records.parquet")
        rows = trials.rows_of(path, folder)
        ours = trials.loaded_tokens_per_second(rows, count)
        usual = trials.datasets_tokens_per_second(path, count)
        wasted = 100 * trials.wasted_share(rows)
    records = 10**7 if quick else 10**9
    with tempfile.TemporaryDirectory(dir=os.environ.get("CARBON_BENCH_FOLDER")) as folder:
        trials.write_large_source(Path(folder), records)
        took, _ = _in_own_process(f"open_large_source({folder!r})", "order")
        batch, peak = _in_own_process(f"read_large_batch({folder!r})", "order")
    return [
        Measure("lookups", lookups, "1/s", 1e6, lookups >= 1e6),
        Measure("row_10^9_against_row_0", far, "times", 1.5, far <= 1.5),
        Measure("loader", ours, "tok/s", 5e6, ours >= 5e6),
        Measure("datasets", usual, "tok/s"),
        Measure("loader_against_datasets", ours / usual, "times"),
        Measure("wasted_tokens", wasted, "%", 2, wasted <= 2),
        Measure(f"{records:.0e}_records:start", took, "s", 5, took <= 5),
        Measure(f"{records:.0e}_records:256_rows", batch, "s"),
        Measure(f"{records:.0e}_records:memory", peak / 2**20, "MiB", 500, peak <= 500 * 2**20),
    ]


def train(quick: bool) -> list[Measure]:
    """A step beside `transformers.Trainer`, a save, and the idle share of every schedule."""
    import training as trials

    from train.choices.pipeline_schedules import PIPELINE_SCHEDULES
    from train.config import ParallelConfig
    from train.planning.planner import idle_share

    steps = 5 if quick else 20
    schedules = [ParallelConfig(pipeline=2, schedule=name) for name in PIPELINE_SCHEDULES]
    with tempfile.TemporaryDirectory() as folder:
        config = trials.config_of(Path(folder))
        ours, usual = trials.our_speed(config, steps), trials.usual_speed(config, steps)
        visible, whole = trials.save_seconds(config)
        mini = trials.config_of(Path(folder) / "mini", "model.preset=mini")
        shares = trials.idle_shares(mini, schedules, 3 if quick else 8)
    measures = [
        Measure("tokens_per_second", ours, "tok/s"),
        Measure("transformers_trainer", usual, "tok/s"),
        Measure("against_transformers_trainer", ours / usual, "times", 1.5, ours >= 1.5 * usual),
        Measure("save:visible", 1000 * visible, "ms"),
        Measure("save:whole", 1000 * whole, "ms"),
    ]
    count = trials.BATCH_ROWS // trials.MICROBATCH_ROWS
    for schedule, share in zip(schedules, shares, strict=True):
        expected = idle_share(schedule, count)
        holds = abs(share - expected) <= 0.1 * expected
        measures.append(
            Measure(f"idle:{schedule.schedule}", 100 * share, "%", 100 * expected, holds)
        )
    return measures


def inference(quick: bool) -> list[Measure]:
    """Variants, scans and generation beside plain loops; where the time goes."""
    import inference as trials

    mini = trials.random_model("mini")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference = trials.random_reference(folder, 120_000)
        some = trials.centered(mini, reference, 2 if quick else 4, 1 if quick else 3)
        speed, difference = some["in_full"] / some["seconds"], some["difference_nats"]
        dense = trials.dense_panel(mini, reference, 12 if quick else 300)
        long = trials.random_reference(folder, 2_000_000)
        scans = trials.scans(mini, reference, long, 1 if quick else 3)
        panel = trials.real_panel(folder, 200 if quick else 5000)
        texts = trials.generation(mini, 4 if quick else 16, 60 if quick else 300, 1 if quick else 3)
    most_bp = 300_000 if quick else 1_000_000
    (_, some_bytes), (took, most_bytes) = (
        _in_own_process(f"scan_random({n})", "inference") for n in (100_000, most_bp)
    )
    measures = [
        Measure("centered:against_both_in_full", speed, "times", 1.9, speed >= 1.9),
        Measure("centered:difference", difference, "nats", 1e-4, difference <= 1e-4),
        Measure("dense_panel:against_both_in_full", dense["in_full"] / dense["seconds"], "times"),
        Measure("right_end:one_by_one", scans["right_end_seconds"], "s/variant"),
        Measure("right_end:difference", scans["difference_nats"], "nats", 1e-4,
                scans["difference_nats"] <= 1e-4),
    ]  # fmt: skip
    for frames, target in ((1, 30_000), (6, 5_000)):
        tokens = (trials.RIGHT_END_BP // 6 + 1) / scans[f"tokens_a_variant:{frames}"]
        faster = scans["right_end_seconds"] / scans[f"seconds_a_variant:{frames}"]
        measures += [
            Measure(
                f"scan:{frames}_frames:fewer_tokens", tokens, "times", target, tokens >= target
            ),
            Measure(f"scan:{frames}_frames:faster", faster, "times", target, faster >= target),
        ]
    if panel is None:
        print("CARBON_DATA names no folder: the panel of real variants is left out")
    else:
        measures += [
            Measure("real_panel:tiny_1024_bp", panel["variants"] / panel["seconds"], "variants/s"),
            Measure("real_panel:in_the_network", 100 * panel["network_share"], "%"),
            Measure("real_panel:in_head_and_chain", 100 * panel["head_share"], "%"),
        ]
    ratio = texts["base"] / texts["token"]
    return [
        *measures,
        Measure("generate:token", texts["token"], "bp/s"),
        Measure("generate:base_against_token", ratio, "times", 0.95, ratio >= 0.95),
        Measure("generate:batch_against_single", texts["token"] / texts["alone"], "times"),
        Measure(f"scan:{most_bp}_bp:memory", most_bytes / 2**20, "MiB"),
        Measure(f"scan:{most_bp}_bp:memory_against_100000", most_bytes / some_bytes, "times"),
        Measure(f"scan:{most_bp}_bp:tiny", most_bp / took, "bp/s"),
    ]


def evaluation(quick: bool) -> list[Measure]:
    """Tokens and time of the tasks of `eval`, beside their published protocols."""
    import evaluation as trials

    # With one change a place, as TraitGym has them, sharing gives 4 / 3 at most: the left half once
    # and the right halves of both, against two windows. The target is that of all centred tasks.
    targets = {"brca2": 2.0, "traitgym_mendelian": 2.0}
    measures = []
    with tempfile.TemporaryDirectory() as folder:
        for t in trials.trials(Path(folder), quick):
            target = 3.0 if t.task.startswith("genomic_niah") else targets.get(t.task)
            fewer = t.literal_tokens / t.tokens
            holds = None if target is None else fewer >= target
            measures += [
                Measure(f"{t.task}:tokens", t.tokens / t.examples, "tok/ex"),
                Measure(f"{t.task}:fewer_tokens", fewer, "times", target, holds),
                Measure(f"{t.task}:time", 1000 * t.seconds / t.examples, "ms/ex"),
                Measure(f"{t.task}:faster", t.literal_seconds / t.seconds, "times"),
            ]
    count = 5_000 if quick else 50_000
    with tempfile.TemporaryDirectory() as folder:
        work = f"peak_of_many_variants({folder!r}, {count})"
        _, peak = _in_own_process(work, "evaluation")
    holds = peak < 2**30
    return [
        *measures,
        Measure(f"right_end_peak_of_{count}_variants", peak / 2**20, "MiB", 1024, holds),
    ]


def demo(quick: bool) -> list[Measure]:
    """What a visitor waits for: the first paint, the example's answer, and the answer alone."""
    import visitors as trials

    measures = []
    for path, (paint, whole, answer) in trials.waits(7899, 1 if quick else 3).items():
        measures += [
            Measure(f"{path}:first_paint", paint, "s", 3.0, paint < 3),
            Measure(f"{path}:until_the_example_is_answered", whole, "s"),
            Measure(f"{path}:answer", answer, "s", 2.0, answer < 2),
        ]
    return measures


def _ratio(name: str, value: float, target: float | None) -> Measure:
    return Measure(name, value, "times", target, None if target is None else value <= target)


BENCHES = {
    "tokenizer": tokenizer,
    "losses": losses,
    "data_pipeline": data_pipeline,
    "corpus": corpus,
    "train": train,
    "inference": inference,
    "eval": evaluation,
    "demo": demo,
}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*BENCHES, "all"])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    machine = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("torch", "numpy")},
    }
    RESULTS.mkdir(exist_ok=True)
    for name in BENCHES if arguments.name == "all" else [arguments.name]:
        measures = BENCHES[name](arguments.quick)
        for m in measures:
            target = (
                "" if m.target is None else f"target {m.target:g}: {'yes' if m.holds else 'NO'}"
            )
            print(f"{name:<10} {m.name:<50} {m.value:>12.4g} {m.unit:<6} {target}")
        rows = [asdict(m) | machine for m in measures]
        (RESULTS / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
