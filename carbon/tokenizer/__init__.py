"""DNA as tokens: the 6-mer code, the two vocabularies, the native tokenizer."""

from carbon.tokenizer.dna import (
    Encoding,
    decode,
    decode_ids,
    encode,
    encode_batch,
)
from carbon.tokenizer.kmer import (
    ALL_KNOWN,
    BASES,
    KMER_DIGITS,
    NUM_KMERS,
    REVERSE_COMPLEMENT,
    K,
    Kmers,
    decode_kmers,
    encode_kmers,
    known_bases,
    reverse_complement_kmers,
)
from carbon.tokenizer.stock import save_stock_tokenizer
from carbon.tokenizer.tags import (
    GENE_TAG_OF,
    GENE_TAGS,
    SPECIES_TAG_OF,
    SPECIES_TAGS,
    TAGS,
    Tag,
    tags_of,
)
from carbon.tokenizer.vocabulary import HYBRID, NATIVE, Vocabulary, native_tokens

__all__ = [
    "ALL_KNOWN",
    "BASES",
    "GENE_TAGS",
    "GENE_TAG_OF",
    "HYBRID",
    "KMER_DIGITS",
    "NATIVE",
    "NUM_KMERS",
    "REVERSE_COMPLEMENT",
    "SPECIES_TAGS",
    "SPECIES_TAG_OF",
    "TAGS",
    "Encoding",
    "K",
    "Kmers",
    "Tag",
    "Vocabulary",
    "decode",
    "decode_ids",
    "decode_kmers",
    "encode",
    "encode_batch",
    "encode_kmers",
    "known_bases",
    "native_tokens",
    "reverse_complement_kmers",
    "save_stock_tokenizer",
    "tags_of",
]
