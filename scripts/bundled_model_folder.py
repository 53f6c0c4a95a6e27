"""Puts a bundled model together: weights, papers, and the held-out contig."""

import gzip
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bundled_model_card import card

from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.genome import Reference, read_annotation
from carbon.genome.sequences import open_text, read_records
from carbon.io.files import atomic_folder
from carbon.model import model_folder
from carbon.pretrained import RESULTS, Entry
from train.config import TrainConfig

MOST_WEIGHTS_BYTES = 10_000_000
MOST_GENOME_BYTES = 400_000
_LINE_BP = 60
_PATHS = {"path", "genome", "annotation", "output"}
"""Keys of a manifest whose folders are nobody else's business."""


def make_folder(
    entry: Entry,
    output: Path,
    run: Path,
    corpus: Path,
    work: Path,
    measured: Mapping[str, Path],
    *,
    genome: Path,
    annotation: Path,
) -> Path:
    """Write the folder of a bundled model, whole or not at all, and return its path.

    Equal input gives equal bytes: no clock, and no path of this machine.

    Args:
        entry: that it is.
        output: the folder.
        run: that the model comes from.
        corpus: that it was trained on.
        work: has `export`, with the card of the run, and `model`, with the rounded weights.
        measured: by evaluation, the folder with its `results.json`.
        genome: FASTA with the held-out contig.
        annotation: GTF with its genes.

    Raises:
        UserError: the folder is there already, the contig is not in a file, or a file is larger
            than a bundled model may have.
    """
    results = {name: _read(folder / RESULTS) for name, folder in measured.items()}
    config = TrainConfig.load(run / "config.toml", ["output='runs/yeast'", "data.corpus='corpus'"])
    with atomic_folder(output) as folder:
        shutil.copytree(work / "model", folder, dirs_exist_ok=True)
        shutil.copyfile(work / "export" / "curves.png", folder / "curves.png")
        _write(folder / "recipe.toml", config.to_toml())
        _write(folder / "corpus.json", _json(without_folders(read_manifest(corpus))))
        _write(folder / RESULTS, _json(results))
        parameters = model_folder(folder).num_parameters
        run_card = (work / "export" / "README.md").read_text(encoding="utf-8")
        _write(folder / "README.md", card(entry, config, parameters, results, run_card))
        contig = entry.held_out_contig
        _write_gzip(folder / entry.genome_file, sequence_of(genome, contig))
        _write_gzip(folder / entry.annotation_file, lines_of(annotation, contig))
        _write(folder / entry.variants_file, vcf_of(entry))
        _check(folder, entry)
        for path in folder.iterdir():
            path.chmod(0o644)  # safetensors keeps its files from others, who read a wheel too
    return output


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _write_gzip(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def without_folders(value: Any, key: str = "") -> Any:
    """Return a manifest that names files and no folders.

    >>> without_folders({"inputs": [{"path": "/home/me/a.fa", "bytes": 3}]})
    {'inputs': [{'path': 'a.fa', 'bytes': 3}]}
    """
    if isinstance(value, Mapping):
        return {name: without_folders(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [without_folders(each, key) for each in value]
    return Path(value).name if key in _PATHS and isinstance(value, str) else value


def sequence_of(genome: Path, contig: str) -> str:
    """Return one contig of a FASTA as FASTA, under its own header.

    Raises:
        UserError: it is not there.
    """
    for record in read_records(genome):
        if record.name == contig:
            header = f">{record.name} {record.description}".rstrip()
            starts = range(0, len(record.bases), _LINE_BP)
            return "\n".join([header, *(record.bases[s : s + _LINE_BP] for s in starts), ""])
    raise UserError(f"{genome}: has no contig {contig}; give the genome of the recipe")


def lines_of(annotation: Path, contig: str) -> str:
    """Return the lines of a GTF or GFF3 that are of one contig, behind its opening remarks."""
    with open_text(annotation) as lines:
        return "".join(line for line in lines if line.startswith(("#!", f"{contig}\t")))


def vcf_of(entry: Entry) -> str:
    """Return the example variants of an entry as VCF 4.2."""
    lines = ["##fileformat=VCFv4.2", f"##contig=<ID={entry.held_out_contig}>"]
    lines.append("\t".join(("#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO")))
    for position, ref, alt in entry.example_variants:
        fields = (entry.held_out_contig, str(position), ".", ref, alt, ".", ".", ".")
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"


def _check(folder: Path, entry: Entry) -> None:
    """Raise UserError unless the files are read as what they are, and small enough."""
    paths = [folder / name for name in (entry.genome_file, entry.annotation_file)]
    with Reference(paths[0]) as reference:
        read_annotation(paths[1], reference)
    weights_bytes = (folder / "model.safetensors").stat().st_size
    genome_bytes = sum(path.stat().st_size for path in paths)
    for what, num_bytes, most in (
        ("the weights", weights_bytes, MOST_WEIGHTS_BYTES),
        ("contig and genes", genome_bytes, MOST_GENOME_BYTES),
    ):
        if num_bytes > most:
            raise UserError(f"{what} have {num_bytes:,} bytes; a bundled model may have {most:,}")
