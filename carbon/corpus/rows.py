"""Rows of tokens: from sample number to what the trainer feeds the network."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.corpus.order import Sample, SampleOrder, SpanRows
from carbon.corpus.packing import MAX_PREFIX_TOKENS, Packing, open_packing
from carbon.corpus.store import FIRST_ID, Store, mapped_store
from carbon.tokenizer import ALL_KNOWN, NATIVE, TAGS, K, encode_kmers

Int64s = NDArray[np.int64]
Prefix = tuple[int, ...]

# Forms of a sample (technical report, section 3): half bare, and a sixth each with both tags,
# the species tag alone, the gene tag alone.
_FORMS = ((False, False),) * 3 + ((True, True), (True, False), (False, True))
_COMPLEMENT = np.frombuffer(bytes.maketrans(b"ACGTacgt", b"TGCAtgca"), dtype=np.uint8)


class Row(NamedTuple):
    """One row of T tokens; `targets` and `known` at place t describe the token at t + 1.

    Attributes:
        input_ids: (T,) int64, padded on the right.
        position_ids: (T,) int64, from 0 in every piece and one long stretch of padding.
        targets: (T,) int64, the 6-mer that follows.
        known: (T,) uint8, its bits of known bases; 0 where nothing is to be learned.
    """

    input_ids: Int64s
    position_ids: Int64s
    targets: Int64s
    known: NDArray[np.uint8]


class PackedSource(NamedTuple):
    """A source's records and their packings by row length; DNA may be read on both strands."""

    store: Store
    packings: Mapping[int, Packing]
    both_strands: bool


def open_packed(store: Store, lengths_tokens: Iterable[int], both_strands: bool) -> PackedSource:
    """Return a source packed into rows of some lengths, each made if it is not on disk."""
    return PackedSource(store, {n: open_packing(store, n) for n in lengths_tokens}, both_strands)


class Piece(NamedTuple):
    """A stretch of a record as a row reads it.

    Attributes:
        record: its number in the source.
        start: the first base in the record.
        letters: (bases,) uint8, along the strand that is read.
        prefix: ids of its tags and `<dna>`.
    """

    record: int
    start: int
    letters: NDArray[np.uint8]
    prefix: Prefix


class Reading(NamedTuple):
    """How a sample is read: which of six offsets, which strand, with which tags."""

    offset: int
    reverse: bool
    with_species: bool
    with_gene: bool


class TokenRows:
    """A map-style dataset: `rows[i]` is sample `i` of the run, whoever asks and whenever."""

    def __init__(
        self,
        order: SampleOrder,
        sources: Mapping[str, PackedSource],
        prefixes: Mapping[Prefix, Prefix] | None = None,
    ) -> None:
        """Combine an order with the sources it names.

        Args:
            order: which row of which source is sample i.
            sources: by their names.
            prefixes: from the native ids that open a piece to others, where a model has others;
                `<dna>` stays the last of them.
        """
        self.order = order
        self.sources = sources
        self.prefixes = prefixes or {}

    def __len__(self) -> int:
        """Return the rows of the whole run."""
        return len(self.order)

    @property
    def tags(self) -> tuple[str, ...]:
        """The metadata tags that stand before a piece now and then."""
        found = {tag for source in self.sources.values() for tag in source.store.tags}
        return tuple(tag.text for tag in TAGS if tag in found)

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to the workers of a `DataLoader` as folders to map, and not as what lies in them."""
        sources = {
            name: (source.store.folder, tuple(source.packings), source.both_strands)
            for name, source in self.sources.items()
        }
        return _reopened, (self.order, sources, self.prefixes)

    def __getitem__(self, i: int) -> Row:
        """Tokenize sample `i`."""
        sample = self.order[i]
        return _lay_out(self.pieces(sample), sample.row_tokens)

    def reordered(self, seed: int, spans: Sequence[SpanRows]) -> "TokenRows":
        """Return the rows of another course through the same sources."""
        return ordered_rows(seed, spans, self.sources, self.prefixes)

    def reading(self, sample: Sample) -> Reading:
        """Return what is random about a sample."""
        reverse = self.sources[sample.source].both_strands and bool(sample.noise & 1)
        form = _FORMS[(sample.noise >> 1 & 0xFFFFFF) % len(_FORMS)]
        return Reading((sample.noise >> 32) % K, reverse, *form)

    def pieces(self, sample: Sample) -> list[Piece]:
        """Return the pieces of a sample's row, in order."""
        source, reading = self.sources[sample.source], self.reading(sample)
        store, packing = source.store, source.packings[sample.row_tokens]
        first, last = packing.row_start[sample.row : sample.row + 2].tolist()
        result = []
        for record, start, num_kmers in zip(
            packing.record[first:last].tolist(),
            packing.start[first:last].tolist(),
            packing.num_kmers[first:last].tolist(),
            strict=True,
        ):
            start += reading.offset
            prefix = _prefix(int(store.species[record]), int(store.genes[record]), reading)
            prefix, num_kmers = self._fitted(prefix, num_kmers)
            letters = store.letters(record, start, start + num_kmers * K)
            if reading.reverse:
                letters = _COMPLEMENT[letters[::-1]]
            result.append(Piece(record, start, letters, prefix))
        return result

    def _fitted(self, prefix: Prefix, num_kmers: int) -> tuple[Prefix, int]:
        """Return the ids that open a piece, and the 6-mers that are left beside them.

        A row has room for three ids a piece. Tags that are spelt with more take the place of the
        last 6-mers, and are left out of a piece with no more 6-mers than that.
        """
        if not self.prefixes:
            return prefix, num_kmers
        prefix = self.prefixes.get(prefix, prefix)
        too_many = max(0, len(prefix) - MAX_PREFIX_TOKENS)
        if too_many >= num_kmers:
            return prefix[-1:], num_kmers
        return prefix, num_kmers - too_many


def ordered_rows(
    seed: int,
    spans: Sequence[SpanRows],
    sources: Mapping[str, PackedSource],
    prefixes: Mapping[Prefix, Prefix] | None = None,
) -> TokenRows:
    """Return the rows of a run: its spans, each with sources packed into rows of its length."""
    rows_of_stream = {
        (name, row_tokens): packing.num_rows
        for name, source in sources.items()
        for row_tokens, packing in source.packings.items()
    }
    return TokenRows(SampleOrder(seed, spans, rows_of_stream), sources, prefixes)


def _reopened(
    order: SampleOrder,
    sources: Mapping[str, tuple[Path, tuple[int, ...], bool]],
    prefixes: Mapping[Prefix, Prefix],
) -> TokenRows:
    return TokenRows(
        order,
        {
            name: open_packed(mapped_store(folder), lengths_tokens, both_strands)
            for name, (folder, lengths_tokens, both_strands) in sources.items()
        },
        prefixes,
    )


def _prefix(species: int, gene: int, reading: Reading) -> Prefix:
    tags: tuple[int, ...] = ()
    if reading.with_species and species >= 0:
        tags = (FIRST_ID["species"] + species,)
    if reading.with_gene and gene >= 0:
        tags += (FIRST_ID["gene"] + gene,)
    return (*tags, NATIVE.dna_start)


def _lay_out(pieces: list[Piece], row_tokens: int) -> Row:
    """Put pieces one behind the other; the last token of each has nothing to predict.

    The letters of all pieces are cut into 6-mers by one call, each begun at a multiple of six.
    """
    num_kmers = [-(-len(piece.letters) // K) for piece in pieces]
    letters = np.full(K * sum(num_kmers), ord("-"), dtype=np.uint8)
    at = 0
    for piece, count in zip(pieces, num_kmers, strict=True):
        letters[K * at : K * at + len(piece.letters)] = piece.letters
        at += count
    kmers = encode_kmers(letters)
    row = Row(
        np.full(row_tokens, NATIVE.pad, dtype=np.int64),
        np.zeros(row_tokens, dtype=np.int64),
        np.zeros(row_tokens, dtype=np.int64),
        np.zeros(row_tokens, dtype=np.uint8),
    )
    at = first = 0
    for piece, count in zip(pieces, num_kmers, strict=True):
        body, end = at + len(piece.prefix), at + len(piece.prefix) + count
        indices, known = kmers.indices[first : first + count], kmers.known[first : first + count]
        row.input_ids[at:body] = piece.prefix
        row.input_ids[body:end] = indices + NATIVE.first_kmer
        row.input_ids[body:end][known != ALL_KNOWN] = NATIVE.oov
        if count and known[-1] == (1 << (len(piece.letters) - 1) % K + 1) - 1:
            row.input_ids[end - 1] = indices[-1] + NATIVE.first_kmer  # a tail has no gap
        row.position_ids[at:end] = np.arange(end - at)
        row.targets[body - 1 : end - 1] = indices
        row.known[body - 1 : end - 1] = known
        at, first = end, first + count
    row.position_ids[at:] = np.arange(row_tokens - at)
    return row
