"""Families of proteins that are held out together, in all assemblies: `holdout = ["family"]`.

Two steps before the others, where a recipe asks for it:

    proteins   one task an input: the longest CDS of each gene, translated
    families   one task: clusters of all proteins by an engine, and the genes of those held out

A family is held out by a number that follows from its own proteins and the seed, so that neither
the order of inputs nor another family decides.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import chain, groupby
from pathlib import Path

from carbon.errors import UserError
from carbon.genome import Gene, Interval, Reference, spliced
from carbon.genome.alphabet import STANDARD_TABLE, genetic_code
from carbon.genome.annotation import code_of
from carbon.genome.bed import Regions
from carbon.genome.genes import parts_on_contig
from carbon.io.files import atomic_folder, scratch_folder
from carbon.io.structured import read_json
from data_pipeline.inputs.assemblies import opened
from data_pipeline.limits import FAMILY, FamilyConfig
from data_pipeline.recipe import AssemblyConfig, BuildConfig

# The least share of a protein that another of its family is alike over; mmseqs asks it of both.
_COVERED = 0.8
_PROTEINS, _PLACES = "proteins.fa", "places.tsv"


def _mmseqs(proteins: Path, folder: Path, identity: float) -> list[str]:
    words = ["mmseqs", "easy-cluster", str(proteins), str(folder / "found"), str(folder / "tmp")]
    return [*words, "--min-seq-id", str(identity), "-c", str(_COVERED), "-v", "1"]


def _diamond(proteins: Path, folder: Path, identity: float) -> list[str]:
    words = ["diamond", "cluster", "-d", str(proteins), "-o", str(folder / "found_cluster.tsv")]
    percents = ["--approx-id", f"{100 * identity:g}", "--member-cover", f"{100 * _COVERED:g}"]
    return [*words, *percents, "--quiet"]


# Programs that cluster proteins, the first that is installed: what to call, with the proteins, a
# folder and the identity. Both write `found_cluster.tsv`: a family's name, a tab, a member's.
ENGINES: dict[str, Callable[[Path, Path, float], list[str]]] = {
    "mmseqs": _mmseqs,
    "diamond": _diamond,
}


def asks_for_families(config: BuildConfig) -> bool:
    """Return whether an assembly holds out families."""
    return any(FAMILY in assembly.holdout for assembly in config.assemblies)


def check_engine() -> str:
    """Return the engine that is installed.

    Raises:
        UserError: none is.
    """
    found = next((name for name in ENGINES if shutil.which(name)), None)
    if found is None:
        raise UserError(
            f'holdout = ["{FAMILY}"]: needs {" or ".join(ENGINES)} on the PATH, to cluster '
            "proteins (Debian: mmseqs2, diamond-aligner); install one, or hold out regions"
        )
    return found


def write_proteins(config: AssemblyConfig, seed: int, rank: int, folder: Path) -> None:
    """Write the proteins of an assembly, one a gene, and where their genes lie.

    A name is of the input, the gene, and 64 bits that are drawn for the protein.

    Raises:
        UserError: the assembly is absent or malformed.
    """
    with (
        opened(config) as assembly,
        atomic_folder(folder) as whole,
        (whole / _PROTEINS).open("w", encoding="utf-8") as proteins,
        (whole / _PLACES).open("w", encoding="utf-8") as places,
    ):
        for number, gene in enumerate(assembly.annotation.genes):
            protein = protein_of(gene, assembly.reference)
            if protein:
                name, place = f"{rank}.{number}.{_draw_of(protein, seed)}", gene.interval
                proteins.write(f">{name}\n{protein}\n")
                places.write(f"{name}\t{place.contig}\t{place.start}\t{place.end}\n")


def protein_of(gene: Gene, reference: Reference) -> str:
    """Return the longest protein of a gene, or an empty string.

    Proteins whose genetic code is not known are compared as the standard code reads them.
    """
    whole = [t for t in gene.transcripts if t.cds and not t.incomplete and not t.leftover_bp]
    longest = max(whole, key=lambda t: t.cds_length_bp, default=None)
    if longest is None:
        return ""
    code = code_of(longest) or genetic_code(STANDARD_TABLE)
    cds = spliced(reference, longest.contig, longest.cds, longest.strand).upper()
    return code.translate(cds, ends_cds=True).rstrip("*")


def clusters_of(proteins: Path, identity: float) -> Iterator[list[str]]:
    """Yield the names of a FASTA's proteins, family by family.

    Raises:
        UserError: no engine is installed, or it failed.
    """
    engine = check_engine()
    with scratch_folder("families") as scratch:
        words = ENGINES[engine](proteins, scratch, identity)
        done = subprocess.run(words, capture_output=True, text=True)
        found = scratch / "found_cluster.tsv"
        if done.returncode or not found.is_file():
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            raise UserError(f"{engine} ended with {done.returncode}, and said: {said[-1]}")
        with found.open(encoding="utf-8") as lines:
            pairs = sorted(line.rstrip("\n").split("\t") for line in lines)
            for _, members in groupby(pairs, key=lambda pair: pair[0]):
                yield [name for _, name in members]


def choose_families(work: Path, config: FamilyConfig) -> None:
    """Write the places of the genes of held-out families, a file an input, to `families`."""
    folders = sorted((work / "proteins").glob("[0-9]*"))
    with atomic_folder(work / "families") as whole:
        together = whole / _PROTEINS
        with together.open("wb") as sink:
            for folder in folders:
                with (folder / _PROTEINS).open("rb") as proteins:
                    shutil.copyfileobj(proteins, sink)
        families = clusters_of(together, config.identity) if together.stat().st_size else ()
        held_out = {
            name for family in families if is_held_out(family, config.share) for name in family
        }
        together.unlink()
        for folder in folders:
            rows = (folder / _PLACES).read_text(encoding="utf-8").splitlines()
            cells = [row.split("\t") for row in rows]
            kept = [(contig, int(a), int(b)) for name, contig, a, b in cells if name in held_out]
            (whole / f"{folder.name}.json").write_text(json.dumps(kept), encoding="utf-8")


def is_held_out(family: list[str], share: float) -> bool:
    """Return whether a family is held out, from the draws of its different proteins."""
    draws = {int(name.rpartition(".")[2], 16) for name in family}
    # The least of n uniform draws is below this number with the probability `share`.
    return bool(min(draws) / 2**64 < 1 - (1 - share) ** (1 / len(draws)))


def _draw_of(protein: str, seed: int) -> str:
    return hashlib.blake2b(f"{seed} {protein}".encode(), digest_size=8).hexdigest()


def family_regions(work: Path, rank: int, contig_lengths_bp: dict[str, int]) -> list[Interval]:
    """Return the intervals that `choose_families` holds out of an input; none touch."""
    path = work / "families" / f"{rank:05d}.json"
    if not path.exists():
        return []
    genes = read_json(path, list[tuple[str, int, int]])
    parts = (parts_on_contig(Interval(*gene), contig_lengths_bp[gene[0]]) for gene in genes)
    return sorted(Regions(chain.from_iterable(parts), contig_lengths_bp).intervals)
