"""NCBI's taxdump, sources that are divided by clade, their mixture and their picture."""

import re
import shutil
import tomllib

import pytest

from carbon.corpus import read_manifest
from carbon.errors import UserError
from data_pipeline.__main__ import main
from data_pipeline.inputs.taxonomy import Taxon, Taxonomy, opened_taxonomy
from data_pipeline.inspect.clades import clade_tree, mixture_by_clade
from tests.helpers.curation import build, rows_of
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.schemas import check_manifest
from train.config import PhaseConfig

# taxid, parent, rank, scientific name, as NCBI had them in 2025, with nodes between left out.
NODES = (
    (1, 1, "no rank", "root"),
    (131567, 1, "cellular root", "cellular organisms"),
    (2759, 131567, "domain", "Eukaryota"),
    (4751, 2759, "kingdom", "Fungi"),
    (4932, 4751, "species", "Saccharomyces cerevisiae"),
    (559292, 4932, "strain", "Saccharomyces cerevisiae S288C"),
    (4896, 4751, "species", "Schizosaccharomyces pombe"),
    (33208, 2759, "kingdom", "Metazoa"),
    (40674, 33208, "class", "Mammalia"),
    (9606, 40674, "species", "Homo sapiens"),
    (2, 131567, "domain", "Bacteria"),
    (562, 2, "species", "Escherichia coli"),
)
NAMES = (
    (4932, "baker's yeast", "genbank common name"),
    (4932, "Saccharomyces capensis", "synonym"),
    (562, 'Bacterium "coli" Escherich', "synonym"),
    (9606, "beast", "common name"),
    (562, "beast", "common name"),
)


@pytest.fixture(scope="module")
def taxdump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("taxdump")
    end = "\t|\n"
    (folder / "nodes.dmp").write_text(
        "".join(f"{t}\t|\t{p}\t|\t{r}\t|\t\t|\t8\t|\t0{end}" for t, p, r, _ in reversed(NODES))
    )
    names = [(t, n, "scientific name") for t, _, _, n in NODES] + list(NAMES)
    (folder / "names.dmp").write_text(
        "".join(f"{t}\t|\t{n}\t|\t\t|\t{k}{end}" for t, n, k in names)
    )
    (folder / "merged.dmp").write_text(f"41870\t|\t4932{end}")
    opened_taxonomy.cache_clear()
    return folder


def test_lineages_names_and_ranks(taxdump):
    found = Taxonomy(taxdump)
    assert found.lineage(4932) == (
        Taxon(131567, "cellular organisms", "cellular root"),
        Taxon(2759, "Eukaryota", "domain"),
        Taxon(4751, "Fungi", "kingdom"),
        Taxon(4932, "Saccharomyces cerevisiae", "species"),
    )
    assert found.lineage(41870) == found.lineage(4932)  # it was merged
    assert found.taxid_of("Saccharomyces cerevisiae") == 4932
    assert found.taxid_of("baker's yeast") == found.taxid_of("Saccharomyces capensis") == 4932
    assert found.taxid_of('Bacterium "coli" Escherich') == 562


def test_what_the_taxdump_does_not_tell(taxdump, tmp_path):
    found = Taxonomy(taxdump)
    for name, message in (("Homo sapins", r"names\.dmp: 'Homo sapins'"), ("beast", "of 2 taxa")):
        with pytest.raises(UserError, match=message):
            found.taxid_of(name)
    with pytest.raises(UserError, match=r"nodes\.dmp: has no taxid 77"):
        found.lineage(77)
    broken = shutil.copytree(taxdump, tmp_path / "broken")
    (broken / "nodes.dmp").write_text("4932\t|\t4751\t|\tx\t|\n4751\t|\t4932\t|\tx\t|\n")
    with pytest.raises(UserError, match="no way to the root"):
        Taxonomy(broken).lineage(4932)
    (broken / "nodes.dmp").write_text("one\t|\t4751\t|\tx\t|\n")
    with pytest.raises(UserError, match=r"nodes\.dmp: is no file of a taxdump"):
        Taxonomy(broken)


ORGANISMS = (
    ("Saccharomyces cerevisiae", 0, 4000),
    ("", 4896, 1000),
    ("Homo sapiens", 0, 9000),
    ("Escherichia coli", 0, 2000),
)


@pytest.fixture(scope="module")
def corpus(taxdump, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clades")
    settings = [f"taxdump={taxdump}", "divide_by=kingdom", "cut.chunk_bp=500"]
    for i, (organism, taxid, length_bp) in enumerate(ORGANISMS):
        write_fasta(folder / f"g{i}.fa", {f"c{i}": random_bases(length_bp, i)})
        each = {"genome": folder / f"g{i}.fa", "organism": organism, "taxid": taxid}
        settings += [f"assemblies.{i}.{k}={v}" for k, v in each.items() if v]
        settings += [f"assemblies.{i}.holdout=[]", f'assemblies.{i}.sources=["genome"]']
    assert build(folder / "c", *settings) == 0
    return folder / "c"


def test_species_types_and_sources_by_clade(corpus):
    manifest = read_manifest(corpus)
    assert {name: s["train"]["bases"] for name, s in manifest["sources"].items()} == {
        "genome": 2000,  # bacteria have no kingdom in this piece
        "genome-Fungi": 5000,
        "genome-Metazoa": 9000,
    }
    assert manifest["clades"] == {"genome-Fungi": "Fungi", "genome-Metazoa": "Metazoa"}
    check_manifest(manifest)
    kinds = {"genome": "pro", "genome-Fungi": "fng", "genome-Metazoa": "mam"}
    for name, kind in kinds.items():
        assert {row["species_type"] for row in rows_of(corpus, name)} == {kind}
        assert manifest["both_strands"][name] is True
    assert manifest["inputs"][1]["recipe"]["taxonomy"] == (
        "cellular organisms; Eukaryota; Fungi; Schizosaccharomyces pombe"
    )


def test_a_mixture_by_temperature_and_weight(corpus, capsys):
    """At temperature 2, roots: of 20, 50 and 90 they are 4.4721, 7.0711 and 9.4868."""
    capsys.readouterr()
    words = ["mixture", str(corpus), "--temperature", "2"]
    assert main(words) == 0
    table = tomllib.loads(capsys.readouterr().out)
    total = 4.4721 + 7.0711 + 9.4868
    wanted = {"genome": 4.4721, "genome-Fungi": 7.0711, "genome-Metazoa": 9.4868}
    assert table["mixture"] == pytest.approx({k: v / total for k, v in wanted.items()}, abs=1e-4)
    phase = {"name": "s", "objective": "ce", "tokens": 1, "context_tokens": 64, "batch_rows": 1,
             "learning_rate": 1e-3, "schedule": "constant"}  # fmt: skip
    assert PhaseConfig.from_table(phase | table, "t").mixture == table["mixture"]
    assert main([*words, "--weight", "Fungi=3", "--share", "genome=1"]) == 0
    heavy = tomllib.loads(capsys.readouterr().out)["mixture"]
    assert heavy["genome-Fungi"] / heavy["genome"] == pytest.approx(3 * 7.0711 / 4.4721, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--weight", "Plants=2"], "weight of 'Plants'"),
        (["--share", "mrna=1"], "share of 'mrna'"),
        (["--temperature", "0.5"], "temperature = 0.5"),
        (["--weight", "Fungi=nan"], "give a number"),
    ],
)
def test_a_mixture_that_is_none(corpus, capsys, words, message):
    assert main(["mixture", str(corpus), *words]) == 2
    assert message in capsys.readouterr().err


def test_shares_of_a_thousand_clades_are_none_of_them_nothing():
    """Rounded to 1/10,000, of which there must be one for each."""
    bases = {f"s-C{i}": 10 if i else 10**9 for i in range(1000)}
    manifest = {
        "sources": {name: {"train": {"bases": n}} for name, n in bases.items()},
        "clades": {name: name.removeprefix("s-") for name in bases},
    }
    found = mixture_by_clade(manifest, {"s": 1.0}, 1.0, {})
    assert round(sum(found.values()), 9) == 1 and min(found.values()) == 1e-4
    assert found["s-C0"] == pytest.approx(1 - 999e-4)


def test_a_tree_keeps_what_divides():
    lineages = {
        "a": ("life", "Eukaryota", "Fungi", "x"),
        "b": ("life", "Eukaryota", "Fungi", "y"),
        "c": ("life", "Bacteria", "z"),
        "d": ("life", "Bacteria"),
    }
    tree = clade_tree({"a": 5, "b": 2, "c": 4, "d": 1, "e": 3}, lineages)
    assert (tree.bases, tree.assemblies) == (15, 5)
    assert [(n.name, n.bases) for n in tree.below.values()] == [
        ("life", 12), ("no lineage told", 3)
    ]  # fmt: skip
    fungi, bacteria = tree.below["life"].below.values()
    assert (fungi.name, [n.name for n in fungi.below.values()]) == ("Fungi", ["x", "y"])
    assert (bacteria.bases, [n.name for n in bacteria.below.values()]) == (5, ["z"])


def test_the_report_has_clades(corpus, tmp_path):
    assert main(["inspect", str(corpus), "--report", str(tmp_path / "r.html")]) == 0
    part = (tmp_path / "r.html").read_text().partition("<h2>Clades</h2>")[2].partition("<h2>")[0]
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", part)
    assert cells[:4] == ["cellular organisms", "4", "16,000", "100.00"]


def test_an_assembly_of_nobody(tmp_path, taxdump, capsys):
    write_fasta(tmp_path / "g.fa", {"c": random_bases(9000)})
    settings = [f"taxdump={taxdump}", f"assemblies.0.genome={tmp_path}/g.fa"]
    assert build(tmp_path / "c", *settings) == 2
    assert "assembly 'g': give its organism, or its taxid" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
