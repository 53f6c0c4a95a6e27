"""Bundled models: trained models that ship with Carbon, each with a held-out chromosome.

>>> from carbon.pretrained import BUNDLED_MODELS
>>> BUNDLED_MODELS["yeast"].held_out_contig
'VIII'

The folder of a model is created atomically by `runs/yeast.sh`.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carbon.errors import ModelError, UserError
from carbon.io.files import atomic_folder

ROOT = Path(__file__).parent
RESULTS = "results.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A bundled model.

    Attributes:
        name: name for `carbon.load` and `--model`, and of its folder.
        what: description in one line.
        organism: species of the training genome.
        assembly: assembly of the training genome.
        held_out_contig: contig that was excluded from training and ships with the model.
        genome_file: FASTA of the held-out contig.
        annotation_file: annotation of the held-out contig.
        variants_file: VCF with a few variants of one gene on the held-out contig.
        example_variants: those variants as 1-based position, REF and ALT.
        training: training data and method in one line.
        hours: approximate duration of the training.
        known_genes: well-known genes of the held-out contig, by name, each with a description.
        learning_file: scans of a region of the held-out contig at several training steps.
    """

    name: str
    what: str
    organism: str
    assembly: str
    held_out_contig: str
    genome_file: str
    annotation_file: str
    variants_file: str
    example_variants: tuple[tuple[int, str, str], ...]
    training: str
    hours: float
    known_genes: Mapping[str, str]
    learning_file: str

    @property
    def folder(self) -> Path:
        """Model folder, which is never written to."""
        return ROOT / self.name

    @property
    def genome(self) -> Path:
        """FASTA of the held-out contig."""
        return self.folder / self.genome_file

    @property
    def annotation(self) -> Path:
        """Annotation of the held-out contig."""
        return self.folder / self.annotation_file

    @property
    def variants(self) -> Path:
        """VCF of a few variants of the held-out contig."""
        return self.folder / self.variants_file

    @property
    def learning(self) -> Path:
        """Scans of a region of the held-out contig at several training steps."""
        return self.folder / self.learning_file

    @property
    def is_installed(self) -> bool:
        """Whether this installation includes the model."""
        return self.folder.is_dir()

    @property
    def results(self) -> Mapping[str, Any]:
        """Results by evaluation, each as `eval report` writes `results.json`."""
        results: dict[str, Any] = json.loads((self.folder / RESULTS).read_text(encoding="utf-8"))
        return results

    @property
    def heldout_nats_per_base(self) -> float:
        """Likelihood of the held-out contig in nats per base, by conditional likelihood."""
        likelihood = self.results["heldout"]["tasks"]["heldout_likelihood"]["values"]
        return float(likelihood[self.name]["value"])

    def require(self) -> "Entry":
        """Return this entry.

        Raises:
            ModelError: this installation does not include the model.
        """
        if not self.is_installed:
            raise ModelError(
                f"{self.name}: this installation of Carbon lacks it ({self.folder} does not "
                "exist); run runs/yeast.sh in a checkout to make it"
            )
        return self

    def copy_to(self, output: Path) -> Sequence[Path]:
        """Copy contig, genes and variants into a new folder, atomically.

        Raises:
            UserError: the output exists.
        """
        if output.exists() or output.is_symlink():
            raise UserError(f"{output}: already exists; remove it or name another --output")
        names = (self.genome_file, self.annotation_file, self.variants_file)
        with atomic_folder(output) as folder:
            for name in names:
                shutil.copyfile(self.folder / name, folder / name)
        return [output / name for name in names]


# Gene functions: Saccharomyces Genome Database, https://www.yeastgenome.org
_GENES_OF_YEAST_VIII = {
    "ENO2": "Enolase, a glycolytic enzyme and one of the most abundant proteins of the cell; "
    "nearly all of its codons are the preferred codons of yeast.",
    "ERG11": "An enzyme of the synthesis of ergosterol, the main sterol of fungi, and the target "
    "of fluconazole; mutations in this gene make fungi resistant.",
    "GPA1": "Alpha subunit of the G protein of the pheromone response, which represses mating "
    "until pheromone binds to the receptor.",
    "CUP1-1": "Metallothionein that binds copper, in tandem copies; cells with more copies "
    "tolerate more copper.",
    "HXT1": "A low-affinity glucose transporter, used at high glucose concentrations, one of a "
    "family of nearly twenty.",
    "CDC12": "A septin of the ring at the bud neck, discovered in mutants that cannot complete "
    "cell division.",
    "RPL27A": "A ribosomal protein gene with an intron; few genes of yeast have one, and many of "
    "those encode ribosomal proteins.",
    "BAT1": "Synthesises branched-chain amino acids in mitochondria; its paralogue BAT2, from an "
    "ancient whole-genome duplication, degrades them in the cytosol.",
}
_VARIANTS_OF_ENO2 = (
    (451_328, "T", "A"),  # the start codon is lost
    (451_806, "C", "A"),  # His159 of the enzyme becomes glutamine
    (451_984, "CA", "C"),  # frameshift after codon 220
    (452_009, "T", "A"),  # codon 228 becomes a stop
    (452_184, "G", "A"),  # synonymous
)
_ENTRIES = (
    Entry(
        name="yeast",
        what="the genome of baker's yeast, 6-mer by 6-mer",
        organism="Saccharomyces cerevisiae",
        assembly="R64-1-1",
        held_out_contig="VIII",
        genome_file="VIII.fa.gz",
        annotation_file="VIII.gtf.gz",
        variants_file="ENO2.vcf",
        example_variants=_VARIANTS_OF_ENO2,
        training="both strands of every chromosome but VIII, and spliced transcripts",
        hours=1.5,
        known_genes=_GENES_OF_YEAST_VIII,
        learning_file="learning.npz",
    ),
)
BUNDLED_MODELS: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def list() -> tuple[Entry, ...]:  # noqa: A001 - read as `carbon.pretrained.list()`
    """Return the bundled models that this installation includes."""
    return tuple(entry for entry in BUNDLED_MODELS.values() if entry.is_installed)


def entry(name: str) -> Entry:
    """Return a bundled model by name.

    Raises:
        ModelError: the model does not exist, or this installation does not include it.
    """
    if name not in BUNDLED_MODELS:
        raise ModelError(f"{name}: is not a bundled model; give one of {', '.join(BUNDLED_MODELS)}")
    return BUNDLED_MODELS[name].require()


def local_folder(source: str | Path) -> Path | None:
    """Return a local folder, or the folder of a bundled model; None for a name on the Hub.

    Raises:
        ModelError: this installation does not include the bundled model of that name.
    """
    if Path(source).is_dir():
        return Path(source)
    bundled = BUNDLED_MODELS.get(str(source))
    return bundled.require().folder if bundled else None
