"""Rows of tokens: from sample number to what the trainer feeds the network."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from carbon.corpus.order import SampleOrder
from carbon.corpus.packing import Packing
from carbon.genome import reverse_complement
from carbon.tokenizer import NATIVE, Encoding, K, encode

Int64s = NDArray[np.int64]

# Forms of a sample (technical report, section 3): half bare, and a sixth each with both tags,
# the species tag alone, the gene tag alone.
_FORMS = ((False, False),) * 3 + ((True, True), (True, False), (False, True))

SPECIES_TAG_OF = {
    "mam": "<mammalian_species>",
    "vrt": "<vertebrate_non_mammalian_species>",
    "inv": "<invertebrate_species>",
    "pln": "<plant_species>",
    "fng": "<fungi_species>",
    "prt": "<protozoa_species>",
    "pro": "<prokaryote_species>",
}
GENE_TAG_OF = {
    "cds": "<protein_coding_region>",
    "pseudo": "<pseudo_gene>",
    "tRNA": "<transfer_rna>",
    "tmRNA": "<transfer_messenger_rna>",
    "ncRNA": "<non_coding_rna>",
    "misc_RNA": "<miscellaneous_rna>",
    "rRNA": "<ribosomal_rna>",
}


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
    """A source's records (Arrow, not copied) and their packing; DNA may be read on both strands."""

    records: pa.Table
    packing: Packing
    flip_strands: bool


class TokenRows:
    """A map-style dataset: `rows[i]` is sample `i` of the run, whoever asks and whenever."""

    def __init__(
        self, order: SampleOrder, sources: Mapping[str, PackedSource], row_tokens: int
    ) -> None:
        """Combine an order with the sources it names."""
        self._order = order
        self._sources = sources
        self._row_tokens = row_tokens

    def __len__(self) -> int:
        """Return the rows of the whole run."""
        return len(self._order)

    def __getitem__(self, i: int) -> Row:
        """Tokenize sample `i`."""
        sample = self._order[i]
        source = self._sources[sample.source]
        frame = (sample.noise >> 32) % K
        flip = source.flip_strands and bool(sample.noise & 1)
        form = _FORMS[(sample.noise >> 1 & 0xFFFFFF) % len(_FORMS)]
        pieces = range(*source.packing.row_start[sample.row : sample.row + 2])
        encodings = [_encode_piece(source, piece, frame, flip, form) for piece in pieces]
        return _lay_out(encodings, self._row_tokens)


def _encode_piece(
    source: PackedSource, piece: int, frame: int, flip: bool, form: tuple[bool, bool]
) -> Encoding:
    """Read a piece `frame` bases further on, on the strand and with the tags that were drawn."""
    record = int(source.packing.record[piece])
    start = int(source.packing.start[piece]) + frame
    sequence = source.records["sequence"][record].as_py()
    bases = sequence[start : start + int(source.packing.num_kmers[piece]) * K]
    if flip:
        bases = reverse_complement(bases)
    return encode(bases, tags=_tags(source.records, record, form))


def _tags(records: pa.Table, record: int, form: tuple[bool, bool]) -> tuple[str, ...]:
    with_species, with_gene = form
    species = SPECIES_TAG_OF.get(records["species_type"][record].as_py() or "")
    gene = GENE_TAG_OF.get(records["gene_type"][record].as_py() or "")
    wanted = ((with_species, species), (with_gene, gene))
    return tuple(tag for drawn, tag in wanted if drawn and tag)


def _lay_out(encodings: list[Encoding], row_tokens: int) -> Row:
    """Put pieces one behind the other; the last token of each has nothing to predict."""
    input_ids = np.full(row_tokens, NATIVE.pad, dtype=np.int64)
    position_ids = np.zeros(row_tokens, dtype=np.int64)
    targets = np.zeros(row_tokens, dtype=np.int64)
    known = np.zeros(row_tokens, dtype=np.uint8)
    at = 0
    for encoding in encodings:
        end = at + len(encoding.ids)
        input_ids[at:end] = encoding.ids
        position_ids[at:end] = np.arange(end - at)
        targets[at : end - 1] = encoding.kmers[1:]
        known[at : end - 1] = encoding.known[1:]
        at = end
    position_ids[at:] = np.arange(row_tokens - at)
    return Row(input_ids, position_ids, targets, known)
