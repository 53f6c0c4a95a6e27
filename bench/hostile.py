"""Attack every door of Carbon with the files of a folder, whole and damaged.

    python bench/hostile.py FOLDER [--mutations 3] [--model M] [--output attacks.tsv]

Each file goes through all doors that take its ending (`attacks/doors.py`), as it is and damaged
(`attacks/mutations.py`); so do the files of a model folder, and outputs that cannot be written.
Every attack has to end in the right answer, or in one line on stderr with exit code 2 (1 for a
fault of the machine, such as a full disk), with nothing half-written, in the time allowed. What
did not is printed, and the exit code is 1. The numbers follow from `--seed`.
"""

import argparse
import csv
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from attacks.doors import Main, Room, doors_of
from attacks.mutations import MUTATIONS, mutate
from attacks.trial import Outcome, attack

from carbon import cli
from carbon.console import natural, run_command
from carbon.genome import read_sequences
from carbon.genome.sequences import BROKEN_GZIP, open_text
from carbon.progress import track

_MOST_CONTIGS = 30
_MOST_BP = 3_000_000


class Attack(NamedTuple):
    """A command to run, and what to call it."""

    door: str
    file: str
    damage: str
    main: Main
    words: list[str]


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(
        prog="python bench/hostile.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mutations", type=natural, default=3, help="of each file, at random")
    parser.add_argument("--model", type=Path, help="model folder; a random one without")
    parser.add_argument("--seconds", type=float, default=60, help="that an attack may take")
    parser.add_argument("--most-bytes", type=natural, default=5_000_000, help="of a file")
    parser.add_argument("--seed", type=natural, default=0)
    parser.add_argument("--output", type=Path, help="TSV of all attacks and how they ended")
    arguments = parser.parse_args()
    return run_command(lambda: campaign(arguments))


def campaign(arguments: argparse.Namespace) -> int:
    """Run all attacks; return 0 if none did what should not be."""
    with tempfile.TemporaryDirectory(prefix="carbon-hostile-") as folder:
        scratch = Path(folder)
        model = arguments.model or random_model(scratch / "model")
        rows = []
        for number, each in enumerate(track(_attacks(arguments, model, scratch), "attacks")):
            work = scratch / f"work-{number}"
            work.mkdir()
            words = [word.replace(_WORK, str(work)) for word in each.words]
            rows.append((each, attack(each.main, words, work, arguments.seconds)))
            shutil.rmtree(work)
    if arguments.output:
        _write(arguments.output, rows)
    return _report(rows)


_WORK = "{an empty folder}"  # in words: made when the attack is


def random_model(folder: Path) -> Path:
    """Write a model folder with random weights."""
    import torch
    from transformers import LlamaForCausalLM

    from carbon.model import PRESETS, save_model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    save_model(LlamaForCausalLM(PRESETS["tiny"]()), folder)
    return folder


def _attacks(arguments: argparse.Namespace, model: Path, scratch: Path) -> Iterator[Attack]:
    draw = Random(arguments.seed)
    for path in sorted(p for p in arguments.folder.rglob("*") if p.is_file()):
        if path.stat().st_size <= arguments.most_bytes:
            yield from _with_file(path, arguments, model, scratch, draw)
    yield from _with_model(model, arguments.mutations, scratch, draw)
    yield from _with_outputs(model, scratch, draw)


def _with_file(
    path: Path, arguments: argparse.Namespace, model: Path, scratch: Path, draw: Random
) -> Iterator[Attack]:
    """Yield what a file of the folder does at each of its doors, whole and damaged."""
    doors = doors_of(path.name)
    if not doors:
        return
    data = path.read_bytes()
    room = Room(model, _reference_of(path, scratch, draw), Path(_WORK))
    others = [name for name in MUTATIONS if name != "whole"]
    for damage in ["whole", *draw.sample(others, min(arguments.mutations, len(others)))]:
        damaged = scratch / path.name
        damaged.write_bytes(_damaged(damage, data, draw))
        for door in doors:
            words = door.words(str(damaged), room)
            yield Attack(door.name, str(path), damage, door.main, words)
        for beside in scratch.glob(f"{path.name}*"):
            beside.unlink()


def _damaged(damage: str, data: bytes, draw: Random) -> bytes:
    try:
        return mutate(damage, data, draw)
    except BROKEN_GZIP:  # damaged already
        return MUTATIONS[damage](data, draw)


def _with_model(model: Path, mutations: int, scratch: Path, draw: Random) -> Iterator[Attack]:
    """Yield what a damaged file of a model folder does to `info` and `score`."""
    fasta = _fasta(scratch / "query.fa", {"query": 200}, draw)
    for path in sorted(p for p in model.iterdir() if p.is_file()):
        for damage in draw.sample(sorted(MUTATIONS), min(len(MUTATIONS), 2 * mutations)):
            folder = scratch / "damaged"
            shutil.copytree(model, folder)
            (folder / path.name).write_bytes(_damaged(damage, path.read_bytes(), draw))
            for words in (["info", str(folder)], ["score", "--model", str(folder), str(fasta)]):
                yield Attack(words[0], f"model/{path.name}", damage, cli.main, words)
            shutil.rmtree(folder)


def _with_outputs(model: Path, scratch: Path, draw: Random) -> Iterator[Attack]:
    """Yield good commands whose output, or input, cannot be had."""
    fasta = str(_fasta(scratch / "query.fa", {"query": 200}, draw))
    loop, full, fine = scratch / "loop.tsv", scratch / "full.tsv", scratch / "fine.tsv"
    loop.symlink_to(loop)
    full.symlink_to("/dev/full")
    places = {
        "a loop of links": loop,
        "a full device": full,
        "a folder": scratch,
        "no folder": scratch / "none" / "out.tsv",
        "a long name": scratch / f"{'n' * 300}.tsv",
        "an input": Path(fasta),
    }
    for place, path in places.items():
        words = ["score", "--model", str(model), fasta, "--output", str(path)]
        yield Attack("score --output", place, "whole", cli.main, words)
        for verb in ("tokenize", "info"):
            given = fine if place == "an input" else path
            yield Attack(verb, f"from {place}", "whole", cli.main, [verb, str(given)])


def _reference_of(path: Path, scratch: Path, draw: Random) -> Path:
    """Make a FASTA, and a VCF of it, with the contigs that an annotation or a VCF names."""
    lengths_bp: dict[str, int] = {}
    try:
        with open_text(path) as lines:
            for line in lines:
                columns = line.rstrip("\n").split("\t")
                if len(columns) < 5 or line.startswith("#") or not columns[0].isascii():
                    continue
                ends = [int(c) for c in columns[1:5] if re.fullmatch(r"\d{1,7}", c)]
                longest = max([lengths_bp.get(columns[0], 100), *ends])
                lengths_bp[columns[0]] = min(longest + 100, _MOST_BP)
    except (*BROKEN_GZIP, ValueError):
        pass
    kept = dict(list(lengths_bp.items())[:_MOST_CONTIGS]) or {"1": 1000}
    fasta = _fasta(scratch / "reference.fa", kept, draw)
    _vcf_of(fasta)
    return fasta


def _fasta(path: Path, lengths_bp: dict[str, int], draw: Random) -> Path:
    with path.open("w", encoding="utf-8") as sink:
        for name, length_bp in lengths_bp.items():
            sink.write(f">{name}\n{''.join(draw.choices('ACGT', k=length_bp))}\n")
    path.with_suffix(".fa.fai").unlink(missing_ok=True)
    return path


def _vcf_of(fasta: Path) -> None:
    with fasta.with_suffix(".vcf").open("w", encoding="utf-8") as sink:
        sink.write("##fileformat=VCFv4.3\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")
        for name, bases in read_sequences(fasta):
            for position in range(10, min(90, len(bases)), 20):
                ref = bases[position]
                alt = "A" if ref != "A" else "C"
                sink.write(f"{name}\t{position + 1}\t.\t{ref}\t{alt}\t.\t.\t.\n")


def _write(path: Path, rows: list[tuple[Attack, Outcome]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as sink:
        table = csv.writer(sink, "excel-tab")
        table.writerow(["door", "file", "damage", "verdict", "seconds", "peak_mib", "line"])
        for each, ended in rows:
            table.writerow(
                [each.door, each.file, each.damage, ended.verdict, f"{ended.seconds:.2f}",
                 f"{ended.peak_mib:.0f}", ended.line]
            )  # fmt: skip


def _report(rows: list[tuple[Attack, Outcome]]) -> int:
    bad = [(each, ended) for each, ended in rows if ended.verdict not in ("done", "told")]
    for each, ended in bad:
        print(f"{ended.verdict}\t{each.door}\t{each.file}\t{each.damage}\t{ended.line}")
    counts = Counter(ended.verdict for _, ended in rows)
    print(f"{len(rows)} attacks: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
