"""What a corpus is on disk, and the order in which a run reads it."""

from carbon.corpus.order import SHARE_UNITS, Blend, Sample, SampleOrder, StageRows, permuted
from carbon.corpus.packing import Packing, pack
from carbon.corpus.rows import GENE_TAG_OF, SPECIES_TAG_OF, PackedSource, Row, TokenRows
from carbon.corpus.schema import SCHEMA, Split, read_manifest, read_source

__all__ = [
    "GENE_TAG_OF",
    "SCHEMA",
    "SHARE_UNITS",
    "SPECIES_TAG_OF",
    "Blend",
    "PackedSource",
    "Packing",
    "Row",
    "Sample",
    "SampleOrder",
    "Split",
    "StageRows",
    "TokenRows",
    "pack",
    "permuted",
    "read_manifest",
    "read_source",
]
