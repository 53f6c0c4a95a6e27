"""Windows of known classes, in groups that no fold of the cross-validation divides."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np

from carbon.errors import UserError
from carbon.genome import Interval, Reference, read_annotation, reverse_complement
from carbon.progress import say
from carbon.tokenizer import K
from eval.contract import BuildReport
from eval.data import check_name
from eval.tasks.common.building import Source, write_dataset
from eval.tasks.common.held_out import CodingGene, coding_gene

BLOCK_BP = 100_000
"""Of a genome, windows of one block are in one fold."""
_MOST_TRIES = 100  # for a window without an unknown base
CODON_BP = 3
_LEAST_WINDOWS = 20


class Window(NamedTuple):
    """A stretch of DNA.

    Attributes:
        bases: in capitals, of ACGT.
        label: index of its class.
        group: gene, genome or block; windows of one group are in one fold.
    """

    bases: str
    label: int
    group: str


class Drawn(NamedTuple):
    """The windows of a probe.

    Attributes:
        windows: of all classes, as many of each.
        classes: their names.
        notes: whole sentences that a reader must know.
    """

    windows: list[Window]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


class Wanted(NamedTuple):
    """The size of a draw.

    Attributes:
        num_windows: of all classes together.
        window_bp: of each.
        seed: that they follow from.
    """

    num_windows: int
    window_bp: int
    seed: int


def strand_windows(sources: Sequence[Source], wanted: Wanted) -> Drawn:
    """Draw stretches of coding sequence, half of them as the reverse complement."""
    windows = []
    for label, group, stretch in _coding_stretches(sources, wanted, num_classes=2, step_bp=1):
        bases = reverse_complement(stretch) if label else stretch
        windows.append(Window(bases, label, group))
    return Drawn(windows, ("forward", "reverse"))


def phase_windows(sources: Sequence[Source], wanted: Wanted) -> Drawn:
    """Draw stretches of coding sequence that begin at each of the places of a codon."""
    stretches = _coding_stretches(sources, wanted, num_classes=CODON_BP, step_bp=CODON_BP)
    return Drawn(
        [Window(bases, label, group) for label, group, bases in stretches], ("0", "1", "2")
    )


def _coding_stretches(
    sources: Sequence[Source], wanted: Wanted, *, num_classes: int, step_bp: int
) -> Iterator[tuple[int, str, str]]:
    """Yield class, gene and bases: genes by lot, one after another, until there are enough.

    With `step_bp` of three the class is the distance from the last begin of a codon.
    """
    random = np.random.default_rng(wanted.seed)
    genes = _long_genes(sources, wanted.window_bp + CODON_BP)
    order = [genes[i] for i in random.permutation(len(genes))]
    labels = random.permutation(wanted.num_windows) % num_classes
    for label, (group, gene) in zip(labels.tolist(), cycle(order), strict=False):
        first = label if step_bp == CODON_BP else 0
        num_places = (len(gene.cds) - wanted.window_bp - first) // step_bp + 1
        start = first + step_bp * int(random.integers(num_places))
        yield label, group, gene.cds[start : start + wanted.window_bp]


def _long_genes(sources: Sequence[Source], least_bp: int) -> list[tuple[str, CodingGene]]:
    """Return genes whose spliced CDS is long enough, each with the name of its group.

    Raises:
        UserError: no genome has an annotation, or too few genes are long enough.
    """
    annotated = [source for source in sources if source.annotation]
    if not annotated:
        raise UserError("--source: strand and codon_phase need genes; write GROUP=FASTA,ANNOTATION")
    found = []
    for source in annotated:
        assert source.annotation is not None
        with Reference(source.fasta) as reference:
            for gene in read_annotation(source.annotation, reference).genes:
                coding = coding_gene(reference, gene)
                if coding and len(coding.cds) >= least_bp:
                    found.append((f"{source.fasta.name}:{coding.gene_id}", coding))
    if len(found) < 2:
        raise UserError(
            f"--source: {len(found)} genes have an open reading frame of {least_bp:,} bp; give a "
            "smaller --window-bp, or another genome"
        )
    return found


def taxonomy_windows(sources: Sequence[Source], wanted: Wanted) -> Drawn:
    """Draw windows of all genomes, as many of each group, on either strand.

    Whole genomes are kept together where each group has two or more, otherwise blocks of a genome.

    Raises:
        UserError: there is one group only.
    """
    groups = tuple(dict.fromkeys(source.group for source in sources))
    if len(groups) < 2:
        raise UserError("--source: taxonomy needs genomes of two groups or more")
    of_group = [[s for s in sources if s.group == group] for group in groups]
    by_genome = min(map(len, of_group)) > 1
    random = np.random.default_rng(wanted.seed)
    windows: list[Window] = []
    for label, genomes in enumerate(of_group):
        share = wanted.num_windows // len(groups)
        for number, source in enumerate(genomes):
            num = share // len(genomes) + (number < share % len(genomes))
            for block, bases in _of_genome(source, num, wanted.window_bp, random):
                group = source.fasta.name if by_genome else f"{source.fasta.name}:{block}"
                windows.append(Window(bases, label, group))
    note = (
        "Taxonomy: windows of one genome are in one fold."
        if by_genome
        else "Taxonomy: a group has one genome, so single genomes are told apart, which need not "
        f"hold for others. Windows of {BLOCK_BP:,} bp are in one fold."
    )
    return Drawn(windows, groups, (note,))


def _of_genome(
    source: Source, number: int, window_bp: int, random: np.random.Generator
) -> Iterator[tuple[str, str]]:
    """Yield blocks and the bases of a window in each, contigs by their lengths.

    Raises:
        UserError: hardly any window has known bases alone.
    """
    with Reference(source.fasta) as reference:
        lengths_bp = {c: n for c, n in reference.contig_lengths_bp.items() if n >= window_bp}
        if not lengths_bp:
            raise UserError(f"{source.fasta}: no contig has {window_bp:,} bp")
        names, sizes = list(lengths_bp), np.array(list(lengths_bp.values()), dtype=float)
        for _ in range(number):
            for _ in range(_MOST_TRIES):
                contig = names[int(random.choice(len(names), p=sizes / sizes.sum()))]
                start = int(random.integers(lengths_bp[contig] - window_bp + 1))
                start -= max(0, start % BLOCK_BP + window_bp - BLOCK_BP)  # none is of two blocks
                bases = reference.fetch(Interval(contig, start, start + window_bp)).upper()
                if not set(bases) - set("ACGT"):
                    break
            else:
                raise UserError(f"{source.fasta}: windows of {window_bp:,} bp have unknown bases")
            turned = bool(random.integers(2))
            yield f"{contig}:{start // BLOCK_BP}", reverse_complement(bases) if turned else bases


Draw = Callable[[Sequence[Source], Wanted], Drawn]

QUESTIONS: dict[str, Draw] = {
    "strand": strand_windows,
    "codon_phase": phase_windows,
    "taxonomy": taxonomy_windows,
}
"""Each draws the windows of a question: forward or reverse, place in a codon, group of genomes."""


def build(
    output: Path,
    *,
    sources: Sequence[Source],
    questions: str = "all",
    num_examples: int = 600,
    window_bp: int = 600,
    seed: int = 0,
) -> BuildReport:
    """Draw windows of known strand, place in a codon, and group of genomes.

    Args:
        output: Parquet to write.
        sources: genomes, each with its group; strand and codon phase need annotations, taxonomy
            needs two groups.
        questions: all that the genomes allow, or some of strand,codon_phase,taxonomy.
        num_examples: windows of each question, of all classes together.
        window_bp: bases of a window, a multiple of 6.
        seed: of the draw.

    Raises:
        UserError: a question does not exist or lacks its genomes, or no window can be drawn.
    """
    if window_bp % K or not 0 < window_bp <= BLOCK_BP:
        raise UserError(
            f"--window-bp {window_bp}: give a multiple of {K}, up to {BLOCK_BP:,}; the last 6-mer "
            "must be whole"
        )
    if num_examples < _LEAST_WINDOWS:
        raise UserError(f"--examples {num_examples}: give {_LEAST_WINDOWS} or more")
    drawn = {
        name: QUESTIONS[name](sources, Wanted(num_examples, window_bp, seed))
        for name in _chosen(questions, sources)
    }
    rows = [
        {
            "question": name,
            "sequence": window.bases,
            "class": each.classes[window.label],
            "group": window.group,
            "note": " ".join(each.notes),
        }
        for name, each in drawn.items()
        for window in each.windows
    ]
    inputs = [path for source in sources for path in source[1:] if isinstance(path, Path)]
    settings = {
        "task": "representation",
        "questions": list(drawn),
        "num_examples": num_examples,
        "window_bp": window_bp,
        "seed": seed,
    }
    return write_dataset(output, rows, Counter(), inputs, settings)


def _chosen(questions: str, sources: Sequence[Source]) -> list[str]:
    """Return the questions; of `all` the questions that the genomes allow."""
    if questions != "all":
        for name in questions.split(","):
            check_name(name, list(QUESTIONS), "--questions")
        return questions.split(",")
    lacks: dict[str, str] = {}
    if not any(source.annotation for source in sources):
        lacks |= dict.fromkeys(("strand", "codon_phase"), "no genome has an annotation")
    if len({source.group for source in sources}) < 2:
        lacks["taxonomy"] = "there is one group of genomes"
    for name, reason in lacks.items():
        say(f"{name} is left out: {reason}")
    return [name for name in QUESTIONS if name not in lacks]
