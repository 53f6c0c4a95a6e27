"""The metadata tags: what a model may be told of a sequence before `<dna>`.

A record of a corpus has codes for its species and its gene, and a model reads the tags of these
codes. To add a tag is to add an entry to `TAGS`, wherever it reads well, with an id that no other
has.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["species", "gene"]


@dataclass(frozen=True, slots=True)
class Tag:
    """One metadata tag.

    Attributes:
        code: what the column `species_type` or `gene_type` of a corpus says.
        text: what stands before `<dna>`.
        kind: which of the two columns it is of.
        native_id: its row in the native vocabulary, from 4 to 127. Models are trained with it, so
            it never changes.
        released: whether the released models, which read tags as text, have seen it.
    """

    code: str
    text: str
    kind: Kind
    native_id: int
    released: bool = True


TAGS = (
    Tag("mam", "<mammalian_species>", "species", 4),
    Tag("vrt", "<vertebrate_non_mammalian_species>", "species", 5),
    Tag("inv", "<invertebrate_species>", "species", 6),
    Tag("pln", "<plant_species>", "species", 7),
    Tag("fng", "<fungi_species>", "species", 8),
    Tag("prt", "<protozoa_species>", "species", 9),
    Tag("pro", "<prokaryote_species>", "species", 10, released=False),
    Tag("cds", "<protein_coding_region>", "gene", 11),
    Tag("pseudo", "<pseudo_gene>", "gene", 12),
    Tag("tRNA", "<transfer_rna>", "gene", 13),
    Tag("tmRNA", "<transfer_messenger_rna>", "gene", 14),
    Tag("ncRNA", "<non_coding_rna>", "gene", 15),
    Tag("misc_RNA", "<miscellaneous_rna>", "gene", 16),
    Tag("rRNA", "<ribosomal_rna>", "gene", 17),
)


def tags_of(kind: Kind) -> tuple[Tag, ...]:
    """Return the tags of one kind."""
    return tuple(tag for tag in TAGS if tag.kind == kind)


SPECIES_TAG_OF = {tag.code: tag.text for tag in tags_of("species")}
GENE_TAG_OF = {tag.code: tag.text for tag in tags_of("gene")}
SPECIES_TAGS = tuple(SPECIES_TAG_OF.values())
GENE_TAGS = tuple(GENE_TAG_OF.values())
