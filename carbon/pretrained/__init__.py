"""Bundled models: trained models that come with Carbon, each with its held-out chromosome.

>>> from carbon.pretrained import BUNDLED_MODELS
>>> BUNDLED_MODELS["yeast"].held_out_contig
'VIII'

`scripts/bundled_model` makes a model's folder, whole or not at all.
"""

import json
import shutil
from collections.abc import Mapping
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
        name: for `carbon.load` and `--model`, and of the folder.
        what: one-line description.
        organism: species of the training genome.
        assembly: of the training genome.
        held_out_contig: left out of training; bundled with its genes.
        genome_file: FASTA of the held-out contig.
        annotation_file: genes of the held-out contig.
        variants_file: VCF of a few variants in one of its genes.
        example_variants: the variants of that VCF: position from 1, REF and ALT.
        training: training data and method, in one line.
        hours: approximate training time.
        known_genes: well-known genes of the held-out contig, each with a description.
        told_variants: variants of the held-out contig by title: `contig:position REF>ALT`, and an
            explanation of the model's score, whether right or wrong.
        learning_file: scans of a region of the held-out contig, by training step.
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
    told_variants: Mapping[str, tuple[str, str]]
    learning_file: str

    @property
    def folder(self) -> Path:
        """Model folder; it is only read."""
        return ROOT / self.name

    @property
    def genome(self) -> Path:
        """FASTA of the held-out contig."""
        return self.folder / self.genome_file

    @property
    def annotation(self) -> Path:
        """Genes of the held-out contig."""
        return self.folder / self.annotation_file

    @property
    def variants(self) -> Path:
        """VCF of a few variants of the held-out contig."""
        return self.folder / self.variants_file

    @property
    def learning(self) -> Path:
        """Scans of a region of the held-out contig, by training step."""
        return self.folder / self.learning_file

    @property
    def is_there(self) -> bool:
        """Whether this installation contains the model."""
        return self.folder.is_dir()

    @property
    def results(self) -> Mapping[str, Any]:
        """Results by evaluation, then by task."""
        found: dict[str, Any] = json.loads((self.folder / RESULTS).read_text(encoding="utf-8"))
        return found

    @property
    def heldout_nats_per_base(self) -> float:
        """Conditional likelihood loss on the held-out contig, in nats per base."""
        return float(self.results["heldout"]["heldout_likelihood"]["value"])

    def require(self) -> "Entry":
        """Return this entry if its files are installed.

        Raises:
            ModelError: this installation lacks the model.
        """
        if not self.is_there:
            raise ModelError(
                f"{self.name}: this installation of Carbon lacks it ({self.folder} does not "
                "exist); run scripts/bundled_model in a checkout to make it"
            )
        return self

    def copy_to(self, output: Path) -> list[Path]:
        """Copy contig, genes and variants into a new folder, whole or not at all.

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
    "ENO2": "Enolase, a step of glycolysis, and one of the most abundant proteins of the cell: "
    "its codons are nearly all the ones that yeast likes best.",
    "ERG11": "Makes ergosterol, the sterol of fungi; the target of fluconazole, to which changes "
    "of this gene make fungi resistant.",
    "GPA1": "The G protein that hears the other sex: its alpha subunit holds the mating signal "
    "back until pheromone binds.",
    "CUP1-1": "Metallothionein that binds copper, in copies one behind the other: cells with more "
    "copies bear more copper.",
    "HXT1": "A transporter that lets glucose in where there is plenty, one of a family of nearly "
    "twenty.",
    "CDC12": "A septin, found by mutants that cannot finish cell division: part of the ring at "
    "the neck of the bud.",
    "RPL27A": "A protein of the ribosome, with an intron, which few genes of yeast have and many "
    "ribosomal ones do.",
    "BAT1": "Makes branched amino acids in mitochondria; its twin BAT2, left from an old doubling "
    "of the genome, breaks them down in the cytosol.",
}
_VARIANTS_OF_ENO2 = (
    (451_328, "T", "A"),  # the start codon is lost
    (451_806, "C", "A"),  # His159 of the enzyme becomes glutamine
    (451_984, "CA", "C"),  # frameshift after codon 220
    (452_009, "T", "A"),  # codon 228 becomes a stop
    (452_184, "G", "A"),  # synonymous
)
_TOLD_VARIANTS_OF_YEAST_VIII = {
    "A stop codon gained": (
        "VIII:451496 G>A",
        "Codon 57 of ENO2, a tryptophan, becomes a stop. Right: stop codons hardly occur in the "
        "frame of a gene, and the model has learned that; both strands say so.",
    ),
    "A synonymous change": (
        "VIII:518080 T>C",
        "Codon 183 of BAT1 goes from GTT to GTC, and the protein keeps its valine. Right: yeast "
        "uses both codons much, and the model finds both about as likely.",
    ),
    "A splice donor lost, and missed": (
        "VIII:126552 G>A",
        "The intron of RPL27A no longer begins with GT, and the gene is undone. Wrong: the model "
        "finds the broken site likelier. Few genes of yeast have introns, and it knows no splice "
        "sites.",
    ),
}
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
        told_variants=_TOLD_VARIANTS_OF_YEAST_VIII,
        learning_file="learning.npz",
    ),
)
BUNDLED_MODELS: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def entry(name: str) -> Entry:
    """Return a bundled model by name.

    Raises:
        ModelError: no bundled model has this name, or this installation lacks it.
    """
    if name not in BUNDLED_MODELS:
        raise ModelError(f"{name}: is not a bundled model; bundled are {', '.join(BUNDLED_MODELS)}")
    return BUNDLED_MODELS[name].require()


def folder_here(source: str | Path) -> Path | None:
    """Return a local folder, or the folder of a bundled model; None if the name may be a Hub name.

    Raises:
        ModelError: the name is a bundled model's, and this installation lacks it.
    """
    if Path(source).is_dir():
        return Path(source)
    bundled = BUNDLED_MODELS.get(str(source))
    return bundled.require().folder if bundled else None
