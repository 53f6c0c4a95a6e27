"""Marks that the attributes of a feature set: pseudogene, exception, slippage, trans-splicing.

Attributes of GFF3 and GTF and qualifiers of INSDC are read alike: by key in lower case, each value
as text. Only the keys named here are read, never free text such as a note.
"""

from collections.abc import Mapping

Attributes = Mapping[str, str]
_NEGATIONS = frozenset({"false", "f", "no", "n", "none", "0", "."})
_BIOTYPES = ("gene_biotype", "gene_type", "biotype", "transcript_biotype", "transcript_type")
_SLIPPAGE, _TRANS_SPLICING = "ribosomal slippage", "trans splicing"
# One of these keys is on every line that sets a mark, except for those of a CDS alone.
MARK_KEYS = frozenset({
    "pseudo", "pseudogene", "exception", "ribosomal_slippage", "trans_splicing",
    "transl_except", "tag", "cds_start_nf", "cds_end_nf",
})  # fmt: skip


def is_set(attributes: Attributes, key: str) -> bool:
    """Tell whether a key stands alone, or with any value but a negation such as `false`.

    >>> is_set({"pseudo": "True"}, "pseudo"), is_set({"pseudo": "false"}, "pseudo")
    (True, False)
    """
    value = attributes.get(key)
    return value is not None and _plain(value) not in _NEGATIONS


def is_pseudo(attributes: Attributes) -> bool:
    """Tell whether a feature is marked as pseudo, or names its type of pseudogene."""
    return is_set(attributes, "pseudo") or is_set(attributes, "pseudogene")


def is_pseudogene_type(name: str) -> bool:
    """Tell whether a feature type or a biotype is that of a gene whose CDS is not translated.

    Some individuals translate a polymorphic pseudogene, and GENCODE knows translated ones.

    >>> is_pseudogene_type("transcribed_processed_pseudogene"), is_pseudogene_type("gene")
    (True, False)
    """
    plain = _plain(name)
    if plain.startswith(("polymorphic", "translated")):
        return False
    return plain.endswith("pseudogene") or plain.startswith("pseudogenic")


def is_pseudogene(kind: str, attributes: Attributes) -> bool:
    """Tell whether a gene or transcript is marked as pseudo, or its type or biotype says so."""
    types = (kind, *(attributes.get(key, "") for key in _BIOTYPES))
    return is_pseudo(attributes) or any(map(is_pseudogene_type, types))


def slips(attributes: Attributes) -> bool:
    """Tell whether the ribosome slips on a CDS."""
    return is_set(attributes, "ribosomal_slippage") or _SLIPPAGE in _exceptions(attributes)


def is_trans_spliced(attributes: Attributes) -> bool:
    """Tell whether a feature is marked as joined from several transcripts."""
    return is_set(attributes, "trans_splicing") or _TRANS_SPLICING in _exceptions(attributes)


def is_exceptional(attributes: Attributes) -> bool:
    """Tell whether codons cannot be read off a CDS: it is pseudo, or has another exception.

    A ribosome that slips makes a whole protein all the same, and so does trans-splicing.
    """
    return is_pseudo(attributes) or bool(_exceptions(attributes) - {_SLIPPAGE, _TRANS_SPLICING})


def has_completed_stop(attributes: Attributes) -> bool:
    """Tell whether the tail of the messenger completes the stop codon, which the genome lacks."""
    return "aa:term" in attributes.get("transl_except", "").casefold()


def has_recoded_codon(attributes: Attributes) -> bool:
    """Tell whether `transl_except` names an amino acid, and not only a completed stop codon."""
    exceptions = attributes.get("transl_except", "").casefold()
    return exceptions.count("aa:") > exceptions.count("aa:term")


def ends_not_found(attributes: Attributes) -> tuple[bool, bool]:
    """Tell whether a tag says that the start, and that the end, of a CDS was not found."""
    tags = _words(attributes, "tag")
    return tuple(f"{end} nf" in tags or is_set(attributes, f"{end.replace(' ', '_')}_nf")
                 for end in ("cds start", "cds end"))  # type: ignore[return-value]  # fmt: skip


def partial_ends(attributes: Attributes) -> tuple[bool, bool] | None:
    """Return whether a CDS goes on beyond its left and its right end on the contig.

    Prodigal writes both as digits, `partial=10`; NCBI names an end by `start_range` or `end_range`,
    left and right on the contig, too. None where the feature is partial at an end that is not
    named.
    """
    left, right = "start_range" in attributes, "end_range" in attributes
    digits = attributes.get("partial", "").strip("\"' ")
    if len(digits) == 2 and set(digits) <= {"0", "1"}:
        return left or digits[0] == "1", right or digits[1] == "1"
    return None if is_set(attributes, "partial") and not (left or right) else (left, right)


def _exceptions(attributes: Attributes) -> set[str]:
    return _words(attributes, "exception") - _NEGATIONS


def _words(attributes: Attributes, key: str) -> set[str]:
    """Return the values of a key, in one spelling."""
    return {_plain(value) for value in attributes.get(key, "").split(",")} - {""}


def _plain(value: str) -> str:
    return value.casefold().replace("_", " ").replace("-", " ").strip("\"' ")
