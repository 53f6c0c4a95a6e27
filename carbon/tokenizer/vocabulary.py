"""Vocabularies of k-mers: Carbon's two with their metadata tags, and those of other models.

A record of a corpus has codes for its species and its gene, and a model reads the tags of these
codes. To add a tag, add an entry to `TAGS`, at any place, with an unused id.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from carbon.errors import UserError
from carbon.tokenizer.kmer import NUM_KMERS, Int64s, K, UInt8s, cut_kmers

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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KmerVocabulary:
    """The tokens of a model whose tokens are k-mers that do not overlap.

    Attributes:
        k: bases of a token, 1 to 8.
        ids: (4**k,) int64, id of each k-mer, in the order of `kmer_texts`.
        begin: id of the token before the first base; None if the model has none.
        other: id of a chunk with an unknown base; if None, unknown bases are read as A.
    """

    k: int
    ids: Int64s
    begin: int | None
    other: int | None

    @property
    def all_known(self) -> int:
        """Mask of a k-mer without unknown bases."""
        return (1 << self.k) - 1

    @property
    def rows(self) -> slice:
        """Rows of the embedding from the first to the last that DNA needs, without tags."""
        special = [token for token in (self.begin, self.other) if token is not None]
        used = [int(self.ids.min()), int(self.ids.max()), *special]
        return slice(min(used), max(used) + 1)

    def default_window_bp(self, usual_bp: int, room_bp: int) -> int:
        """Return the default window of a model: all bases that fit.

        Args:
            usual_bp: default window of Carbon's own models.
            room_bp: bases that fit.
        """
        return room_bp

    def prefix(self, tags: tuple[str, ...] = ()) -> list[int]:
        """Return the ids before the first base of a sequence.

        Raises:
            UserError: tags are given, which only Carbon's own vocabularies have.
        """
        if tags:
            raise UserError(f"tag '{tags[0]}': this model has no metadata tags; leave tags out")
        return [] if self.begin is None else [self.begin]

    def tokens(self, sequence: str | bytes | UInt8s) -> "KmerTokens":
        """Cut a sequence into k-mers from its first base.

        A tail of fewer than k bases becomes a k-mer padded on the right with A, and its mask
        excludes the padding.
        """
        kmers = cut_kmers(sequence, self.k)
        ids = self.ids[kmers.indices]
        self.mark_unknown(ids, kmers.known, len(sequence))
        return KmerTokens(ids, *kmers)

    def mark_unknown(self, ids: Int64s, known: UInt8s, length_bp: int) -> None:
        """Replace the ids of k-mers with an unknown base by `other`, in place.

        The padding of a tail does not count as unknown.
        """
        if self.other is None or not len(ids):
            return
        if known[:-1].min(initial=self.all_known) < self.all_known:
            ids[:-1][known[:-1] != self.all_known] = self.other
        if known[-1] != (1 << (length_bp - 1) % self.k + 1) - 1:
            ids[-1] = self.other


class KmerTokens(NamedTuple):
    """A sequence as tokens; every array has one entry a token.

    Attributes:
        ids: int64, token ids.
        kmers: int64, index of each k-mer, with unknown bases as A.
        known: uint8, bit j is set if base j is present and known.
    """

    ids: Int64s
    kmers: Int64s
    known: UInt8s


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Vocabulary(KmerVocabulary):
    """The tokens of Carbon's own models: 6-mers, `<dna>` and `</dna>`, and metadata tags.

    Attributes:
        name: `native` or `hybrid`.
        size: number of rows of the embedding and of the head.
        begin: id of `<dna>`.
        other: id of `<oov>`, a 6-mer with an unknown base.
        pad: id of padding.
        dna_end: id of `</dna>`.
        tags: metadata tags that may precede `<dna>`.
        tag_ids: function that encodes consecutive tags. They are encoded together, because in text
            the end of one tag and the start of the next can form one token.
        why_no_tags: reason for messages if `tags` is empty.
    """

    name: str
    size: int
    begin: int
    other: int
    pad: int
    dna_end: int
    tags: tuple[str, ...]
    tag_ids: TagIds
    why_no_tags: str

    @property
    def first_kmer(self) -> int:
        """Id of AAAAAA; the other 6-mers follow in the order of their indices."""
        return int(self.ids[0])

    @property
    def kmer_rows(self) -> slice:
        """Rows of the embedding and of the head for 6-mers."""
        return slice(self.first_kmer, self.first_kmer + NUM_KMERS)

    def default_window_bp(self, usual_bp: int, room_bp: int) -> int:
        """Return the usual default window, or what fits."""
        return min(usual_bp, room_bp)

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
        return [*self.tag_ids(tags), self.begin]


NEEDS_SIX_MERS = (
    "generate, next, design, rl, serve, demo, convert, LoRA and full fine-tuning, and training"
)
"""Commands and methods that need a Carbon model of 6-mers, for messages and documents."""


def six_mers(vocabulary: KmerVocabulary, source: str = "this model") -> Vocabulary:
    """Return a vocabulary that is one of Carbon's own.

    Args:
        vocabulary: of a model.
        source: name of the model, for the message.

    Raises:
        UserError: it belongs to another model.
    """
    if isinstance(vocabulary, Vocabulary):
        return vocabulary
    raise UserError(
        f"{source}: is a model of {vocabulary.k}-mers that Carbon did not train; it scores and "
        f"embeds, but {NEEDS_SIX_MERS} need a Carbon model of 6-mers"
    )


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
    k=K,
    ids=np.arange(128, 128 + NUM_KMERS),
    begin=2,
    other=1,
    dna_end=3,
    tags=tuple(_NATIVE_ID_OF),  # the config of a model lists its own: `carbon.model.load_model`
    tag_ids=_native_tag_ids,
    why_no_tags="the model's config.json names none (docs/tokenizers.md says why)",
)
HYBRID = Vocabulary(
    name="hybrid",
    size=155_776,
    pad=151_643,
    k=K,
    ids=np.arange(151_672, 151_672 + NUM_KMERS),
    begin=151_669,
    other=151_671,
    dna_end=151_670,
    tags=(),  # tags are text and need a model's byte pairs: `hybrid_vocabulary`
    tag_ids=_no_tag_ids,
    why_no_tags="it has none (docs/tokenizers.md says why)",
)


def native_tokens() -> dict[str, int]:
    """Return names and ids of the 128 tokens of the native vocabulary that are not 6-mers."""
    names = {
        NATIVE.pad: "<pad>",
        NATIVE.other: "<oov>",
        NATIVE.begin: "<dna>",
        NATIVE.dna_end: "</dna>",
        **{tag.native_id: tag.text for tag in TAGS},
    }
    return {names.get(i, f"<reserved_{i}>"): i for i in range(NATIVE.first_kmer)}
