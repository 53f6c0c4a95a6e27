"""The sections of the primer: prose, with what was computed put in."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from demo.markup import escape

Facts = dict[str, Any]
_SHOWN_CODONS = 20
_SHOWN_INTRONS = 4


def strands(result: Facts) -> str:
    """Return the section on bases and strands."""
    bases = result["sequence"]
    gc_percent = 100 * sum(base in "GC" for base in bases) / len(bases)
    return _section(
        "1. Four letters, read both ways",
        """Sections 1 to 3 are on DNA, for those who know language models; 4 to 6 are on language
        models, for those who know DNA. Change the sequence or the gene, and all figures follow.""",
        """DNA is a text of four letters, the bases A, C, G and T, without words, blanks or full
        stops: from 10<sup>6</sup> of them in a bacterium to more than 10<sup>10</sup> in some
        plants. It has two
        strands. Where one has A the other has T, where one has C the other has G, and the other is
        read backwards. So every text has a second reading, its <em>reverse complement</em>, and a
        gene may stand in either.""",
        f"""Below is your sequence of {len(bases)} bases, {gc_percent:.0f} % of them G or C, and
        under it what the other strand says.""",
        after=_dna([bases], "5' to 3'")
        + _dna([result["reverse_complement"]], "the other strand, 5' to 3'"),
    )


def splicing(place: str, gene: Facts | None) -> str:
    """Return the section on genes and splicing."""
    if gene is None:
        told = "There is no gene with a known structure in this place; name another one to see it."
    else:
        introns = gene["introns"]
        ends = ", ".join(map(escape, introns[:_SHOWN_INTRONS]))
        strand = "forward" if gene["strand"] == "+" else "reverse"
        told = (
            f"The gene {escape(gene['name'])} below spans {gene['length_bp']:,} bases of the "
            f"{strand} strand, of which {gene['coding_bp']:,} say what the protein is (thick). "
        ) + (
            f"Its {gene['exons']} exons are parted by introns whose ends read {ends}."
            if introns
            else "It has no introns: it is read as it stands."
        )
    return _section(
        "2. Genes are cut and joined",
        """A gene is a stretch that the cell copies into RNA. In plants, animals and fungi the copy
        is then cut: the <em>introns</em> are thrown out and the <em>exons</em> joined, which is
        called splicing. Nearly all introns begin with GT and end with AG, but most GTs begin no
        intron; what tells them apart is context, which is what a language model is good at. A
        change of one of these letters can undo a gene.""",
        told,
        after=_links(
            ("/read", "Read this place base by base", {"place": place}),
            ("/variant", "Change one base", {}),
        ),
    )


def codons(result: Facts) -> str:
    """Return the section on codons."""
    gene = result["gene"]
    bases, protein = result["sequence"], result["protein"]
    parts = [bases[3 * n : 3 * n + 3] for n in range(len(protein))][:_SHOWN_CODONS]
    told = f"""Your sequence, read from its first base, is {len(protein)} codons; the first are
        below with their amino acids (* is a stop)."""
    counted = "Name a gene with a known structure, and its codons are counted here."
    if gene:
        counted = f"""The bars count the codons of {escape(gene["name"])}: where an amino acid has
        several, a genome prefers some."""
    return _section(
        "3. Three letters, one amino acid",
        """What is left after splicing is read three bases at a time. Each of the 64
        <em>codons</em> stands for one of 20 amino acids, or for the end. The code says most things
        in several ways, mostly by the third base: changes there are often silent, and a good model
        finds them likelier than others. Codons make a frame of three; a base put in or taken out
        shifts all that follows.""",
        f"{told} {counted}",
        after=_dna(parts, "codons", below=list(protein))
        + _links(("/generate", "Generate an open frame", {"prompt": "ATG", "no_stop_frame": "0"})),
    )


def kmers(result: Facts) -> str:
    """Return the section on 6-mers and frames."""
    state = {"text": result["sequence"], "shift": str(result["frames"][1]["frame"])}
    rows = []
    for frame in result["frames"]:
        shown = frame["kmers"]
        numbers = ["·" if k["index"] is None else f"{k['index']}" for k in shown]
        left_out = result["sequence"][: frame["frame"]]
        label = f"frame {frame['frame']}" + (f", less {left_out}" if left_out else "")
        rows.append(_dna([k["bases"] for k in shown], label, below=numbers))
    return _section(
        "4. Six letters, one token",
        """A language model reads <em>tokens</em> and says, at each place, how likely every token is
        to come next. Text models learn theirs from data; Carbon's are all 4<sup>6</sup> = 4,096
        6-mers, numbered as digits to the base of four (A=0, T=1, C=2, G=3). So a context holds six
        times as many bases, and a token two codons.""",
        """The price: nothing in DNA says where the first token begins. The same bases are quite
        other tokens in another <em>frame</em>, of which there are six. Training cuts in all of
        them, and scores can be averaged over them. Your sequence in two frames, with the number of
        each token:""",
        after="".join(rows) + _links(("/tokenizer", "Strands and frames of these tokens", state)),
    )


def token(result: Facts) -> str:
    """Return the section on what the model says."""
    state = {"context": result["context"], "kmer": result["true"]}
    return _section(
        "5. A guess with 4,096 sides",
        f"""Behind {len(result["context"]):,} bases of your sequence the model gives each of the
        4,096 6-mers a probability; by chance each would have {1 / 4096:.6f}. It likes
        {escape(result["best"])} best. What stands there is {escape(result["true"])}, to which it
        gives {result["true_probability"]:.6f}.""",
        """Added up over all 6-mers that have an A at the first place, these are the probability of
        an A there, its <em>marginal</em>; six places with four bases each are the bars below. They
        say less than the 4,096 do: that a 6-mer is either GTAAGT or CCCCCC is gone from them. Read
        one base after the other, each given those before, nothing is lost: that is the
        <em>chain</em>, by which Carbon scores sequences.""",
        after=_links(("/token", "Look inside this token", state)),
    )


def losses(result: Facts) -> str:
    """Return the section on cross-entropy and FNS."""
    state = {"context": result["context"], "kmer": result["best"]}
    return _section(
        "6. Two ways to be wrong",
        """Training lowers a loss. <em>Cross-entropy</em> is &minus;log&nbsp;p of the true 6-mer: a
        model that is sure of a 6-mer with five right bases pays as much as one that is sure of a
        6-mer with none. <em>Factorized Nucleotide Supervision</em> (FNS) is the mean of
        &minus;log&nbsp;p of the six true bases by their marginals: five right bases are credited,
        and each is taught by itself.""",
        f"""Below are the losses if the truth were the model's favourite, {escape(result["best"])},
        or a 6-mer that differs from it in one to six bases (the mean of all of these). FNS rises by
        the same step for each wrong base, whatever the model; cross-entropy need not. The released
        recipe begins with cross-entropy and goes on with FNS.""",
        after=_links(
            ("/token", "Its 18 one-base neighbours", state),
            ("/training", "See a run switch from one to the other", {}),
        ),
    )


def more(pages: Iterable[tuple[str, str]]) -> str:
    """Return the section on the other pages, given their paths and what their links say."""
    return _section(
        "7. Now try it",
        """The model is a stock Llama; all that is peculiar to DNA is in the tokens, the loss and
        the order of the data. What it has learned shows in what it writes, in what it finds likely,
        and in where it places sequences beside one another.""",
        after=_links(*((path, label, {}) for path, label in pages)),
    )


def _section(title: str, *paragraphs: str, after: str = "") -> str:
    """Return a section; paragraphs are markup of this module's own, with values escaped."""
    told = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f'<section class="primer"><h2>{escape(title)}</h2>{told}{after}</section>'


def _links(*pages: tuple[str, str, dict[str, str]]) -> str:
    """Return links: path, label, and the fields that are set there."""
    links = (
        f'<a class="chip" href="{escape(f"{path}?{urlencode(state)}" if state else path)}">'
        f"{escape(label)}</a>"
        for path, label, state in pages
    )
    return f"<p>{''.join(links)}</p>"


def _dna(parts: Iterable[str], label: str, below: list[str] | None = None) -> str:
    """Return pieces of DNA, coloured by base, with something small under each."""
    pieces = []
    for n, part in enumerate(parts):
        bases = "".join(f'<span class="{escape(base)}">{escape(base)}</span>' for base in part)
        under = f"<small>{escape(below[n])}</small>" if below else ""
        pieces.append(f"<span>{bases}{under}</span>")
    return f'<div class="dna"><b>{escape(label)}</b>{"".join(pieces)}</div>'
