"""Rows of tokens for training: the input, targets and masks of each sample number."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.corpus.order import Sample, SampleOrder, SpanRows
from carbon.corpus.packing import MAX_PREFIX_TOKENS, Packing, open_packing
from carbon.corpus.store import FIRST_ID, RecordStore, mapped_store
from carbon.tokenizer import ALL_KNOWN, NATIVE, TAGS, K, encode_kmers

Int64s = NDArray[np.int64]
Prefix = tuple[int, ...]

# Forms of a sample (technical report, section 3): half without tags, and a sixth each with both
# tags, only the species tag, and only the gene tag.
_FORMS = ((False, False),) * 3 + ((True, True), (True, False), (False, True))
_COMPLEMENT = np.frombuffer(bytes.maketrans(b"ACGTacgt", b"TGCAtgca"), dtype=np.uint8)


class TokenRow(NamedTuple):
    """One row of T tokens; `targets` and `known` at position t describe the token at t + 1.

    Attributes:
        input_ids: (T,) int64, padded on the right.
        position_ids: (T,) int64, from 0 in every segment and in the padding.
        targets: (T,) int64, index of the next 6-mer.
        known: (T,) uint8, bits of the known bases of the next 6-mer; 0 without a target. With soft
            masks int16, whose next six bits are the known bases that are soft-masked (lower case).
    """

    input_ids: Int64s
    position_ids: Int64s
    targets: Int64s
    known: NDArray[np.uint8] | NDArray[np.int16]


class PackedSource(NamedTuple):
    """Records of a source, their packings by row length, and whether both strands are read."""

    store: RecordStore
    packings: Mapping[int, Packing]
    both_strands: bool


def open_packed(
    store: RecordStore, lengths_tokens: Iterable[int], both_strands: bool
) -> PackedSource:
    """Return a source packed into rows of each length; missing packings are made on disk."""
    return PackedSource(store, {n: open_packing(store, n) for n in lengths_tokens}, both_strands)


class PackedSegment(NamedTuple):
    """A segment of a record in a row.

    Attributes:
        record: number of the record in the source.
        start: first base in the record.
        letters: (bases,) uint8, along the strand that is read.
        prefix: ids of tags and `<dna>`.
    """

    record: int
    start: int
    letters: NDArray[np.uint8]
    prefix: Prefix


class Reading(NamedTuple):
    """Random choices of a sample: k-mer offset (0 to 5), strand and tags."""

    offset: int
    reverse: bool
    with_species: bool
    with_gene: bool


class TokenRows:
    """A map-style dataset: `rows[i]` is sample `i` of the run, the same in every process."""

    def __init__(
        self,
        order: SampleOrder,
        sources: Mapping[str, PackedSource],
        prefixes: Mapping[Prefix, Prefix] | None = None,
        soft_masks: bool = False,
    ) -> None:
        """Combine an order with its sources.

        Args:
            order: source and row of each sample.
            sources: sources by name.
            prefixes: replacements of the native ids before a segment, for a model with other ids;
                `<dna>` stays the last id.
            soft_masks: include which bases are soft-masked.
        """
        self.order = order
        self.sources = sources
        self.prefixes = prefixes or {}
        self.soft_masks = soft_masks

    def __len__(self) -> int:
        """Return the number of rows of the whole run."""
        return len(self.order)

    @property
    def tags(self) -> tuple[str, ...]:
        """Metadata tags that may precede a segment."""
        used = {tag for source in self.sources.values() for tag in source.store.tags}
        return tuple(tag.text for tag in TAGS if tag in used)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folders to map, instead of their contents, for the workers of a DataLoader."""
        sources = {
            name: (source.store.folder, tuple(source.packings), source.both_strands)
            for name, source in self.sources.items()
        }
        return _reopened, (self.order, sources, self.prefixes, self.soft_masks)

    def __getitem__(self, i: int) -> TokenRow:
        """Tokenize sample `i`."""
        sample = self.order[i]
        return _lay_out(self.segments(sample), sample.row_tokens, self.soft_masks)

    def reordered(self, seed: int, spans: Sequence[SpanRows]) -> "TokenRows":
        """Return the rows of the same sources in another order."""
        return ordered_rows(seed, spans, self.sources, self.prefixes, self.soft_masks)

    def reading(self, sample: Sample) -> Reading:
        """Return the random choices of a sample."""
        reverse = self.sources[sample.source].both_strands and bool(sample.noise & 1)
        form = _FORMS[(sample.noise >> 1 & 0xFFFFFF) % len(_FORMS)]
        return Reading((sample.noise >> 32) % K, reverse, *form)

    def segments(self, sample: Sample) -> list[PackedSegment]:
        """Return the segments of a sample's row, in order."""
        source, reading = self.sources[sample.source], self.reading(sample)
        store, packing = source.store, source.packings[sample.row_tokens]
        first, last = packing.row_start[sample.row : sample.row + 2].tolist()
        segments = []
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
            segments.append(PackedSegment(record, start, letters, prefix))
        return segments

    def _fitted(self, prefix: Prefix, num_kmers: int) -> tuple[Prefix, int]:
        """Return the ids before a segment, and the number of 6-mers that fit after them.

        A row has room for three such ids per segment. Further ids of the tags replace the last
        6-mers; if a segment has too few 6-mers, its tags are left out.
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
    soft_masks: bool = False,
) -> TokenRows:
    """Return the rows of a run.

    Args:
        seed: seed of the order.
        spans: phases of the run, or parts of them.
        sources: sources by name, packed into the row lengths of the spans.
        prefixes: see `TokenRows`.
        soft_masks: see `TokenRows`.
    """
    rows_of_stream = {
        (name, row_tokens): packing.num_rows
        for name, source in sources.items()
        for row_tokens, packing in source.packings.items()
    }
    return TokenRows(SampleOrder(seed, spans, rows_of_stream), sources, prefixes, soft_masks)


def _reopened(
    order: SampleOrder,
    sources: Mapping[str, tuple[Path, tuple[int, ...], bool]],
    prefixes: Mapping[Prefix, Prefix],
    soft_masks: bool,
) -> TokenRows:
    return TokenRows(
        order,
        {
            name: open_packed(mapped_store(folder), lengths_tokens, both_strands)
            for name, (folder, lengths_tokens, both_strands) in sources.items()
        },
        prefixes,
        soft_masks,
    )


def _prefix(species: int, gene: int, reading: Reading) -> Prefix:
    tags: tuple[int, ...] = ()
    if reading.with_species and species >= 0:
        tags = (FIRST_ID["species"] + species,)
    if reading.with_gene and gene >= 0:
        tags += (FIRST_ID["gene"] + gene,)
    return (*tags, NATIVE.begin)


def _lay_out(segments: list[PackedSegment], row_tokens: int, soft_masks: bool) -> TokenRow:
    """Place segments in a row; the last token of each segment has no target.

    The letters of all segments are cut into 6-mers by one call, each segment from a multiple of
    six.
    """
    num_kmers = [-(-len(segment.letters) // K) for segment in segments]
    letters = np.full(K * sum(num_kmers), ord("-"), dtype=np.uint8)
    at = 0
    for segment, count in zip(segments, num_kmers, strict=True):
        letters[K * at : K * at + len(segment.letters)] = segment.letters
        at += count
    kmers = encode_kmers(letters)
    bits_of_known = _with_soft_masks(kmers.known, letters) if soft_masks else kmers.known
    row = TokenRow(
        np.full(row_tokens, NATIVE.pad, dtype=np.int64),
        np.zeros(row_tokens, dtype=np.int64),
        np.zeros(row_tokens, dtype=np.int64),
        np.zeros(row_tokens, dtype=bits_of_known.dtype),
    )
    at = first = 0
    for segment, count in zip(segments, num_kmers, strict=True):
        body, end = at + len(segment.prefix), at + len(segment.prefix) + count
        indices, known = kmers.indices[first : first + count], kmers.known[first : first + count]
        row.input_ids[at:body] = segment.prefix
        row.input_ids[body:end] = indices + NATIVE.first_kmer
        row.input_ids[body:end][known != ALL_KNOWN] = NATIVE.other
        if count and known[-1] == (1 << (len(segment.letters) - 1) % K + 1) - 1:
            row.input_ids[end - 1] = indices[-1] + NATIVE.first_kmer  # padding is not a gap
        row.position_ids[at:end] = np.arange(end - at)
        row.targets[body - 1 : end - 1] = indices
        row.known[body - 1 : end - 1] = bits_of_known[first : first + count]
        at, first = end, first + count
    row.position_ids[at:] = np.arange(row_tokens - at)
    return row


def _with_soft_masks(known: NDArray[np.uint8], letters: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Return the bits of known bases, and above them the bits of soft-masked known bases."""
    is_lower = (letters >= ord("a")).reshape(-1, K)
    masked = np.packbits(is_lower, axis=1, bitorder="little")[:, 0] & known
    bits: NDArray[np.int16] = known | masked.astype(np.int16) << K
    return bits
