"""FASTA alone, contigs of other names, blank recipes, other organisms, and what leaves nothing."""

import json
from pathlib import Path

import pytest

from carbon.corpus import read_manifest
from data_pipeline.__main__ import main
from data_pipeline.inputs.assemblies import Said, disagreement, organisms_said
from tests.helpers.curation import assembly, build, rows_of
from tests.helpers.files import place_gene, random_bases, write_fasta

RECIPES = Path(__file__).parents[3] / "data_pipeline" / "recipes"
BASES, GFF3, _ = place_gene()


class TestFastaAlone:
    def test_contigs_are_cut_into_chunks(self, tmp_path):
        contigs = {"a": random_bases(1500, 1), "b": random_bases(700, 2).lower()}
        write_fasta(tmp_path / "genome.fa", contigs)
        words = [f"assemblies.0.genome={tmp_path}/genome.fa", "cut.chunk_bp=600"]
        assert build(tmp_path / "c", *words, 'assemblies.0.holdout=["b"]') == 0
        rows = rows_of(tmp_path / "c", "genome")
        joined = {name: "" for name in contigs}
        for row in sorted(rows, key=lambda row: row["start"]):
            joined[row["record_id"]] += row["sequence"]
        assert joined == contigs  # soft-masked as it was
        manifest = read_manifest(tmp_path / "c")
        assert list(manifest["sources"]) == ["genome"] and manifest["both_strands"]["genome"]
        assert manifest["sources"]["genome"]["test"] == {"records": 2, "bases": 700}

    def test_what_leaves_nothing_leaves_no_corpus(self, tmp_path, capsys):
        write_fasta(tmp_path / "genome.fa", {"a": "N" * 500})
        words = [f"assemblies.0.genome={tmp_path}/genome.fa", "assemblies.0.holdout=[]"]
        assert build(tmp_path / "c", *words) == 2
        assert "no_known_base (1)" in capsys.readouterr().err
        assert {path.name for path in tmp_path.iterdir()} == {"genome.fa", "genome.fa.fai"}

    def test_a_source_that_nothing_is_left_of_is_warned_of(self, tmp_path, capsys):
        write_fasta(tmp_path / "genome.fa", {"b": random_bases(3000)})
        words = [f"assemblies.0.genome={tmp_path}/genome.fa", 'assemblies.0.holdout=["b"]']
        assert build(tmp_path / "c", *words) == 0
        assert "warning: source 'genome' has no record to train on" in capsys.readouterr().err


class TestNamesOfContigs:
    @pytest.fixture
    def folder(self, tmp_path):
        write_fasta(tmp_path / "genome.fa", {"chr1": BASES})
        (tmp_path / "genes.gff3").write_text(GFF3.replace("c1\t", "1\t"))
        (tmp_path / "names.tsv").write_text("1\tchr1\n")
        return tmp_path

    @pytest.mark.parametrize("asked", ["chr", "names.tsv"])
    def test_the_annotation_has_other_names(self, folder, asked):
        contigs = asked if asked == "chr" else folder / asked
        settings = assembly(folder, contigs=contigs, holdout="[]")
        assert build(folder / "c", *settings) == 0
        (row,) = rows_of(folder / "c", "mrna")
        assert row["record_id"] == "chr1" and row["sequence"].startswith(BASES[100:160].upper())
        told = read_manifest(folder / "c")["inputs"][0]
        assert told["recipe"]["contigs"] == str(contigs)
        tables = [each["path"] for each in told["files"] if "names" in each["path"]]
        assert tables == ([] if asked == "chr" else [str(contigs)])

    def test_another_table_starts_over(self, folder, capsys):
        """A build that stopped does not go on with what it made by another table."""
        (folder / "names.tsv").write_text("1\tchr9\n2\tchr1\n")
        settings = assembly(folder, contigs=folder / "names.tsv", holdout="[]")
        assert build(folder / "c", *settings) == 2
        assert "no contig 'chr9'" in capsys.readouterr().err
        (folder / "names.tsv").write_text("1\tchr1\n")
        assert build(folder / "c", *settings) == 0

    def test_variants_of_known_effect(self, genome, tmp_path):
        """Of a simulated genome whose annotation has lost the `chr` of its contigs."""
        text = (genome / "genes.gff3").read_text()
        (tmp_path / "bare.gff3").write_text(text.replace("\nchr", "\n"))
        common = ["variants", "--genome", f"{genome}/genome.fa", "--variants", "30"]
        for name, words in (
            ("plain", ["--annotation", f"{genome}/genes.gff3", "--region", "chr1"]),
            ("bare", ["--annotation", f"{tmp_path}/bare.gff3", "--region", "1"]),
        ):
            output = ["--output", f"{tmp_path}/{name}.vcf", "--contigs", "chr"]
            assert main([*common, *words, *output]) == 0
        plain, bare = ((tmp_path / f"{name}.vcf").read_text() for name in ("plain", "bare"))
        assert bare == plain and "\nchr1\t" in bare


class TestOrganisms:
    @pytest.mark.parametrize(
        ("header", "annotation", "said"),
        [
            (">NC_000001.11 Homo sapiens chromosome 1, GRCh38", "", ["Homo sapiens"]),
            (">CP000001.1 Bacillus cereus E33L, complete", "", ["Bacillus cereus"]),
            (">gi|45478711|ref|NC_005816.1| Yersinia pestis biovar", "", ["Yersinia pestis"]),
            (">1 dna:chromosome chromosome:GRCh38:1:1:9:1 REF", "", ["Homo sapiens"]),
            (">I", "#!genome-build R64-1-1\n#!genome-version R64-1-1\n",
             ["Saccharomyces cerevisiae"]),
            (">I", "##gff-version 3\n#!genome-build  Genome Reference Consortium GRCm39\n",
             ["Mus musculus"]),
            (">I", "##gff-version 3\nI\tx\n#!genome-build R64\n", []),  # not of the beginning
            (">chr1 Homo sapiens", "", []),  # a name of its own may have any words behind it
            (">NC_001422.1 Escherichia phage phiX174", "", []),
        ],
    )  # fmt: skip
    def test_what_files_say(self, tmp_path, header, annotation, said):
        (tmp_path / "g.fa").write_text(f"{header}\nACGT\n")
        (tmp_path / "a.gff3").write_text(annotation)
        files = (str(tmp_path / "g.fa"), str(tmp_path / "a.gff3"))
        assert [each.organism for each in organisms_said(*files)] == said

    @pytest.mark.parametrize(
        ("organism", "said", "differ"),
        [
            ("Saccharomyces cerevisiae", "Homo sapiens", True),
            ("Saccharomyces cerevisiae S288C", "Saccharomyces cerevisiae", False),
            ("Saccharomyces paradoxus", "Saccharomyces cerevisiae", True),
            ("baker's yeast", "Homo sapiens", False),  # cannot be compared
            ("", "Homo sapiens", False),
            ("Homo sapiens", "Monkeypox", False),
        ],
    )
    def test_what_is_another_one(self, organism, said, differ):
        assert (disagreement(organism, Said(said, "x.fa")) is not None) is differ

    def test_a_build_says_so_and_the_manifest_too(self, tmp_path, capsys):
        write_fasta(tmp_path / "genome.fa", {"NC_1": random_bases(900, 1)})
        text = (tmp_path / "genome.fa").read_text()
        header = ">NC_012920.1 Homo sapiens mitochondrion, complete genome"
        (tmp_path / "genome.fa").write_text(text.replace(">NC_1", header))
        words = [f"assemblies.0.genome={tmp_path}/genome.fa", "assemblies.0.holdout=[]"]
        for number, organism in enumerate(("Saccharomyces cerevisiae", "Homo sapiens")):
            more = f"assemblies.0.organism={organism}"
            assert build(tmp_path / f"c{number}", *words, more) == 0
            told = [x for x in capsys.readouterr().err.splitlines() if "warning" in x]
            kept = read_manifest(tmp_path / f"c{number}")["inputs"][0].get("warning")
            assert told == ([kept] if number == 0 else [])
        assert "says 'Homo sapiens'" in read_manifest(tmp_path / "c0")["inputs"][0]["warning"]


def test_the_recipe_to_begin_with_names_nobodys_genome(tmp_path, capsys):
    write_fasta(tmp_path / "genome.fa", {"c1": BASES})
    (tmp_path / "genes.gff3").write_text(GFF3)
    settings = [f"output={tmp_path}/c", *assembly(tmp_path, holdout="[]")]
    words = [word for setting in settings for word in ("--set", setting)]
    assert main(["build", "--config", str(RECIPES / "own.toml"), *words]) == 0
    assert json.loads(capsys.readouterr().out)["mrna"]["train"]["records"] == 1
    (row,) = rows_of(tmp_path / "c", "mrna")
    assert row["organism"] == row["species_type"] == "" and row["assembly"] == "genome"
