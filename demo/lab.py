"""What the panels share: the model, the genome beside it, and genomes that visitors bring."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from carbon.genome.brought import genome_in_files, genome_in_text
from carbon.genome.examples import Example, example_gene
from carbon.genome.opened import Genome
from carbon.inference import Carbon
from carbon.inference.learning import Learning
from carbon.kept import Kept

_KEPT_GENOMES = 8


class Lab:
    """The model and the genomes.

    Attributes:
        model: what answers.
        model_name: as a command line names it.
        genome: the one that is there from the start.
        runs: folder under which run folders may be opened.
        known_genes: genes of that genome that people know, each with a sentence that says why.
        learned: how the model learned a region of that genome; None where nobody kept it.
        told_variants: variants of that genome by label, with what the model says of them.
        example: a gene of that genome, or a region where it has none.
    """

    def __init__(
        self,
        model: Carbon,
        model_name: str,
        genome: Genome,
        runs: Path,
        known_genes: Mapping[str, str] = MappingProxyType({}),
        learned: Learning | None = None,
        told_variants: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> None:
        """Keep them."""
        self.model = model
        self.model_name = model_name
        self.genome = genome
        self.runs = runs
        self.known_genes = known_genes
        self.learned = learned
        self.told_variants = told_variants
        self.example = Example(genome, next(iter(known_genes), None) or example_gene(genome))
        self._uploaded: Kept[Genome] = Kept(_KEPT_GENOMES)

    def genome_of(self, files: Sequence[str], pasted: str = "") -> Genome:
        """Return the genome in a pasted text or uploaded files, or the one there from the start.

        The last few are kept, so that a visitor's next question need not read them again.

        Raises:
            UserError: the files are not one FASTA, with or without annotation, or one GenBank.
            GenomeError: a file is malformed.
        """
        if pasted:
            return self._uploaded.get(pasted, lambda: genome_in_text(pasted))
        if not files:
            return self.genome
        key = tuple(sorted(files))
        return self._uploaded.get(key, lambda: genome_in_files(key))
