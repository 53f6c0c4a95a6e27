"""The sources of a corpus, one entry each.

A source is a kind of cut: the extent of its records, and how they are filtered, deduplicated and
read in training. To add a source, add its function to `data_pipeline.cuts` or a module next to it,
and its entry here.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from carbon.errors import UserError
from data_pipeline.cuts import (
    AnnotatedAssembly,
    Found,
    contig_chunks,
    five_prime_utrs,
    gene_regions,
    promoter_windows,
    runs_of_gene_regions,
    spliced_transcripts,
    three_prime_utrs,
    transcripts_in_context,
)

PROKARYOTES, ALL_OTHERS = "prokaryotes", "all others"
UNANNOTATED = "those without annotation"
Input = Literal["annotation", "contigs", "regions", "files"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One source.

    Attributes:
        name: of its folder in a corpus, and in mixtures. Corpora are made with it, so it never
            changes.
        cut: yields its records of an assembly.
        both_strands: whether training reads its records on either strand; transcripts have one.
        input: what its records are made of: the annotation or the contigs of an assembly, the
            regions of a BED on it, or the records of files.
        joined: whether its records are joined up to a length of their own, beyond
            `keep.max_record_bp`.
        near_duplicates: whether records that are nearly equal are sought, and one of them kept.
        default_for: the assemblies that it is cut out of where a recipe does not say: PROKARYOTES,
            UNANNOTATED, ALL_OTHERS, or none.
        base_share: of the tokens of the base mixture.
        clade: clade that it is divided by, which follows the whole's name after a hyphen.
    """

    name: str
    cut: Callable[[AnnotatedAssembly], Found]
    both_strands: bool
    input: Input = "annotation"
    joined: bool = False
    near_duplicates: bool = False
    default_for: str = ""
    base_share: float = 0.0
    clade: str = ""


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="eukaryote",
            cut=gene_regions,
            both_strands=True,
            default_for=ALL_OTHERS,
            base_share=0.70,
        ),
        Source(
            name="eukaryote_concatenated",
            cut=runs_of_gene_regions,
            both_strands=True,
            joined=True,
        ),
        Source(
            name="mrna",
            cut=spliced_transcripts,
            both_strands=False,
            near_duplicates=True,
            default_for=ALL_OTHERS,
            base_share=0.16,
        ),
        Source(
            name="mrna_splice",
            cut=transcripts_in_context,
            both_strands=False,
            near_duplicates=True,
            base_share=0.04,
        ),
        Source(
            name="prokaryote",
            cut=contig_chunks,
            both_strands=True,
            input="contigs",
            default_for=PROKARYOTES,
            base_share=0.10,
        ),
        Source(
            name="genome",
            cut=contig_chunks,
            both_strands=True,
            input="contigs",
            default_for=UNANNOTATED,
        ),
        Source(name="utr5", cut=five_prime_utrs, both_strands=False, near_duplicates=True),
        Source(name="utr3", cut=three_prime_utrs, both_strands=False, near_duplicates=True),
        Source(name="promoter", cut=promoter_windows, both_strands=True),
    )
}


def source_of(
    name: str, input_kind: Input, both_strands: bool | None, near_duplicates: bool = False
) -> Source:
    """Return the source of files or regions: an entry of the table, or one with another name.

    Raises:
        UserError: the entry of the table is read differently.
    """
    known = SOURCES.get(name)
    if known is None:
        return Source(
            name=name,
            cut=lambda _: iter(()),  # has no records from an annotation
            both_strands=bool(both_strands),
            input=input_kind,
            near_duplicates=near_duplicates,
        )
    if near_duplicates and not known.near_duplicates:
        raise UserError(
            f"near_duplicates = true for source '{name}', where they stay: name it otherwise"
        )
    if both_strands not in (None, known.both_strands):
        raise UserError(
            f"both_strands = {both_strands} for source '{name}', which is read otherwise: give it "
            "a name of its own"
        )
    return known


def divided(source: Source, clade: str) -> Source:
    """Return the part of a source that is of a clade; the whole if there is none.

    >>> divided(SOURCES["mrna"], "Candidatus Xia").name
    'mrna-Candidatus_Xia'
    """
    clade = re.sub(r"\W+", "_", clade)
    return replace(source, name=f"{source.name}-{clade}", clade=clade) if clade else source


def set_alike(values: dict[str, bool], key: str, source: str, value: bool) -> None:
    """Set the value of a source, of which all inputs must say the same.

    Raises:
        UserError: an input before said something else.
    """
    if values.setdefault(source, value) != value:
        raise UserError(
            f"source '{source}': some inputs say {key} = true, and others false; say of all alike, "
            "or give them names of their own"
        )


def usual_sources(species_type: str, *, annotated: bool = True) -> tuple[str, ...]:
    """Return the sources of an assembly of a species type, by default."""
    assemblies = ALL_OTHERS if annotated else UNANNOTATED
    if species_type == "pro":
        assemblies = PROKARYOTES
    return tuple(name for name, each in SOURCES.items() if each.default_for == assemblies)


def need_annotation(names: Iterable[str]) -> bool:
    """Return whether any of some sources is cut along an annotation."""
    return any(SOURCES[name].input == "annotation" for name in names)
