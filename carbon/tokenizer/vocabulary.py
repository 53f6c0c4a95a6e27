"""Token ids: where the 6-mers begin, and what stands before them.

The native vocabulary holds DNA only; the hybrid one is that of the released Carbon models, whose
first ids are the Qwen3 byte-pair vocabulary. For DNA the two differ by a constant.
"""

from collections.abc import Callable
from dataclasses import dataclass

from carbon.errors import UserError
from carbon.tokenizer.kmer import NUM_KMERS

SPECIES_TAGS = (
    "<mammalian_species>",
    "<vertebrate_non_mammalian_species>",
    "<invertebrate_species>",
    "<plant_species>",
    "<fungi_species>",
    "<protozoa_species>",
    "<prokaryote_species>",
)
GENE_TAGS = (
    "<protein_coding_region>",
    "<pseudo_gene>",
    "<transfer_rna>",
    "<transfer_messenger_rna>",
    "<non_coding_rna>",
    "<miscellaneous_rna>",
    "<ribosomal_rna>",
)


TagIds = Callable[[tuple[str, ...]], list[int]]
"""From metadata tags that follow one another to their ids."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The ids that DNA needs.

    Attributes:
        name: `native` or `hybrid`.
        size: rows of the embedding and of the head.
        pad: what rows are filled up with.
        dna_start: `<dna>`.
        dna_end: `</dna>`.
        oov: a 6-mer with an unknown base inside.
        first_kmer: AAAAAA; the other 6-mers follow in the order of their indices.
        tags: metadata tags that may stand before `<dna>`.
        tag_ids: their ids. Tags are read together, for where they are text, the end of one and
            the start of the next can be one token.
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

    @property
    def kmer_rows(self) -> slice:
        """The rows of the embedding and of the head that belong to 6-mers."""
        return slice(self.first_kmer, self.first_kmer + NUM_KMERS)

    def prefix(self, tags: tuple[str, ...] = ()) -> list[int]:
        """Return the ids that open a sequence: tags, then `<dna>`.

        Raises:
            UserError: a tag is not of this vocabulary.
        """
        for tag in tags:
            if tag not in self.tags:
                known = ", ".join(self.tags) or "it has none (docs/tokenizers.md says why)"
                raise UserError(f"tag '{tag}' is not in the {self.name} vocabulary: {known}")
        return [*self.tag_ids(tags), self.dna_start]


_SPECIALS = ("<pad>", "<oov>", "<dna>", "</dna>")
_NATIVE_TAGS = {tag: 4 + i for i, tag in enumerate(SPECIES_TAGS + GENE_TAGS)}


def _native_tag_ids(tags: tuple[str, ...]) -> list[int]:
    return [_NATIVE_TAGS[tag] for tag in tags]


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
    tags=tuple(_NATIVE_TAGS),
    tag_ids=_native_tag_ids,
)
HYBRID = Vocabulary(
    name="hybrid",
    size=155_776,
    pad=151_643,
    oov=151_671,
    dna_start=151_669,
    dna_end=151_670,
    first_kmer=151_672,
    tags=(),  # they are text, so they come with a model's byte pairs: `hybrid_vocabulary`
    tag_ids=_no_tag_ids,
)


def native_tokens() -> dict[str, int]:
    """Return the 128 tokens of the native vocabulary that are not 6-mers, with their ids."""
    names = [*_SPECIALS, *NATIVE.tags]
    names += [f"<reserved_{i}>" for i in range(len(names), NATIVE.first_kmer)]
    return {name: i for i, name in enumerate(names)}
