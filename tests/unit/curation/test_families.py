"""Families of proteins that are held out together; the engine is stood in for, or is there."""

import os
import random
import shutil
import stat
import sys

import pytest

from carbon.corpus import read_manifest, read_source
from carbon.genome import GENETIC_CODE, read_sequences, reverse_complement
from data_pipeline import families
from data_pipeline.limits import FamilyConfig
from tests.helpers.curation import assembly, build
from tests.helpers.files import random_bases, write_fasta

# Clusters what is equal or differs in few places, as the two engines would.
ENGINE = """#!{python}
import sys
words = sys.argv[1:]
proteins, found = words[1], words[2] + "_cluster.tsv"
lines = open(proteins).read().split()
names, texts = [line[1:] for line in lines[::2]], lines[1::2]
alike = lambda a, b: len(a) == len(b) and sum(x == y for x, y in zip(a, b)) >= len(a) / 2
families = []
for name, text in zip(names, texts):
    family = next((f for f in families if alike(f[0][1], text)), None)
    if family is None:
        families.append([(name, text)])
    else:
        family.append((name, text))
with open(found, "w") as sink:
    for family in families:
        sink.writelines(f"{{family[0][0]}}\\t{{name}}\\n" for name, _ in family)
"""


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A stand-in that is on the PATH as mmseqs."""
    path = tmp_path / "bin" / "mmseqs"
    path.parent.mkdir()
    path.write_text(ENGINE.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")


@pytest.mark.nightly
@pytest.mark.parametrize("program", families.ENGINES)
def test_engines(tmp_path, monkeypatch, program):
    """What is told of both, of proteins that differ in 3 of 10 places and in all."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    monkeypatch.setattr(families, "check_engine", lambda: program)
    rng = random.Random(1)
    lines = []
    for family in range(20):
        protein = rng.choices("ACDEFGHIKLMNPQRSTVWY", k=120)
        lines.append(f">{family}.0\n{''.join(protein)}\n")
        for at in rng.sample(range(120), 30):
            protein[at] = "W"
        lines.append(f">{family}.1\n{''.join(protein)}\n")
    (tmp_path / "p.fa").write_text("".join(lines))
    for identity, size in ((0.5, 2), (0.9, 1)):
        found = list(families.clusters_of(tmp_path / "p.fa", identity))
        assert len(found) == 40 // size
        assert all(len({name.partition(".")[0] for name in family}) == 1 for family in found)


def a_gene(seed):
    """A CDS of 100 codons, with its stop."""
    rng = random.Random(seed)
    codons = sorted(codon for codon, acid in GENETIC_CODE.items() if acid != "*")
    return "ATG" + "".join(rng.choice(codons) for _ in range(99)) + "TAA"


def diverged(cds, seed):
    """The same gene with a third of its codons others, none of them a stop."""
    rng = random.Random(seed)
    codons = [cds[i : i + 3] for i in range(0, len(cds), 3)]
    sense = sorted(codon for codon, acid in GENETIC_CODE.items() if acid != "*")
    for at in rng.sample(range(1, len(codons) - 1), 33):
        codons[at] = rng.choice(sense)
    return "".join(codons)


@pytest.fixture
def genomes(tmp_path):
    """Two assemblies of 24 families: one member each, on other contigs and strands, all apart."""
    for number, name in enumerate(("one", "two")):
        folder = tmp_path / name
        folder.mkdir()
        rng = random.Random(number)
        order = rng.sample(range(24), 24)
        contigs, lines = {"c0": "", "c1": ""}, ["##gff-version 3"]
        for place, family in enumerate(order):
            contig = f"c{place % 2}"
            cds = a_gene(family) if number == 0 else diverged(a_gene(family), 100 + family)
            strand = rng.choice("+-")
            contigs[contig] += random_bases(300, 1000 * number + place)
            start = len(contigs[contig])
            contigs[contig] += cds if strand == "+" else reverse_complement(cds)
            span = f"{contig}\t.\t{{}}\t{start + 1}\t{start + len(cds)}\t.\t{strand}\t{{}}\t"
            told = {
                "gene": f"ID=g{family};biotype=protein_coding",
                "mRNA": f"ID=t{family};Parent=g{family}",
            }
            lines += [span.format(kind, ".") + told[kind] for kind in told]
            lines += [span.format(kind, 0) + f"Parent=t{family}" for kind in ("exon", "CDS")]
        write_fasta(
            folder / "genome.fa", {n: bases + random_bases(300, 7) for n, bases in contigs.items()}
        )
        (folder / "genes.gff3").write_text("\n".join(lines) + "\n")
    return tmp_path


def words_of(genomes, *more, holdout='["family"]'):
    sources = '["mrna", "eukaryote", "genome"]'
    result = ["families.share=0.2", "keep.near_identity=1.0", *more]
    for number, name in enumerate(("one", "two")):
        settings = {"name": name, "sources": sources, "holdout": holdout}
        result += assembly(genomes / name, number, **settings)
    return result


def test_a_family_is_held_out_of_all_assemblies(genomes, engine, tmp_path):
    assert build(tmp_path / "c", *words_of(genomes)) == 0
    split_of = {}
    for split in ("train", "test"):
        for row in read_source(tmp_path / "c", "mrna", split).to_pylist():
            split_of.setdefault(row["name"], set()).add((row["assembly"], split))
    held_out = {name for name, places in split_of.items() if ("one", "test") in places}
    assert 1 <= len(held_out) <= 10  # 4.8 are expected
    for name, places in split_of.items():
        assert {split for _, split in places} == {"test" if name in held_out else "train"}
        assert {of for of, _ in places} == {"one", "two"}, "a third of the codons are others"
    regions = read_manifest(tmp_path / "c")["held_out"]
    assert len(regions) == 2 * len(held_out)
    # No base of a held-out gene is trained on, whatever the source.
    for number, name in enumerate(("one", "two")):
        contigs = dict(read_sequences(genomes / name / "genome.fa"))
        mine = regions[number * len(held_out) : (number + 1) * len(held_out)]
        genes = []
        for region in mine:
            contig, _, span = region.partition(":")
            first, last = map(int, span.split("-"))
            genes.append(contigs[contig][first - 1 : last])
        for source in ("mrna", "eukaryote", "genome"):
            for row in read_source(tmp_path / "c", source, "train").to_pylist():
                forms = (row["sequence"], reverse_complement(row["sequence"]))
                assert not any(gene[100:160] in form for gene in genes for form in forms)


def test_the_order_of_assemblies_changes_nothing(genomes, engine, tmp_path):
    def held_out(output):
        assert build(tmp_path / output, *words_of(genomes)) == 0
        return {row["name"] for row in read_source(tmp_path / output, "mrna", "test").to_pylist()}

    first = held_out("a")
    names = [genomes / name for name in ("one", "two", "x")]
    for one, other in ((0, 2), (1, 0), (2, 1)):  # now `one` is what `two` was
        names[one].rename(names[other])
    assert held_out("b") == first


def test_beside_regions_and_in_some_assemblies_alone(genomes, engine, tmp_path):
    """Families are those of all assemblies, also of one that holds out a contig."""
    words = [*words_of(genomes), 'assemblies.1.holdout=["c1"]']
    assert build(tmp_path / "c", *words) == 0
    train = read_source(tmp_path / "c", "mrna", "train").to_pylist()
    test = read_source(tmp_path / "c", "mrna", "test").to_pylist()
    held_out = {row["name"] for row in test if row["assembly"] == "one"}
    assert held_out and not held_out & {row["name"] for row in train}
    assert {row["record_id"] for row in train if row["assembly"] == "two"} == {"c0"}


@pytest.mark.parametrize(
    ("engine", "message"), [(None, "mmseqs or diamond on the PATH"), ("mmseqs", "no room")]
)
def test_an_engine_that_is_not_there_or_fails(
    genomes, tmp_path, capsys, monkeypatch, engine, message
):
    command = ["sh", "-c", "echo no room >&2; exit 3"]
    monkeypatch.setitem(families.ENGINES, "mmseqs", lambda *_: command)
    monkeypatch.setattr(families.shutil, "which", lambda name: engine)
    assert build(tmp_path / "c", *words_of(genomes)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("members", [1, 5])
def test_the_share_of_families_is_that_asked_for(members):
    rng = random.Random(members)
    drawn = [[f"0.0.{rng.getrandbits(64):016x}" for _ in range(members)] for _ in range(4000)]
    chosen = sum(families.is_held_out(family, FamilyConfig().share) for family in drawn)
    assert 155 < chosen < 245  # 200 are expected, with a deviation of 14
    for family in drawn[:99]:  # the same protein again changes nothing
        assert families.is_held_out(family * 3, 0.05) == families.is_held_out(family, 0.05)
