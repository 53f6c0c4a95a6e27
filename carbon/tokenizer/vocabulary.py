"""The two vocabularies, and the metadata tags that describe a sequence before `<dna>`.

A record of a corpus has codes for its species and its gene, and a model reads the tags of these
codes. To add a tag, add an entry to `TAGS`, at any place, with an unused id.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from carbon.errors import UserError
from carbon.tokenizer.kmer import NUM_KMERS

TagType = Literal["species", "gene"]


@dataclass(frozen=True, slots=True)
class Tag:
    """A metadata tag.

    Attributes:
        code: value in the column `species_type` or `gene_type` of a corpus.
        text: text of the tag, which precedes `<dna>`.
        kind: column of the code, `species` or `gene`.
        native_id: row in the native vocabulary, 4 to 127. Models are trained with it, so it never
            changes.
        released: whether the released models, which read tags as text, were trained with it.
    """

    code: str
    text: str
    kind: TagType
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


def tags_of(kind: TagType) -> tuple[Tag, ...]:
    """Return the tags of one type."""
    return tuple(tag for tag in TAGS if tag.kind == kind)


SPECIES_TAG_OF = {tag.code: tag.text for tag in tags_of("species")}
GENE_TAG_OF = {tag.code: tag.text for tag in tags_of("gene")}
SPECIES_TAGS = tuple(SPECIES_TAG_OF.values())
GENE_TAGS = tuple(GENE_TAG_OF.values())


TagIds = Callable[[tuple[str, ...]], list[int]]
"""Function from consecutive metadata tags to their ids."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token ids for DNA.

    Attributes:
        name: `native` or `hybrid`.
        size: number of rows of the embedding and of the head.
        pad: id of padding.
        dna_start: id of `<dna>`.
        dna_end: id of `</dna>`.
        oov: id of a 6-mer with an unknown base.
        first_kmer: id of AAAAAA; the other 6-mers follow in the order of their indices.
        tags: metadata tags that may precede `<dna>`.
        tag_ids: function that encodes consecutive tags. They are encoded together, because in text
            the end of one tag and the start of the next can form one token.
        why_no_tags: reason for messages if `tags` is empty.
    """

    name: str
    size: int
    pad: int
    dna_start: int
    dna_end: int
    oov: int
    first_kmer: int
    tags: tuple[str, ...]
    tag_ids: TagIds
    why_no_tags: str

    @property
    def kmer_rows(self) -> slice:
        """Rows of the embedding and of the head for 6-mers."""
        return slice(self.first_kmer, self.first_kmer + NUM_KMERS)

    def prefix(self, tags: tuple[str, ...] = ()) -> list[int]:
        """Return the ids at the start of a sequence: tags, then `<dna>`.

        Raises:
            UserError: a tag is not in this vocabulary, or is given twice.
        """
        for tag in dict.fromkeys(tags):
            if tag not in self.tags:
                known = ", ".join(self.tags) or self.why_no_tags
                raise UserError(f"tag '{tag}' is not in the {self.name} vocabulary: {known}")
            if tags.count(tag) > 1:
                raise UserError(f"tag '{tag}' is given {tags.count(tag):,} times; give it once")
        return [*self.tag_ids(tags), self.dna_start]


_NATIVE_ID_OF = {tag.text: tag.native_id for tag in TAGS}


def _native_tag_ids(tags: tuple[str, ...]) -> list[int]:
    return [_NATIVE_ID_OF[tag] for tag in tags]


def _no_tag_ids(tags: tuple[str, ...]) -> list[int]:
    assert not tags, "prefix refuses tags that are not of the vocabulary"
    return []


NATIVE = Vocabulary(
    name="native",
    size=128 + NUM_KMERS,
    pad=0,
    oov=1,
    dna_start=2,
    dna_end=3,
    first_kmer=128,
    tags=tuple(_NATIVE_ID_OF),  # the config of a model lists its own: `carbon.model.load_model`
    tag_ids=_native_tag_ids,
    why_no_tags="the model's config.json names none (docs/tokenizers.md says why)",
)
HYBRID = Vocabulary(
    name="hybrid",
    size=155_776,
    pad=151_643,
    oov=151_671,
    dna_start=151_669,
    dna_end=151_670,
    first_kmer=151_672,
    tags=(),  # tags are text and need a model's byte pairs: `hybrid_vocabulary`
    tag_ids=_no_tag_ids,
    why_no_tags="it has none (docs/tokenizers.md says why)",
)


def native_tokens() -> dict[str, int]:
    """Return names and ids of the 128 tokens of the native vocabulary that are not 6-mers."""
    names = {
        NATIVE.pad: "<pad>",
        NATIVE.oov: "<oov>",
        NATIVE.dna_start: "<dna>",
        NATIVE.dna_end: "</dna>",
        **{tag.native_id: tag.text for tag in TAGS},
    }
    return {names.get(i, f"<reserved_{i}>"): i for i in range(NATIVE.first_kmer)}
