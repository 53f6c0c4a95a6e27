"""State that the panels share: the model, its genome, and genomes that visitors upload."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.finetune.folder import MANIFEST
from carbon.genome.fasta import Reference
from carbon.genome.genes import Gene
from carbon.genome.genome import Genome
from carbon.genome.interval import Variant
from carbon.genome.sequences import open_text
from carbon.inference import Model
from carbon.pretrained import BUNDLED_MODELS, Entry
from demo.folders import find_folders
from demo.gene_examples import Example, example_gene
from demo.inputs import Detected, detect
from demo.learning_curves import Learning
from demo.lru_cache import LruCache
from demo.markup import shortened
from demo.models import EXPORT, AboutModel, AllowedModels, about_model, model_of_run
from demo.uploads import genome_in_files, genome_in_text

_CACHED_GENOMES = 8
_CACHED_MODELS = 2  # in addition to the first model, which is never evicted


def shown_name(source: str) -> str:
    """Return the name of a model or run without its folders."""
    return source.rstrip("/").removesuffix(f"/{EXPORT}").rpartition("/")[2]


@dataclass(eq=False)
class Lab:
    """A model and the genomes.

    A visitor who switches the model gets a lab of that model; this lab stays the same for others.

    Attributes:
        model: model that answers.
        model_name: name of the model as on a command line.
        genome: the genome loaded at the start.
        is_simulated: whether the genome's FASTA declares itself simulated.
        runs: folder under which run folders may be opened.
        known_genes: well-known genes of that genome, each with a sentence on why.
        learned: how the model learned a region of that genome; None if it was not recorded.
        allowed: other allowed models; None if there are none.
        first: the lab that was created at the start.
        panels: panels created for this lab, by class.
        example: a gene of that genome, or a region if the genome has no genes.
    """

    model: Model
    model_name: str
    genome: Genome
    runs: Path
    known_genes: Mapping[str, str] = field(default_factory=dict)
    learned: Learning | None = None
    allowed: AllowedModels | None = None

    def __post_init__(self) -> None:
        self.is_simulated = _is_simulated(self.genome.reference)
        self.first: Lab = self
        self.panels: dict[type, Any] = {}
        name = next(iter(self.known_genes), None) or example_gene(self.genome)
        self.example = Example(self.genome, name)
        self._uploaded: LruCache[Genome] = LruCache(_CACHED_GENOMES)
        self._others: LruCache[Lab] = LruCache(_CACHED_MODELS)

    @property
    def shown_name(self) -> str:
        """Return the model's name without folders."""
        return shown_name(self.model_name)

    @property
    def finetuned(self) -> dict[str, Path]:
        """Return the folders under `runs` that `carbon finetune` wrote, newest first."""
        return find_folders(self.runs, (MANIFEST,))

    @property
    def held_out_of(self) -> Entry | None:
        """Return the bundled model whose held-out contig is the genome; None if it is another."""
        file = self.genome.shown_files[0]
        return next((e for e in BUNDLED_MODELS.values() if str(e.genome) == file), None)

    @cached_property
    def about(self) -> AboutModel | None:
        """Return the known facts on the model; None if the name is not a model."""
        try:
            return about_model(self.model_name)
        except UserError:
            return None

    def with_model(self, name: str) -> "Lab":
        """Return the lab of a model; the last few labs are cached, and the first is never evicted.

        Raises:
            UserError: the model is not allowed, or is not a model.
        """
        if name == self.first.shown_name or not self.first.allowed:
            return self.first
        allowed = self.first.allowed
        source = allowed.source_of(name)
        return self.first._others.get(source, lambda: self.first._switched(source, allowed))

    def _switched(self, source: str, allowed: AllowedModels) -> "Lab":
        gc.collect()  # an evicted lab and its panels reference each other, and a model
        path = model_of_run(source)
        lab = Lab(allowed.load(path), str(path), self.genome, self.runs, self.known_genes)
        lab.first, lab._uploaded = self, self._uploaded
        return lab

    def detect(self, text: str, files: Sequence[str] = ()) -> Detected:
        """Return what a text denotes, in uploaded files or in the genome loaded at the start.

        The gene of the examples stands for the example gene of an uploaded genome.

        Raises:
            UserError: as `demo.inputs.detect`.
        """
        genome = self.genome_of(files)
        example = self.example.name
        if genome is not self.genome:
            example = example_gene(genome)
            text = example if text == self.example.name else text
        return detect(text, genome, self._pasted, example)

    def variant_in(self, genome: Genome, text: str, gene: Gene | None) -> Variant:
        """Return the variant that a text denotes in a genome.

        Args:
            genome: genome of the variant.
            text: any spelling of a variant.
            gene: gene of a protein change without a gene, such as `E52*`.

        Raises:
            UserError: the text is not a variant.
        """
        detected = detect(text, genome, self._pasted, gene.gene_id if gene else "")
        if detected.variant is None:
            raise UserError(f"'{shortened(text)}' is not a variant; write contig:position REF>ALT")
        return detected.variant

    def genome_of(self, files: Sequence[str]) -> Genome:
        """Return the genome in uploaded files, or the genome loaded at the start.

        The last few genomes are cached, so that a visitor's next question does not read them again.

        Raises:
            UserError: the files are not one FASTA, with or without annotation, or one GenBank.
            GenomeError: a file is malformed.
        """
        if not files:
            return self.genome
        key = tuple(sorted(files))
        return self._uploaded.get(key, lambda: genome_in_files(key))

    def _pasted(self, text: str) -> Genome:
        return self._uploaded.get(text, lambda: genome_in_text(text))


def _is_simulated(reference: Reference) -> bool:
    """Return whether the header of a FASTA comes from `carbon corpus simulate`."""
    try:
        with open_text(reference.path) as lines:
            return next(iter(lines), "").split()[1:2] == ["simulated"]
    except (OSError, UserError):
        return False
