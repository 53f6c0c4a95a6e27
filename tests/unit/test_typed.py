"""Variants and sequences as they are typed."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError, TypedError
from carbon.genome import (
    Annotation,
    Gene,
    Interval,
    Reference,
    Transcript,
    Variant,
    read_annotation,
    reverse_complement,
    spliced,
)
from carbon.genome.genome import Genome
from carbon.genome.notation import cds_position, read_bases, read_variant, write_vcf_of_texts
from tests.helpers.demo import GENE, add_transcript, write_genome
from tests.helpers.files import random_bases, write_fasta


@pytest.fixture(scope="module", params="+-")
def genome(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    fasta, gff = write_genome(folder, "VIII", request.param)
    with Reference(fasta) as reference:
        yield reference, read_annotation(gff, reference)


def slow_cds(transcript):
    """Return the position of every base of the CDS, as the strand reads it, one by one."""
    places = [place for start, end in transcript.cds for place in range(start, end)]
    return places if transcript.strand == "+" else places[::-1]


@st.composite
def transcripts(draw):
    edges = sorted(draw(st.sets(st.integers(0, 300), min_size=2, max_size=9)))
    spans = tuple(zip(edges[::2], edges[1::2], strict=False))
    strand = draw(st.sampled_from("+-"))
    return Transcript("t", "c", strand, spans, spans, False, "here")


@given(transcripts())
def test_numbers_of_a_cds_are_those_of_a_walk_along_it(transcript):
    places = slow_cds(transcript)
    assert [cds_position(transcript, n + 1) for n in range(len(places))] == places
    for number in (0, len(places) + 1):
        with pytest.raises(IndexError):
            cds_position(transcript, number)


@settings(max_examples=25)
@given(transcripts(), st.data())
def test_a_coding_change_changes_the_cds_alone(tmp_path_factory, transcript, data):
    """The variant is put into the contig, and the CDS read from that: it differs as was typed."""
    contig = data.draw(st.text("ACGT", min_size=302, max_size=302))
    fasta = write_fasta(tmp_path_factory.mktemp("c") / "c.fa", {"c": contig})
    gene = Gene("g", "g", "", Interval("c", 0, 302), transcript.strand, (transcript,))
    with Reference(fasta) as reference:
        coding = spliced(reference, "c", transcript.cds, transcript.strand)
        at = data.draw(st.integers(1, len(coding)))
        ref = coding[at - 1]
        alt = data.draw(st.sampled_from("ACGT".replace(ref, "")))
        annotation = Annotation(fasta, (gene,), ())
        variant = read_variant(f"g:c.{at}{ref}>{alt}", reference, annotation)
    start, end = variant.interval.start, variant.interval.end
    assert contig[start:end] == variant.ref
    changed = contig[:start] + variant.alt + contig[end:]
    bases = "".join(changed[place] for place in sorted(slow_cds(transcript)))
    expected = coding[: at - 1] + alt + coding[at:]
    assert (bases if transcript.strand == "+" else reverse_complement(bases)) == expected


@pytest.mark.parametrize(
    "form",
    ["{c}:{p} {r}>{a}", "{c}-{p}-{r}-{a}", "chr{c}:{p}:{r}:{a}", "{c} {p} {r} {a}", "{p}{r}>{a}",
     "{c}:g.{p}{r}>{a}", "g.{p}{r}>{a}", "Chr{c}:{p}{r}>{a}", " {c}:{p:,} {r} > {a} "],
)  # fmt: skip
def test_forms_of_one_variant(genome, form):
    reference, annotation = genome
    ref = reference.fetch(Interval("VIII", 1033, 1034))
    alt = "ACGT".replace(ref, "")[0]
    expected = Variant("VIII", 1033, ref, alt)
    for change in (str.upper, str.lower):
        text = form.format(c="VIII", p=1034, r=change(ref), a=change(alt))
        assert read_variant(text, reference, annotation) == expected
        assert read_variant(text, reference, None) == expected
    rna = Variant("VIII", 1033, ref.replace("U", "T"), "T")
    assert read_variant(f"VIII-1034-{ref}-U", reference, None) == rna


def transcript_named(name, start, end, **marks):
    return Transcript(name, "c", "+", ((start, end),), ((start, end),), False, "here", **marks)


@pytest.mark.parametrize(
    ("text", "position"),
    [  # c.28 is the base 27 after the start of the CDS; a deletion has the base before it.
        ("t1:c.28del", 126),
        ("t2:c.28del", 226),
        ("same:c.28del", 126),
        ("alone:c.28del", 126),
        ("g:c.28del", "2 transcripts of gene 'g' number .* differently; .* such as t1, t2"),
        ("g:c.250del", "2 transcripts of gene 'g' number .* differently; .* such as t1$"),
        ("g:c.999del", "the CDS has 300 bases, not 999"),
        ("t3:c.28del", "transcript 't3' has no annotated start; positions in its CDS are unknown"),
        ("none:c.28del", "gene 'none' has no annotated start; positions in its CDS are unknown"),
    ],
)
def test_the_transcript_that_counts(tmp_path, text, position):
    t1, t2 = transcript_named("t1", 100, 400), transcript_named("t2", 200, 420)
    t3 = transcript_named("t3", 300, 601, phase_bp=1, has_start=False)
    t4 = transcript_named("t4", 100, 500)
    kinds = {"g": (t1, t2, t3), "same": (t1, t4), "alone": (t3, t1), "none": (t3,)}
    name = text.partition(":")[0]
    kind = name if name in kinds else "g"
    gene = Gene(kind, kind, "", Interval("c", 100, 601), "+", kinds[kind])
    fasta = write_fasta(tmp_path / "c.fa", {"c": random_bases(700, seed=1)})
    with Reference(fasta) as reference:
        annotation = Annotation(fasta, (gene,), ())
        if isinstance(position, str):
            with pytest.raises(TypedError, match=position):
                read_variant(text, reference, annotation)
        else:
            assert read_variant(text, reference, annotation).position == position


@given(st.text("ACGTNacgtnRy", min_size=1, max_size=99), st.integers(1, 30))
def test_bases_in_any_dress(bases, width):
    lines = [bases[at : at + width] for at in range(0, len(bases), width)]
    assert read_bases("\n".join(lines)) == bases
    assert read_bases(">a name of words\r\n" + "\r\n".join(lines)) == bases
    numbered = (f"{1 + n * width:>9} {line}" for n, line in enumerate(lines))
    assert read_bases("\n".join(numbered)) == bases
    assert read_bases(re.sub("T", "U", bases).replace("t", "u")) == bases


def test_arguments_in_a_locale_of_ascii_name_contigs_and_genes(tmp_path):
    """Python passes their bytes as surrogates."""
    fasta, gff = write_genome(tmp_path, "chr\u00df", "+")
    text = gff.read_text(encoding="utf-8").replace(GENE, "g\u00e9ne")
    gff.write_text(text, encoding="utf-8")
    genome = Genome.open(fasta, gff)

    def argument(text):
        return text.encode().decode("ascii", "surrogateescape")

    assert genome.place(argument("chr\u00df:1-9"), 0, 99) == Interval("chr\u00df", 0, 9)
    assert genome.place(argument("g\u00e9ne"), 0, 9999) == Interval("chr\u00df", 100, 1000)
    assert genome.variant(argument("chr\u00df:1 A>C")) == Variant("chr\u00df", 0, "A", "C")
    assert genome.variant("chr\u00df:1 A>C").contig == "chr\u00df"
    with pytest.raises(GenomeError, match="no contig"):
        genome.variant("\ud800:1 A>C")


@pytest.mark.parametrize(
    ("edit", "first", "last", "new"),
    [  # The strand has exons at 101-500 and 601-1000; the CDS begins at 111 with ATGTACCAATTA.
        ("4T>A", 114, 114, "A"),
        ("4del", 114, 114, ""),
        ("4_6delTAC", 114, 116, ""),
        ("4_6dup", 114, 116, "TACTAC"),
        ("4_5insGG", 114, 115, "TGGA"),
        ("4_5delinsGGG", 114, 115, "GGG"),
        ("4delinsUU", 114, 114, "TT"),
        # With an end in the intron it has the bases of the genome between its ends.
        ("390+1G>A", 501, 501, "A"),
        ("390+100del", 600, 600, ""),
        ("391-100_391-1del", 501, 600, ""),
        ("390_390+2del", 500, 502, ""),
        ("389_391-1del", 499, 600, ""),
    ],
)
def test_edits_of_a_cds(genome, edit, first, last, new):
    reference, annotation = genome
    contig = reference.fetch(Interval("VIII", 0, 1400))
    for name in (GENE, "g1", "t1"):
        variant = read_variant(f"{name}:c.{edit}", reference, annotation)
        start, end = variant.interval.start, variant.interval.end
        assert contig[start:end] == variant.ref
        found, read = contig[:start] + variant.alt + contig[end:], contig
        if annotation.genes[0].strand == "-":
            found, read = reverse_complement(found), reverse_complement(read)
        assert read[110:122] == "ATGTACCAATTA"
        assert found == read[: first - 1] + new + read[last:]


@pytest.mark.parametrize(
    ("text", "stands", "message"),
    [
        ("VIII:1034 Q>T", "Q", "REF, in bases"),
        ("VIII:1034 A>", "", "it ends where ALT"),
        ("VIII:1034 A>T.", ".", "nothing more"),
        ("VIII:x A>T", "x", "a position"),
        ("VII:10 A>T", "VII", "no contig 'VII'; near names: VIII"),
        ("", "", "it ends where a contig|no contig"),
        ("abd:c.4T>A", "abd", "near names: ABC"),
        (f"{GENE}:c.9999A>T", "9999", "the CDS has 720 bases"),
        (f"{GENE}:c.xA>T", "x", "a position in the CDS"),
        (f"{GENE}:c.4A>T", "A>T", "the reference has T there"),
        (f"{GENE}:c.4_6delGGG", "GGG", "the reference has TAC there"),
        (f"{GENE}:c.4?", "?", "G>T, del, dup"),
        (f"{GENE}:c.4insA", "insA", "between two neighbours"),
        (f"{GENE}:c.4_5ins", "ins", "names no bases"),
        (f"{GENE}:c.4_6T>A", "T>A", "length of REF is 1 and of its place 3"),
        (f"{GENE}:c.4TA>GC", "TA>GC", "length of REF is 2 and of its place 1; .* c.28_29TA>GC"),
        (f"{GENE}:c.6_4del", "6_4del", "c.6_4 is reversed"),
        (f"{GENE}:c.391-5_390+5del", "391", "c.391-5_390[+]5 is reversed"),
        (f"{GENE}:c.390+101del", "390", "does not lie in an intron next to base 390"),
        (f"{GENE}:c.390+1_390+500del", "390+500", "does not lie in an intron next to base 390"),
        (f"{GENE}:c.391-101del", "391", "does not lie in an intron next to base 391"),
        *((f"{GENE}:c.{place}G>A", "", "from the edge of an exon")
          for place in ("380+1", "389+3", "390-1")),
        *((f"{GENE}:c.{edit}", "3", "not one stretch of the genome")
          for edit in ("390_391del", "300_400dup", "390_391delinsA", "390_391insA")),
    ],
)  # fmt: skip
def test_the_first_wrong_letter(genome, text, stands, message):
    reference, annotation = genome
    with pytest.raises(TypedError, match=message) as raised:
        read_variant(text, reference, annotation)
    error = raised.value
    assert error.text[error.at :].startswith(stands) and "\n" not in str(error)
    if stands and not error.wrong:
        assert f"letter {error.at + 1}:" in str(error)


def test_the_first_letter_that_is_no_base():
    for text, at, message in (
        ("ACGEFIL", 3, "letter 4: 'E' is not a DNA letter"),
        (">a\nACG\nAC-", 2, "line 3 letter 3: '-'"),
        (">a\nACG\n>b\nAC", 0, "line 3 begins a second sequence"),
        ("  1 ACX", 6, "letter 7: 'X'"),
    ):
        with pytest.raises(TypedError, match=message) as raised:
            read_bases(text)
        assert raised.value.at == at
        assert ("protein" in str(raised.value)) == (text[at] in "EX")


def test_a_variant_is_parsed_in_the_names_of_a_genome(tmp_path, capsys):
    fasta, gff = write_genome(tmp_path, "VIII", "+")
    genome = Genome.open(fasta, gff)
    with genome.reference as reference:
        ref = reference.fetch(Interval("VIII", 1033, 1034)).upper()
        assert Variant.parse(f"chrVIII:1034 {ref}>U", genome) == Variant("VIII", 1033, ref, "T")
        coding = Variant.parse(f"{GENE}:c.4T>A", genome)
        assert coding == read_variant(f"{GENE}:c.4T>A", reference, genome.annotation)
        with pytest.raises(TypedError, match="no contig 'IX'"):
            Variant.parse("IX:1 A>T", genome)
        with pytest.raises(GenomeError, match="no annotation"):
            read_variant("ABC:c.4T>A", reference, None)
    # The command reports the transcripts of a gene that has several.
    add_transcript(gff, "VIII")
    for text, told in ((f"{GENE}:c.4T>A", "c. positions count in t1, t2"), ("t2:c.4T>A", "")):
        write_vcf_of_texts(tmp_path / "v.vcf", [text], fasta, gff)
        assert "VIII\t114\t" in (tmp_path / "v.vcf").read_text()
        error = capsys.readouterr().err
        assert told in error and bool(told) == bool(error)


def test_a_base_before_the_contig_is_none(tmp_path):
    fasta = write_fasta(tmp_path / "z.fa", {"z": "ATGACC"})
    transcript = Transcript("t", "z", "+", ((0, 6),), ((0, 6),), False, "here")
    genes = (Gene("g", "g", "", Interval("z", 0, 6), "+", (transcript,)),)
    with Reference(fasta) as reference:
        variant = read_variant("g:c.1_2del", reference, Annotation(fasta, genes, ()))
    assert variant == Variant("z", 0, "ATG", "G")
