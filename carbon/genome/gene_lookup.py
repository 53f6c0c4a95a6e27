"""A gene by its name."""

from collections.abc import Iterable
from difflib import get_close_matches

from carbon.errors import GenomeError, TypedError
from carbon.genome.genes import Annotation, Gene

_SHOWN = 5


def find_gene(annotation: Annotation, name: str) -> Gene:
    """Return the gene of this name or identifier, or that of a transcript of this identifier.

    Raises:
        TypedError: there is none, and which names are near.
        GenomeError: there are several, and where.
    """
    found = [gene for gene in annotation.genes if gene.gene_id == name]
    found = found or [gene for gene in annotation.genes if gene.name == name]
    found = found or [
        gene for gene in annotation.genes if any(t.transcript_id == name for t in gene.transcripts)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        places = [f"{gene.gene_id} at {gene.interval.to_region()}" for gene in found[:_SHOWN]]
        raise GenomeError(
            f"gene '{name}': {annotation.path} has {len(found)} of that name: {', '.join(places)}; "
            "give an identifier, or a region"
        )
    names = [text for gene in annotation.genes for text in (gene.gene_id, gene.name)]
    near = near_names(name, names)
    hint = f"near names: {', '.join(near)}" if near else "no name is near it; is it the assembly's?"
    raise TypedError(f"gene '{name}': is not in {annotation.path}; {hint}", name, 0, name, near)


def near_names(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the few names that are spelled most like one, in either case."""
    known = {text.casefold(): text for text in names}
    return tuple(known[text] for text in get_close_matches(name.casefold(), known, _SHOWN))
