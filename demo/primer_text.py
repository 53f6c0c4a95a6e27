"""The sections of the primer: prose that includes results computed from the sequence."""

import math
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

from carbon.genome.alphabet import gc_share
from carbon.tokenizer import K
from demo.gene_summary import many
from demo.markup import escape, link_chip

Facts = dict[str, Any]
_OPEN = {"bases": "·" * K, "index": "?"}


def strands(result: Facts) -> str:
    """Return the section on the location of the sequence and its two strands."""
    bases, said = result["sequence"], result["said"]
    known = f"Why people know it: {result['known_for']}" if result["known_for"] else ""
    return _station(
        "1. On the chromosome",
        f"""One sequence travels down this page: {escape(said["origin"])} {escape(said["place"])}
        {escape(known)}""",
        f"""Below are the {len(bases)} bases that travel, {100 * gc_share(bases):.0f} % of them G or
        C, and under them what the other strand says.""",
        _dna([bases], "5' to 3'")
        + _dna([result["reverse_complement"]], "the other strand, 5' to 3'"),
        """DNA is a text of four letters, the bases A, C, G and T, without words, blanks or full
        stops: from 10<sup>6</sup> of them in a bacterium to more than 10<sup>10</sup> in some
        plants. It has two strands. Where one has A the other has T, where one has C the other has
        G, and the other is read backwards. So every text has a second reading, its <em>reverse
        complement</em>, and a gene may stand in either. The cell does not read the chromosome
        itself: it copies the gene, and cuts the copy.""",
    )


def splicing(result: Facts) -> str:
    """Return the section on splicing: introns of the gene, and exons that contain the sequence."""
    said = result["said"]
    return _station(
        "2. Cut and joined",
        f"""{escape(said["exons"])} {escape(said["splicing"])} Coding bases are thick in the
        figure{", and the bases that travel are orange" if result["regions"] else ""}.""",
    )


SPLICING = """<div class="primer"><p>A gene is a stretch that the cell copies into RNA. In plants,
    animals and fungi the copy is then cut: the <em>introns</em> are thrown out and the
    <em>exons</em> joined, which is called splicing. Nearly all introns begin with GT and end with
    AG, but most GTs begin no intron. What tells them apart is context, which is what a language
    model is good at. A change of one of these letters can undo a gene. What is left after the cut
    is read, three bases at a time.</p></div>"""


def codons(result: Facts) -> str:
    """Return the section on the codons of the sequence."""
    gene, bases, protein = result["gene"], result["sequence"], result["protein"]
    counted = "Name a gene with a known structure, and its codons are counted here."
    if gene:
        counted = f"""The bars count the codons of all of {escape(gene["name"])}: where an amino
            acid has several, a genome prefers some."""
    return _station(
        "3. Read by the cell, in threes",
        f"""Read from the first base on, the sequence is {many(len(protein), "codon")}. Below each
        is the amino acid that it stands for; * is a stop. {counted}""",
        _dna([bases[3 * n : 3 * n + 3] for n in range(len(protein))], "codons", protein),
    )


CODONS = """<div class="primer"><p>Each of the 64 <em>codons</em> stands for one of 20 amino acids,
    or for the end. The code says most things in several ways, mostly by the third base: changes
    there are often silent, and a good model finds them likelier than others. Codons make a reading
    frame of
    three: a base put in or taken out shifts all that follows. The model is told nothing of codons,
    and reads the same bases by sixes.</p></div>"""


def kmers(result: Facts) -> str:
    """Return the section on the tokens of the sequence at two offsets."""
    bases, (first, second) = result["sequence"], result["offsets"]
    state = {"text": bases, "shift": str(second["offset"])}
    return _station(
        "4. Read by the model, in sixes",
        f"""The model reads the same {many(len(bases), "base")} as
        {many(len(first["kmers"]), "token")} of six. Below each is its number. With
        {many(second["offset"], "base")} left out at the start, the rest makes other tokens.""",
        _tokens(first["kmers"], "offset 0")
        + _tokens(second["kmers"], f"offset {second['offset']}, less {bases[: second['offset']]}"),
        """A language model reads <em>tokens</em> and says, at each place, how likely every token is
        to come next. Text models learn theirs from data; Carbon's are all 4<sup>6</sup> = 4,096
        6-mers, numbered as digits to the base of four (A=0, T=1, C=2, G=3). So a context holds six
        times as many bases, and a token two codons. The price: nothing in DNA says where the first
        token begins, and there are six <em>offsets</em>. Training cuts in all of them, and scores
        can be averaged over them. Now the last six bases are covered, and the model is to guess
        them.""",
        _links(("/tokenizer", "Strands and offsets of these tokens", state)),
    )


def token(result: Facts) -> str:
    """Return the section on what the model has read and its prediction of the next 6-mer."""
    read = result["read"]
    return _station(
        "5. The model guesses what comes next",
        f"""The model has read {many(len(read), "token")} and guesses the next, which is open. Of
        4,096 6-mers it finds <strong>{escape(result["best"])}</strong> likeliest, with probability
        {result["best_probability"]:.6f}. What stands there is
        <strong>{escape(result["true"])}</strong>. Its probability is
        {result["true_probability"]:.6f} and its rank {result["rank"]:,}; by chance each 6-mer would
        have {1 / 4096:.6f}. The bars add all probabilities up by place and base.""",
        _tokens([*read, _OPEN], "what the model has read, and what is open"),
    )


TOKEN = """<div class="primer"><p>Added up over all 6-mers that have an A at the first place, the
    probabilities are that of an A there, its <em>marginal</em>; six places have four each. They say
    less than the 4,096 do: that a 6-mer is either GTAAGT or CCCCCC is gone from them. Read one base
    after the other, each given those before, nothing is lost: that is the <em>chain</em>, by which
    Carbon scores sequences. In training the truth is then uncovered, and the guess has its
    price.</p></div>"""


def losses(result: Facts) -> str:
    """Return the section on the loss of the true 6-mer under both objectives."""
    loss = result["true_loss"]
    return _station(
        "6. The lesson",
        f"""For the truth, {escape(result["true"])}, the model pays
        <strong>{loss["cross_entropy_nats"] / K:.4f}</strong> nats per base by cross-entropy and
        <strong>{loss["fns_nats"]:.4f}</strong> by FNS; by chance it would pay
        {math.log(4):.4f}. In training all weights would now change a little, so that this truth
        costs less. On this page they stay as they are.""",
        f"""The figure has both losses if the truth were the model's favourite,
        {escape(result["best"])}, or a 6-mer that differs from it in one to six bases (the mean of
        all of these).""",
    )


LOSSES = """<div class="primer"><p><em>Cross-entropy</em> is &minus;log&nbsp;p of the true 6-mer,
    here divided by six: a model that is sure of a 6-mer with five right bases pays as much as one
    that is sure of a 6-mer with none. <em>Factorized Nucleotide Supervision</em> (FNS) is the mean
    of &minus;log&nbsp;p of the six true bases by their marginals: five right bases are credited,
    and each is taught by itself. FNS rises by the same step for each wrong base, whatever the
    model; cross-entropy need not. The released recipe begins with cross-entropy and goes on with
    FNS. What a model has learned by many such lessons shows on the other pages.</p></div>"""


def more(result: Facts, place: str, pages: Iterable[tuple[str, str]]) -> str:
    """Return links that pass the sequence on, then links to all pages by path and label."""
    context, variant = result["context"], result["variant"]
    along = [
        ("/generate", "Let the model write on", {"prompt": context}),
        ("/token", "Look inside the open token", {"context": context, "kmer": result["true"]}),
        ("/read", f"Read {place} base by base", {"place": place}),
        ("/variant", f"Change a base, {variant}", {"variant": variant}),
    ]
    return _station(
        "7. Where it goes next",
        "The first two links go on with the sequence, the others with the gene or place.",
        _links(*along[: 4 if variant else 3]),
        """The model is a stock Llama; all that is peculiar to DNA is in the tokens, the loss and
        the order of the data. What it has learned shows in what it writes, in what it finds likely,
        and in where it places sequences beside one another.""",
        _links(*((path, label, {}) for path, label in pages)),
    )


def _station(title: str, *parts: str) -> str:
    """Return a section; its parts are markup from this module, with escaped values."""
    told = "".join(part if part.startswith(("<p>", "<div")) else f"<p>{part}</p>" for part in parts)
    return f'<section class="primer"><h2>{escape(title)}</h2>{told}</section>'


def _links(*pages: tuple[str, str, dict[str, str]]) -> str:
    """Return links; each page is a path, a label and the field values to set."""
    links = (
        link_chip(f"{path}?{urlencode(state)}" if state else path, label)
        for path, label, state in pages
    )
    return f"<p>{''.join(links)}</p>"


def _tokens(parts: Sequence[Facts], label: str) -> str:
    """Return tokens with their numbers; a token that is not a whole, known 6-mer has no number."""
    numbers = ["·" if part["index"] is None else str(part["index"]) for part in parts]
    return _dna([part["bases"] for part in parts], label, numbers)


def _dna(parts: Iterable[str], label: str, below: Sequence[str] = ()) -> str:
    """Return pieces of DNA coloured by base, with small text under each."""
    pieces = []
    for n, part in enumerate(parts):
        bases = "".join(f'<span class="{escape(base)}">{escape(base)}</span>' for base in part)
        under = f"<small>{escape(below[n])}</small>" if below else ""
        pieces.append(f"<span>{bases}{under}</span>")
    return f'<div class="dna"><b>{escape(label)}</b>{"".join(pieces)}</div>'
