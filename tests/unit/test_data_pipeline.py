"""A simulated genome, its variants, and a corpus of it with a part held out."""

import itertools
import json

import pysam
import pytest

from carbon.corpus import read_manifest, read_source
from carbon.genome import (
    Consequences,
    Gene,
    Interval,
    Reference,
    Variant,
    read_annotation,
    read_sequences,
    reverse_complement,
)
from carbon.io.files import sha256_of_file
from data_pipeline.__main__ import main
from data_pipeline.cuts import gene_type_of
from data_pipeline.split import held_out_regions, split_of
from data_pipeline.variants import choose_variants
from tests.helpers.curation import assembly, build
from tests.helpers.files import place_gene, random_bases, write_fasta
from tests.helpers.schemas import check_manifest


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sim") / "genome"
    assert main(["simulate", "--output", str(folder), "--genome-bp", "120000", "--seed", "4"]) == 0
    return folder


@pytest.fixture(scope="module")
def corpus(genome, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "corpus"
    assert build(folder, *assembly(genome)) == 0
    return folder


class TestSimulation:
    def test_the_same_seed_gives_the_same_bytes(self, tmp_path):
        for name, seed in (("one", 4), ("same", 4), ("other", 5)):
            words = ["--output", f"{tmp_path}/{name}", "--genome-bp", "20000", "--seed", str(seed)]
            assert main(["simulate", *words]) == 0
        for file in ("genome.fa", "genes.gff3", "variants.vcf"):
            one, same, other = (tmp_path / n / file for n in ("one", "same", "other"))
            assert one.read_bytes() == same.read_bytes() != other.read_bytes(), file

    def test_labels_are_true(self, genome):
        """By the consequences that `carbon` itself finds."""
        terms = {
            "nonsense": {"stop_gained"},
            "start_loss": {"start_lost"},
            "splice_site": {"splice_donor_variant", "splice_acceptor_variant"},
            "synonymous": {"synonymous_variant", "splice_region_variant"},
            "intergenic": {"intergenic_variant"},
        }
        with Reference(genome / "genome.fa") as reference:
            annotation = read_annotation(genome / "genes.gff3", reference)
            consequences, seen = Consequences(reference, annotation), set()
            for record in pysam.VariantFile(str(genome / "variants.vcf")):
                effect = record.info["EFFECT"]
                place = Interval(record.contig, record.start, record.stop)
                variant = Variant(record.contig, record.start, record.ref, record.alts[0])
                assert reference.fetch(place) == record.ref
                found = consequences.of(variant)
                assert found.consequence in terms[effect]
                assert effect != "synonymous" or "/" not in found.amino_acids
                assert record.info["LABEL"] == (effect not in ("synonymous", "intergenic"))
                seen.add(effect)
        assert {"nonsense", "splice_site", "synonymous", "intergenic"} <= seen

    def test_groups_have_the_same_trinucleotide_changes(self, genome):
        groups = {"damaging": [], "synonymous": [], "intergenic": []}
        with Reference(genome / "genome.fa") as reference:
            for record in pysam.VariantFile(str(genome / "variants.vcf")):
                around = Interval(record.contig, record.start - 1, record.stop + 1)
                context, alt = reference.fetch(around), record.alts[0]
                if context[1] in "AG":
                    context, alt = reverse_complement(context), reverse_complement(alt)
                effect = record.info["EFFECT"]
                groups[effect if effect in groups else "damaging"].append((context, alt))
        expected = sorted(groups["damaging"])
        assert len(expected) > 30
        assert sorted(groups["synonymous"]) == sorted(groups["intergenic"]) == expected


@pytest.mark.parametrize(
    ("lengths_bp", "genes_at", "expected"),
    [
        ((500, 300, 200, 20), {0: [10], 1: [10], 2: [10], 3: [10]}, (2, 0, 200)),  # 2 % is the last
        ((500, 300, 200, 100), {0: [10], 1: [10], 2: [10]}, (2, 0, 200)),  # the last has no gene
        ((60,) * 30 + (70,), {n: [10] for n in range(31)}, (30, 0, 70)),  # none has 4 %
        ((1000,), {0: [10]}, (0, 900, 1000)),
        ((1000, 30), {0: [10], 1: [10]}, (0, 900, 1000)),  # a chromosome and its plasmid
        ((200, 900, 800), {0: [10]}, (0, 180, 200)),  # something is left to train on
        # Genes are on both sides, though none begins in the last tenth.
        ((1000, 5000), {0: range(0, 100, 10)}, (0, 90, 1000)),
    ],
)
def test_what_is_held_out_of_itself(lengths_bp, genes_at, expected):
    genes = [
        Gene(f"g{k}", "", "", Interval(f"k{k}", at, at + 9), "+", ())
        for k, starts in genes_at.items()
        for at in starts
    ]
    lengths = {f"k{n}": length_bp for n, length_bp in enumerate(lengths_bp)}
    (region,) = held_out_regions(("auto",), lengths, tuple(genes))
    contig, start, end = expected
    assert region == Interval(f"k{contig}", start, end)


class TestBuild:
    def test_what_is_held_out_is_not_trained_on(self, corpus):
        manifest = read_manifest(corpus)
        (region,) = manifest["held_out"]
        contig = region.split(":")[0]
        for source in ("eukaryote", "mrna"):
            for split, inside in (("train", False), ("test", True)):
                rows = read_source(corpus, source, split).to_pylist()
                assert rows and all((row["record_id"] == contig) == inside for row in rows)
                counts = manifest["sources"][source][split]
                assert counts["records"] == len(rows)
                assert counts["bases"] == sum(len(row["sequence"]) for row in rows)

    def test_two_builds_give_the_same_bytes(self, genome, corpus, tmp_path):
        assert build(tmp_path / "again", *assembly(genome)) == 0
        again, manifest = read_manifest(tmp_path / "again"), read_manifest(corpus)
        check_manifest(manifest)
        assert again["outputs"] == manifest["outputs"]
        for name, digest in manifest["outputs"].items():
            assert sha256_of_file(corpus / name) == digest
        assert manifest["inputs"][0]["files"][0]["sha256"] == sha256_of_file(genome / "genome.fa")

    def test_regions_that_touch_are_one_and_long_ones_are_cut(self, genome, tmp_path):
        limits = ("cut.flank_bp=3000", "keep.max_record_bp=5000")
        assert build(tmp_path / "c", *assembly(genome), *limits) == 0
        rows = read_source(tmp_path / "c", "eukaryote", "train").to_pylist()
        assert max(len(row["sequence"]) for row in rows) == 5000
        assert any("," in row["name"] for row in rows)
        spans = sorted((r["record_id"], r["strand"], r["start"], r["end"]) for r in rows)
        for before, after in itertools.pairwise(spans):
            assert before[:2] != after[:2] or before[3] <= after[2]

    def test_a_region_can_be_held_out(self, genome, tmp_path):
        assert build(tmp_path / "c", *assembly(genome), 'assemblies.0.holdout=["chr2:1-9000"]') == 0
        rows = read_source(tmp_path / "c", "eukaryote", "test").to_pylist()
        assert rows and all(r["record_id"] == "chr2" and r["end"] <= 9000 for r in rows)
        for row in read_source(tmp_path / "c", "eukaryote", "train").to_pylist():
            assert row["record_id"] != "chr2" or row["start"] >= 9000
        assert any("partly_held_out" in key for key in read_manifest(tmp_path / "c")["dropped"])

    def test_a_cds_out_of_frame_is_an_error_or_dropped(self, tmp_path, capsys):
        bases, gff3, _ = place_gene()
        write_fasta(tmp_path / "genome.fa", {"c1": bases, "c2": random_bases(500)})
        (tmp_path / "genes.gff3").write_text(gff3.replace("CDS\t221\t241", "CDS\t221\t240"))
        assert build(tmp_path / "c", *assembly(tmp_path), "assemblies.0.holdout=[]") == 2
        assert "genes.gff3 line 4: the CDS of 't1' has 71 bases" in capsys.readouterr().err
        assert not (tmp_path / "c").exists()
        drop = ("assemblies.0.incomplete_cds=drop", "assemblies.0.holdout=[]")
        sources = [
            "mrna",
            "mrna_splice",
            "utr5",
            "utr3",
        ]
        words = assembly(tmp_path, sources=json.dumps(["eukaryote", *sources]))
        assert build(tmp_path / "c", *words, *drop, "keep.min_record_bp=1") == 0
        reason = "cds_not_multiple_of_three"
        assert read_manifest(tmp_path / "c")["dropped"] == {f"{s}:{reason}": 1 for s in sources}

    def test_an_existing_output_is_not_touched(self, genome, corpus, capsys):
        before = sha256_of_file(corpus / "manifest.json")
        assert build(corpus, *assembly(genome)) == 2
        assert "exists already" in capsys.readouterr().err
        assert sha256_of_file(corpus / "manifest.json") == before


def test_variants_of_what_a_corpus_holds_out(genome, corpus, tmp_path):
    words = ["--genome", f"{genome}/genome.fa", "--annotation", f"{genome}/genes.gff3"]
    output = tmp_path / "v.vcf"
    assert main(["variants", *words, "--corpus", str(corpus), "--output", str(output)]) == 0
    contigs = {record.contig for record in pysam.VariantFile(str(output))}
    assert contigs == {read_manifest(corpus)["held_out"][0].split(":")[0]}
    none = ["--region", "chr1:1-150", "--output", str(tmp_path / "none.vcf")]
    assert main(["variants", *words, *none]) == 2
    assert not (tmp_path / "none.vcf").exists()


def test_variants_of_what_is_held_out_of_one_assembly_of_several(genome, tmp_path, capsys):
    """The contigs of both have the same names, and another contig is held out of each."""
    contigs = dict(read_sequences(genome / "genome.fa"))
    (tmp_path / "other").mkdir()
    masked = {name: bases.lower() for name, bases in contigs.items()}
    write_fasta(tmp_path / "other" / "genome.fa", masked)
    words = assembly(genome, sources='["genome"]', holdout='["chr6"]')
    words += assembly(
        tmp_path / "other", 1, name="other", sources='["genome"]', holdout='["chr1"]', annotation=""
    )
    assert build(tmp_path / "c", *words) == 0
    output = tmp_path / "v.vcf"
    words = ["--annotation", f"{genome}/genes.gff3", "--corpus", f"{tmp_path}/c"]
    words += ["--output", str(output)]
    assert main(["variants", "--genome", f"{genome}/genome.fa", *words]) == 0
    assert {record.contig for record in pysam.VariantFile(str(output))} == {"chr6"}
    write_fasta(tmp_path / "third.fa", contigs | {"more": "ACGT"})
    assert main(["variants", "--genome", f"{tmp_path}/third.fa", *words]) == 2
    assert "holds out regions of genome and of other on contigs" in capsys.readouterr().err


def test_a_change_that_isoforms_disagree_on_is_not_labelled(tmp_path):
    """A second transcript splices out 131-151 (1-based), seven codons of the first one's CDS."""
    bases, gff3, _ = place_gene()
    lines = "c1\tx\tmRNA\t101\t280\t.\t+\t.\tID=t2;Parent=g1\n"
    for kind, spans in (
        ("exon", ((101, 130), (152, 160), (221, 280))),
        ("CDS", ((110, 130), (152, 160), (221, 241))),
    ):
        for first, last in spans:
            lines += f"c1\tx\t{kind}\t{first}\t{last}\t.\t+\t.\tParent=t2\n"
    contigs = {"c1": bases, "c2": random_bases(4000, 2)}
    regions = [Interval(name, 0, len(text)) for name, text in contigs.items()]
    splice_sites = {130, 131, 149, 150}
    labelled_there = []
    for text in (gff3, gff3 + lines):
        (tmp_path / "a.gff3").write_text(text)
        with Reference(write_fasta(tmp_path / "g.fa", contigs)) as reference:
            annotation = read_annotation(tmp_path / "a.gff3", reference)
            places = {
                labelled.variant.position
                for seed in range(20)
                for labelled in choose_variants(reference, annotation, regions, 9999, seed)
                if labelled.variant.contig == "c1"
            }
        labelled_there.append(splice_sites & places)
        assert len(places) > 20
    assert labelled_there[0] and not labelled_there[1]


@pytest.mark.parametrize(
    ("biotype", "expected"),
    [("protein_coding", "cds"), ("cds", "cds"), ("tRNA", "tRNA"), ("Mt_tRNA", "tRNA"),
     ("rRNA", "rRNA"), ("snoRNA", "ncRNA"), ("processed_pseudogene", "pseudo"),
     ("vaultRNA", "ncRNA"), ("vault_RNA", "ncRNA"), ("stRNA", "ncRNA"), ("5S_rRNA", "rRNA"),
     ("pseudogenic_tRNA", "pseudo"), ("pseudogenic_rRNA", "pseudo"), ("tRNA_pseudogene", "pseudo"),
     ("misc_RNA", "misc_RNA"), ("tmRNA", "tmRNA"), ("TEC", ""),
     ("mRNA", "cds"), ("Protein_coding", "cds"), ("protein_coding_gene", "cds"), ("CDS", "cds"),
     ("ncRNA_gene", "ncRNA"), ("tRNA_gene", "tRNA"), ("MT_TRNA", "tRNA"), ("MISC_RNA", "misc_RNA"),
     ("Pseudogene", "pseudo"), ("IG_V_gene", ""), ("", "")],
)  # fmt: skip
def test_gene_types(biotype, expected):
    assert gene_type_of(biotype) == expected


def test_a_record_is_of_a_split_only_as_a_whole():
    held_out = [Interval("c", 100, 200), Interval("d", 0, 50)]
    inside, beside, across = (
        Interval("c", 120, 200),
        Interval("c", 200, 260),
        Interval("c", 90, 110),
    )
    assert split_of([inside, Interval("d", 0, 9)], held_out) == "test"
    assert split_of([beside], held_out) == "train"
    assert split_of([across], held_out) is split_of([inside, beside], held_out) is None
