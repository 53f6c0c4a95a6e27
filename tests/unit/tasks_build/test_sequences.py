"""Builders: what they make of genomes written by hand, and what they refuse."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import UserError
from carbon.genome import GENETIC_CODE, Reference, read_annotation, reverse_complement, translate
from carbon.genome.codon_usage import favourites
from eval.tasks import TASKS
from eval.tasks.common.building import Source, write_dataset
from eval.tasks.common.coding import coding_exons
from eval.tasks.synonymous_codons.build import recoded
from eval.tasks.triplet_expansion.build import expanded
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.tasks_build import CODING_BP, EXONS, rows_of

# One gene of two coding exons, forward and 0-based, on a contig that holds prompts.
CONTIG_BP = 8000


def gene_genome() -> str:
    """Return the contig: 240 coding bases that begin with ATG and end with a stop."""
    draw = np.random.default_rng(4)
    codons = [codon for codon, aa in sorted(GENETIC_CODE.items()) if aa != "*"]
    middle = "".join(draw.choice(codons, CODING_BP // 3 - 2))
    coding = "ATG" + middle + "TAA"
    first_bp = EXONS[0][1] - EXONS[0][0]
    bases = random_bases(CONTIG_BP, seed=21)
    (a, b), (c, d) = EXONS
    bases = bases[:a] + coding[:first_bp] + bases[b:c] + coding[first_bp:] + bases[d:]
    assert len(coding) % 3 == 0 and len(bases) == CONTIG_BP and translate(coding).count("*") == 1
    return bases


def gene_files(folder: Path, strand: str) -> dict[str, Path]:
    """Write the genome and its annotation; `-` is the same gene on the other strand."""
    bases, spans = gene_genome(), EXONS
    if strand == "-":
        bases = reverse_complement(bases)
        spans = [(CONTIG_BP - end, CONTIG_BP - start) for start, end in reversed(EXONS)]
    lines = [f"c1\tx\tgene\t{spans[0][0] + 1}\t{spans[1][1]}\t.\t{strand}\t.\tID=g;Name=ABC"]
    lines.append(lines[0].replace("\tgene\t", "\tmRNA\t").replace("ID=g;Name=ABC", "ID=t;Parent=g"))
    for kind in ("exon", "CDS"):
        lines += [f"c1\tx\t{kind}\t{a + 1}\t{b}\t.\t{strand}\t.\tParent=t" for a, b in spans]
    annotation = folder / "a.gff3"
    annotation.write_text("##gff-version 3\n" + "\n".join(lines) + "\n")
    return {"reference": write_fasta(folder / "g.fa", {"c1": bases}), "annotation": annotation}


def usage_file(folder: Path) -> Path:
    lines = [
        f"{aa},{codon},{n / 100}" for n, (codon, aa) in enumerate(sorted(GENETIC_CODE.items()))
    ]
    path = folder / "usage.csv"
    path.write_text("\n".join(["amino_acid,codon,relative_frequency", *lines]))
    return path


@given(st.text("ACGT", min_size=60, max_size=90), st.integers(0, 30))
def test_an_expansion_keeps_length_and_the_rest(sequence, start):
    after = expanded(sequence, start)
    assert len(after) == len(sequence)
    assert after == sequence[:start] + "CAG" * 10 + sequence[start + 30 :]


@pytest.mark.parametrize("strand", ["+", "-"])
def test_expansions_stand_60_bases_behind_the_first_whole_codon(tmp_path, strand):
    files = gene_files(tmp_path, strand)
    output = tmp_path / "t.parquet"
    report = TASKS["triplet_expansion"].build(output, **files, species="x")
    first, second = sorted(rows_of(output), key=lambda row: row["exon_rank"])
    genome = gene_genome()
    # 121 = 40 codons and a base: the second exon begins with two bases of a codon.
    assert (first["frame"], second["frame"]) == (0, 2)
    for row, (start, end) in zip((first, second), EXONS, strict=True):
        assert row["original_sequence"] == genome[:end]  # all that is upstream, on both strands
        patch = start + row["frame"] + 60
        assert row["sequence"] == genome[:patch] + "CAG" * 10 + genome[patch + 30 : end]
        assert (row["patch_start_in_seq"], row["patch_end_in_seq"]) == (patch, patch + 30)
        assert row["upstream_actual"] == start and row["is_clamped"] == 1
        assert row["strand"] == strand and row["species"] == "x"
    assert json.loads(output.with_suffix(".json").read_text())["rows"] == 2 == report.rows
    renamed = files["annotation"].read_text().replace("c1\t", "chrc1\t")
    files["annotation"].write_text(renamed)
    assert TASKS["triplet_expansion"].build(output, **files, species="x").rows == 2


codon_text = st.lists(st.sampled_from(sorted(GENETIC_CODE)), min_size=1, max_size=40).map("".join)


@given(codon_text, st.integers(0, 5))
def test_an_exchange_keeps_the_protein(codons, seed):
    favourite = {"M": "ATG", "W": "TGG", "F": "TTC", "L": "CTG", "K": "AAA"}
    assert recoded("ATGTTTCTGTGGAAGTAG", favourite) == ("ATGTTCCTGTGGAAATAG", 3, 2)
    draw = np.random.default_rng(seed)
    usage = dict(zip(sorted(GENETIC_CODE), draw.random(64).tolist(), strict=True))
    after = recoded(codons, favourites(usage))
    assert translate(after.bases) == translate(codons) and len(after.bases) == len(codons)
    assert recoded(after.bases, favourites(usage)).num_changed == 0
    assert after.num_changed <= after.num_eligible <= len(codons) // 3


@pytest.mark.parametrize("strand", ["+", "-"])
def test_synonymous_rows_keep_the_protein_and_the_flanks(tmp_path, strand):
    """The protein of the whole CDS, put together again from the rows, on both strands."""
    files = gene_files(tmp_path, strand)
    output = tmp_path / "s.parquet"
    build = TASKS["synonymous_codons"].build
    build(output, **files, codon_usage=usage_file(tmp_path), species="x")
    rows = sorted(rows_of(output), key=lambda row: row["exon_rank"])
    parts = {"original_sequence": "", "sequence": ""}
    for row, (start, end) in zip(rows, EXONS, strict=True):
        a, b = row["cds_start_in_seq"], row["cds_end_in_seq"]
        original, sequence = row["original_sequence"], row["sequence"]
        assert original[a:b] == gene_genome()[start:end]
        assert (original[:a], original[b:]) == (sequence[:a], sequence[b:])
        assert len(original) == len(sequence) and original in gene_genome()
        p, q = row["patch_start_in_seq"], row["patch_end_in_seq"]
        # Behind the first codon of the CDS, or the two bases that end one of the exon before.
        assert p - a == (3 if row["exon_rank"] == 1 else 2)
        assert (q - p) % 3 == 0 and b - 2 <= q <= b
        assert row["n_codons_total"] == (q - p) // 3
        for name in parts:
            parts[name] += row[name][a:b]
    assert parts["original_sequence"] != parts["sequence"]
    assert translate(parts["original_sequence"]) == translate(parts["sequence"])
    assert sum(row["n_codons_changed"] for row in rows) > 40


def test_genes_that_are_left_out_are_counted(tmp_path):
    bases = random_bases(6000, seed=3).replace("TAA", "TCA").replace("TAG", "TCG")
    stop_inside = "ATGTAA" + "GCC" * 10 + "TAA"
    bases = bases[:3000] + stop_inside + bases[3000 + len(stop_inside) :]
    genes = {
        "short": (100, 220, "CDS", ""),
        "odd": (400, 521, "CDS", ""),
        "stop": (3000, 3000 + len(stop_inside), "CDS", ""),
        "partial": (800, 920, "CDS", ";partial=true"),
        "rna": (1000, 1200, "exon", ""),
    }
    lines = []
    for name, (start, end, kind, more) in genes.items():
        head, tail = f"c1\tx\t{{}}\t{start + 1}\t{end}\t.\t+\t.\t", f";n=1{more}\n"
        lines += [head.format("gene") + f"ID={name}\n",
                  head.format("mRNA") + f"ID={name}-t;Parent={name}\n",
                  head.format(kind) + f"Parent={name}-t{tail}"]  # fmt: skip
    annotation = tmp_path / "a.gff3"
    annotation.write_text("##gff-version 3\n" + "".join(lines))
    dropped: Counter[str] = Counter()
    with Reference(write_fasta(tmp_path / "g.fa", {"c1": bases})) as reference:
        exons = list(coding_exons(reference, read_annotation(annotation, reference), dropped))
    assert exons == []
    assert dropped == {
        "stop_missing_or_inside": 2,
        "cds_not_in_frame": 1,
        "incomplete_cds": 1,
        "gene_without_cds": 1,
    }
    with pytest.raises(UserError, match="no row to write; left out: 2 stop_missing_or_inside"):
        TASKS["triplet_expansion"].build(
            tmp_path / "t.parquet", reference=tmp_path / "g.fa", annotation=annotation
        )
    assert not (tmp_path / "t.parquet").exists()


def test_equal_arguments_give_equal_bytes(tmp_path):
    files = gene_files(tmp_path, "+")
    source = Source("fng", files["reference"], files["annotation"])
    builds = {
        "sequence_recovery": {"num_examples": 9},
        "genomic_niah": {"num_examples": 2, "context_length_tokens": [330]},
    }
    for name, arguments in builds.items():
        outputs = [tmp_path / f"{name}-{n}.parquet" for n in range(3)]
        for output, seed in zip(outputs, (0, 0, 1), strict=True):
            report = TASKS[name].build(output, sources=[source], **arguments, seed=seed)
            assert report.settings["seed"] == seed and "g.fa" in report.inputs
        first, second, other = (output.read_bytes() for output in outputs)
        assert first == second != other, name


@pytest.mark.parametrize("strand", ["+", "-"])
def test_places_to_recover_lie_in_genes_on_their_strand(tmp_path, strand):
    files = gene_files(tmp_path, strand)
    output = tmp_path / "r.parquet"
    source = Source("fng", files["reference"], files["annotation"])
    report = TASKS["sequence_recovery"].build(output, sources=[source], num_examples=40)
    genome = gene_genome()
    rows = rows_of(output)
    assert len(rows) == 40 == len({row["start"] for row in rows})
    for row in rows:
        at = genome.index(row["label"])
        assert EXONS[0][0] <= at <= EXONS[1][1] - 128  # inside the gene
        assert row["sequence"] == genome[at - 6144 : at]
        start = at if strand == "+" else CONTIG_BP - at - 128
        assert (row["start"], row["end"], row["strand"]) == (start, start + 128, strand)
    assert report.settings["groups"] == ["fng"]
    with pytest.raises(UserError, match="source 'fng': needs an annotation"):
        TASKS["sequence_recovery"].build(output, sources=[Source("fng", files["reference"])])


def test_inputs_of_one_name_are_all_in_the_report(tmp_path):
    """Assemblies of NCBI each have a `genomic.gff`."""
    paths = [tmp_path / "a" / "genomic.gff", tmp_path / "b" / "genomic.gff", tmp_path / "c.fa"]
    for n, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(n))
    report = write_dataset(tmp_path / "o.parquet", [{"a": 1}], Counter(), [*paths, paths[2]], {})
    assert list(report.inputs) == [str(paths[0]), str(paths[1]), "c.fa"]
    assert len(set(report.inputs.values())) == 3
