"""What the panels share: the model, the genome beside it, and genomes that visitors bring."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from carbon.errors import UserError
from carbon.files import scratch_folder
from carbon.genome import CHR, Reference, is_genbank, unpack_genbank
from carbon.genome.opened import Genome as Genome
from carbon.genome.opened import example_gene as example_gene
from carbon.genome.typed import read_bases
from carbon.inference import Carbon
from carbon.inference.learning import Learning
from carbon.kept import Kept

FASTA_ENDINGS = (".fa", ".fasta", ".fna")
ANNOTATION_ENDINGS = (".gff", ".gff3", ".gtf", ".bed")
GENBANK_ENDINGS = (".gb", ".gbk", ".gbff", ".genbank")
GENOME_ENDINGS = FASTA_ENDINGS + ANNOTATION_ENDINGS + GENBANK_ENDINGS
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
        example_gene: name of a gene of that genome, or a region where it has none.
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
        self.example_gene = next(iter(known_genes), None) or example_gene(genome)
        self._uploaded: Kept[Genome] = Kept(_KEPT_GENOMES)

    def genome_of(self, files: Sequence[str], pasted: str = "") -> Genome:
        """Return the genome in a pasted text or uploaded files, or the one there from the start.

        The last few are kept, so that a visitor's next question need not read them again.

        Raises:
            UserError: the files are not one FASTA, with or without annotation, or one GenBank.
            GenomeError: a file is malformed.
        """
        if pasted:
            return self._uploaded.get(pasted, lambda: _read_pasted(pasted))
        if not files:
            return self.genome
        key = tuple(sorted(files))
        names = tuple(Path(path).name for path in key)
        return self._uploaded.get(key, lambda: replace(_read_upload(key), shown_files=names))


def _read_upload(files: tuple[str, ...]) -> Genome:
    fastas = [f for f in files if f.lower().endswith(FASTA_ENDINGS)]
    annotations = [f for f in files if f.lower().endswith(ANNOTATION_ENDINGS)]
    genbanks = [f for f in files if f.lower().endswith(GENBANK_ENDINGS)]
    try:
        if len(genbanks) == len(files) == 1:
            return _read_genbank(genbanks[0])
        if len(fastas) == 1 and len(annotations) <= 1 and not genbanks:
            found = Genome.open(fastas[0], annotations[0] if annotations else None, CHR)
            return replace(found, shown_files=tuple(Path(path).name for path in files))
    except UserError as error:
        raise UserError(without_folders(str(error), files)) from None
    raise UserError("upload one GenBank file, or one FASTA with or without one GFF3, GTF or BED")


def _read_pasted(text: str) -> Genome:
    """Return the genome in a text: GenBank, FASTA, or bases alone."""
    name = "pasted.gb" if text.startswith("LOCUS") else "pasted.fa"
    if name == "pasted.fa":
        head = "" if text.startswith(">") else ">pasted\n"
        lines = (s if s.startswith(">") else read_bases(s) for s in text.splitlines())
        text = head + "\n".join(lines)
    with scratch_folder("pasted") as folder:
        (folder / name).write_text(text + "\n", encoding="utf-8")
        return replace(_read_upload((str(folder / name),)), shown_files=(name,))


def _read_genbank(path: str) -> Genome:
    if not is_genbank(path):
        raise UserError(f"{path}: does not begin as a GenBank flat file does (LOCUS)")
    with scratch_folder("genbank") as folder:
        fasta = folder / "genome.fa"
        annotation = unpack_genbank(path, fasta).annotation
        # An open reference needs its file no more by name.
        return Genome(Reference(fasta), annotation, (Path(path).name,))


def without_folders(message: str, files: Sequence[str]) -> str:
    """Return a message that names files without the folders of this machine."""
    for path in files:
        message = message.replace(path, Path(path).name)
    return message
