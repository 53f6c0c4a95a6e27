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
from carbon.tokenizer.vocabulary import (
    GENE_TAGS,
    HYBRID,
    NATIVE,
    SPECIES_TAGS,
    Vocabulary,
    native_tokens,
)

__all__ = [
    "ALL_KNOWN",
    "BASES",
    "GENE_TAGS",
    "HYBRID",
    "KMER_DIGITS",
    "NATIVE",
    "NUM_KMERS",
    "REVERSE_COMPLEMENT",
    "SPECIES_TAGS",
    "Encoding",
    "K",
    "Kmers",
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
]
