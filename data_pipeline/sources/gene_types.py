"""From the biotypes of Ensembl, GENCODE and NCBI to the gene types of the released corpus."""

from carbon.tokenizer import GENE_TAG_OF

_EXACT_TYPES = {"protein_coding": "cds", "misc_RNA": "misc_RNA", "tmRNA": "tmRNA"}
_TYPE_ENDINGS = (("pseudogene", "pseudo"), ("tRNA", "tRNA"), ("rRNA", "rRNA"), ("RNA", "ncRNA"))


def gene_type_of(biotype: str) -> str:
    """Return the corpus's gene type of an annotation's biotype, or an empty string."""
    if biotype in GENE_TAG_OF:
        return biotype
    endings = (kind for ending, kind in _TYPE_ENDINGS if biotype.endswith(ending))
    return _EXACT_TYPES.get(biotype) or next(endings, "")
