"""Builders: what they make of genomes written by hand, and what they refuse."""

import gzip
import importlib
import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import GenomeError, UserError
from carbon.genome import GENETIC_CODE, Reference, read_annotation, reverse_complement, translate
from eval.tasks import TASKS
from eval.tasks.building import Source, drawn, source_of, write_dataset
from eval.tasks.coding import coding_exons
from eval.tasks.codons import favourites
from eval.tasks.genomic_niah.build import (
    DEPTHS,
    LEVELS,
    Needles,
    changed,
    distractors,
    hidden,
    slots,
)
from eval.tasks.synonymous_codons.build import recoded
from eval.tasks.triplet_expansion.build import EXPANSION, expanded
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.tasks import OTHER

# One gene of two coding exons, forward and 0-based, on a contig that holds prompts.
CONTIG_BP = 8000
EXONS = [(6900, 7021), (7500, 7619)]
CODING_BP = sum(end - start for start, end in EXONS)


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


def rows_of(path: Path) -> list[dict]:
    return pq.read_table(path).to_pylist()


def usage_file(folder: Path) -> Path:
    lines = [
        f"{aa},{codon},{n / 100}" for n, (codon, aa) in enumerate(sorted(GENETIC_CODE.items()))
    ]
    path = folder / "usage.csv"
    path.write_text("\n".join(["amino_acid,codon,relative_frequency", *lines]))
    return path


def test_a_triplet_is_expanded_by_hand():
    before = "ATGGCC" + "TTT" * 10 + "GGG"
    after = "ATGGCC" + "CAG" * 10 + "GGG"
    assert expanded(before, 6) == after
    assert EXPANSION == "CAGCAGCAGCAGCAGCAGCAGCAGCAGCAG"


@given(st.text("ACGT", min_size=60, max_size=90), st.integers(0, 30))
def test_an_expansion_keeps_length_and_the_rest(sequence, start):
    after = expanded(sequence, start)
    assert len(after) == len(sequence)
    assert after[:start] == sequence[:start] and after[start + 30 :] == sequence[start + 30 :]


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
    assert report.rows == 2 and report.dropped == {}
    assert json.loads(output.with_suffix(".json").read_text())["rows"] == 2


def test_codons_are_exchanged_by_hand():
    favourite = {"M": "ATG", "W": "TGG", "F": "TTC", "L": "CTG", "K": "AAA"}
    after = recoded("ATGTTTCTGTGGAAGTAG", favourite)
    assert after == ("ATGTTCCTGTGGAAATAG", 3, 2)


codon_text = st.lists(st.sampled_from(sorted(GENETIC_CODE)), min_size=1, max_size=40).map("".join)


@given(codon_text, st.integers(0, 5))
def test_an_exchange_keeps_the_protein(codons, seed):
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
    fasta = files["reference"]
    source = Source("fng", fasta, files["annotation"])
    builds = {
        "triplet_expansion": files,
        "synonymous_codons": {**files, "codon_usage": usage_file(tmp_path)},
        "sequence_recovery": {"sources": [source], "num_examples": 9},
        "genomic_niah": {"sources": [source], "num_examples": 2, "context_length_tokens": [330]},
    }
    for name, arguments in builds.items():
        outputs = [tmp_path / f"{name}-{n}.parquet" for n in range(3)]
        for output, seed in zip(outputs, (0, 0, 1), strict=True):
            report = TASKS[name].build(output, **arguments, seed=seed)
            assert report.settings["seed"] == seed and fasta.name in report.inputs
        first, second, other = (output.read_bytes() for output in outputs)
        assert first == second, name
        if name in ("sequence_recovery", "genomic_niah"):
            assert first != other, name


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


def test_sources_are_read_from_text():
    assert source_of("fng=a.fa,b.gtf") == ("fng", Path("a.fa"), Path("b.gtf"))
    assert source_of("fng=a.fa") == ("fng", Path("a.fa"), None)
    for text in ("a.fa", "=a.fa", "fng="):
        with pytest.raises(UserError, match="write it as group=FASTA"):
            source_of(text)


@pytest.fixture(scope="module")
def niah(tmp_path_factory) -> tuple[str, list[dict]]:
    folder = tmp_path_factory.mktemp("niah")
    genome = random_bases(9000, seed=31)
    fasta = write_fasta(folder / "g.fa", {"c1": genome[:4000] + "N" * 50 + genome[4000:]})
    output = folder / "n.parquet"
    TASKS["genomic_niah"].build(
        output, sources=[Source("x", fasta)], context_length_tokens=[400, 500], num_examples=10
    )
    return genome, rows_of(output)


def test_keys_stand_at_their_depth(niah):
    _, rows = niah
    assert len(rows) == 4 * 2 * 10 and len({row["uid"] for row in rows}) == 80
    assert Counter(row["depth"] for row in rows) == {depth: 16 for depth in DEPTHS}
    for row in rows:
        body = row["prompt"][:-24]
        at = body.index(row["key"] + row["value"])
        assert row["prompt"].endswith(row["key"]) and body.count(row["key"]) == 1
        assert at % 6 == 0 and abs(at - row["depth"] * len(body)) <= 3
        # Prompt and value and `<dna>` are the context.
        assert len(row["prompt"]) + 24 == 6 * (row["context_length_tokens"] - 1)
        assert row["positive_sequence"] == row["prompt"] + row["value"]
        wrong = row["negative_sequence"][len(row["prompt"]) :]
        assert row["negative_sequence"].startswith(row["prompt"]) and len(wrong) == 24
        assert not any(a == b for a, b in zip(wrong, row["value"], strict=True))


def test_near_duplicates_differ_in_so_many_bases(niah):
    _, rows = niah
    for row in rows:
        edits = LEVELS[row["level"]]
        others = row["distractor_keys"]
        assert len(others) == len(set(others)) == (8 if edits else 0)
        body = row["prompt"][:-24]
        for other, start in zip(others, row["needle_starts"][1:], strict=True):
            assert sum(a != b for a, b in zip(other, row["key"], strict=True)) == edits
            assert body[start : start + 24] == other and start % 6 == 0
            assert body[start + 24 : start + 48] != row["value"]


def test_levels_differ_in_their_distractors_alone(niah):
    """Taken out again, the needles leave one stretch of the genome, the same for all levels."""
    genome, rows = niah
    stretches: dict[str, set[str]] = {}
    for row in rows:
        body = row["prompt"][:-24]
        for start in sorted(row["needle_starts"], reverse=True):
            body = body[:start] + body[start + 48 :]
        assert body in genome[:4000] or body in genome[4000:]
        name = row["uid"].partition("-")[2]
        stretches.setdefault(f"{name} {row['key']} {row['value']}", set()).add(body[:600])
    assert len(stretches) == 20 and all(len(bodies) == 1 for bodies in stretches.values())


@given(st.integers(300, 500), st.sampled_from(DEPTHS), st.integers(0, 8), st.integers(0, 99))
def test_slots_never_overlap(tokens, depth, num_distractors, seed):
    body_bp = 6 * tokens
    starts = slots(body_bp, depth, num_distractors, np.random.default_rng(seed))
    assert len(starts) == 1 + num_distractors and abs(starts[0] - depth * body_bp) <= 3 + 48
    ordered = sorted(starts)
    assert all(b - a >= 48 for a, b in itertools.pairwise(ordered))
    assert all(start % 6 == 0 and 0 <= start <= body_bp - 48 for start in starts)


def test_needles_are_put_in_by_hand():
    hay = "a" * 60 + "b" * 60
    needles = Needles("K" * 24, "V" * 24, (("D" * 24, "W" * 24),))
    body = hidden(hay, needles, [60, 0])
    assert body == "D" * 24 + "W" * 24 + "a" * 12 + "K" * 24 + "V" * 24 + "a" * 12
    assert hidden(hay, Needles("K" * 24, "V" * 24, ()), [72]) == (
        "a" * 60 + "b" * 12 + "K" * 24 + "V" * 24
    )


@given(st.text("ACGT", min_size=24, max_size=24), st.sampled_from([1, 2, 4]), st.integers(0, 9))
def test_distractors_are_distinct(key, edits, seed):
    pairs = distractors(key, edits, np.random.default_rng(seed))
    keys = [other for other, _ in pairs]
    assert len(set(keys)) == 8 and key not in keys
    assert all(sum(a != b for a, b in zip(k, key, strict=True)) == edits for k in keys)
    assert changed(key, [], np.random.default_rng(0)) == key


def test_long_haystacks_are_stitched(tmp_path, monkeypatch):
    module = importlib.import_module("eval.tasks.genomic_niah.build")
    monkeypatch.setattr(module, "_CONTIGUOUS_TOKENS", 320)
    contigs = {"a": random_bases(1500, seed=1), "b": "N" * 50 + random_bases(1500, seed=2) + "NN"}
    contigs["b"] += "ACGT" * 100  # a run that is too short to be taken
    source = Source("x", write_fasta(tmp_path / "g.fa", contigs))
    output = tmp_path / "n.parquet"
    build = TASKS["genomic_niah"].build
    build(output, sources=[source], context_length_tokens=[330, 450], num_examples=5)
    rows = [row for row in rows_of(output) if row["level"] == "plain"]
    assert len(rows) == 10
    a, b = contigs["a"], contigs["b"][50:1550]
    for row in rows:
        start = row["needle_starts"][0]
        hay = row["prompt"][:start] + row["prompt"][start + 48 : -24]
        assert hay in a + b or hay in b + a
    with pytest.raises(UserError, match="left out: 20 genome_too_short"):
        build(output, sources=[source], context_length_tokens=[900], num_examples=5)
    with pytest.raises(UserError, match="100 tokens: give 320 or more"):
        build(output, sources=[source], context_length_tokens=[100])


CLINVAR_HEADER = (
    "##reference=GRCh38\n"
    '##INFO=<ID=CLNSIG,Number=.,Type=String,Description="x">\n'
    '##INFO=<ID=CLNREVSTAT,Number=.,Type=String,Description="x">\n'
    '##INFO=<ID=MC,Number=.,Type=String,Description="x">\n'
    "##contig=<ID=7>\n##contig=<ID=NW_1>\n"
)


def clinvar_files(folder: Path, wrong: bool = False) -> dict[str, Path]:
    bases = random_bases(2000, seed=41)
    records = []

    def add(position: int, significance: str, terms: str, stars: str = "criteria_provided,_x",
            ref: str = "", alt: str = "", contig: str = "7") -> None:  # fmt: skip
        ref = ref or bases[position]
        alt = alt or OTHER[ref[0]]
        consequences = ",".join(f"SO:1|{term}" for term in terms.split())
        info = f"CLNSIG={significance};CLNREVSTAT={stars}"
        info += f";MC={consequences}" if consequences else ""
        records.append(f"{contig}\t{position + 1}\t{len(records)}\t{ref}\t{alt}\t.\t.\t{info}")

    for n in range(100):
        add(100 + n, ("Pathogenic", "Benign")[n % 2], "missense_variant")
    for n in range(30):
        add(300 + n, ("Likely_pathogenic", "Likely_benign")[n % 3 > 0], "intron_variant")
    add(400, "Pathogenic/Likely_pathogenic", "intron_variant nonsense", "practice_guideline")
    add(401, "Uncertain_significance", "missense_variant")
    add(402, "Pathogenic", "missense_variant", "no_assertion_criteria_provided")
    add(403, "Pathogenic", "")
    add(404, "Benign", "missense_variant", ref=bases[404:406], alt="A")
    add(406, "Benign", "missense_variant", ref=OTHER[bases[406]], alt=bases[406])
    add(5, "Benign", "missense_variant", ref="A", contig="NW_1")
    if wrong:
        bases = random_bases(2000, seed=42)
    return {
        "vcf": write_vcf(folder / "clinvar.vcf", records, CLINVAR_HEADER),
        "reference": write_fasta(folder / "g.fa", {"chr7": bases}),
    }


def test_clinvar_is_taken_apart(tmp_path):
    files = clinvar_files(tmp_path)
    coding, noncoding = tmp_path / "c.parquet", tmp_path / "n.parquet"
    report = TASKS["clinvar_coding"].build(coding, **files)
    rows = rows_of(coding)
    assert Counter(row["label"] for row in rows) == {0: 50, 1: 51}
    assert rows[-1]["variant_type"] == "nonsense" and rows[-1]["clinvar_id"] == "130"
    assert report.dropped == {
        "contig_not_in_reference": 1,
        "neither_pathogenic_nor_benign": 1,
        "no_consequence": 1,
        "no_star": 1,
        "not_a_single_base_change": 1,
        "other_region": 30,
        "ref_mismatch": 1,
    }
    report = TASKS["clinvar_noncoding"].build(noncoding, **files)
    rows = rows_of(noncoding)
    assert Counter(row["label"] for row in rows) == {0: 10, 1: 10}
    assert report.dropped["larger_class"] == 10
    assert [row["pos"] for row in rows] == sorted(row["pos"] for row in rows)
    few = TASKS["clinvar_coding"].build(coding, **files, num_examples=7, seed=3)
    assert few.rows == 7 and few.dropped["not_drawn"] == 94


def test_clinvar_of_another_assembly_is_refused(tmp_path):
    files = clinvar_files(tmp_path, wrong=True)
    with pytest.raises(GenomeError, match=r"variants disagree, as 7:\d+ .*is it the assembly"):
        TASKS["clinvar_coding"].build(tmp_path / "c.parquet", **files)
    assert not (tmp_path / "c.parquet").exists()


def listing(bases: str, first: int, num_rows: int) -> list[dict]:
    kinds = ["P strong", "B moderate", "VUS", "LOF", "FUNC", "INT"]
    return [
        {"chrom": "13", "pos": first + n + 1, "ref": bases[first + n],
         "alt": OTHER[bases[first + n]], "class": kinds[n % 6], "score": n / 10, "label": n % 2,
         "consequence": "distal"}
        for n in range(num_rows)
    ]  # fmt: skip


def write_listing(path: Path, rows: list[dict], separator: str = "\t") -> Path:
    lines = [separator.join(rows[0]), *(separator.join(map(str, r.values())) for r in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def brca(tmp_path_factory) -> tuple[str, Path]:
    bases = random_bases(9000, seed=51)
    return bases, write_fasta(tmp_path_factory.mktemp("brca") / "g.fa", {"chr13": bases})


def test_a_saturation_table_becomes_windows(tmp_path, brca):
    bases, fasta = brca
    rows = listing(bases, 4200, 60) + listing(bases, 4200, 1) + listing(bases, 30, 2)
    rows[5] |= {"ref": "AC"}
    table = write_listing(tmp_path / "t.tsv", rows)
    output = tmp_path / "b.parquet"
    report = TASKS["brca2"].build(output, table=table, reference=fasta)
    found = rows_of(output)
    assert report.dropped == {
        "near_the_end_of_its_contig": 2,
        "no_label": 10,
        "not_a_single_base_change": 1,
        "stands_twice": 1,
    }
    assert len(found) == 49 and set(found[0]) == {
        "chrom", "pos", "ref", "alt", "score", "class", "ref_seq", "var_seq"
    }  # fmt: skip
    for row in found:
        at = row["pos"] - 1
        assert row["ref_seq"] == bases[at - 4096 : at + 4096]
        assert row["var_seq"] == bases[at - 4096 : at] + row["alt"] + bases[at + 1 : at + 4096]
        kind = ("LOF", "FUNC/INT", "", "LOF", "FUNC/INT", "FUNC/INT")[(at - 4200) % 6]
        assert row["class"] == kind and row["score"] == pytest.approx((at - 4200) / 10)


def test_the_workbook_of_the_paper_is_read_by_its_places(tmp_path, brca):
    bases, fasta = brca
    book = openpyxl.Workbook()
    book.create_sheet("Table S3")
    sheet = book["Table S3"]
    for line in ("Supplementary Table 3", "notes", "exon"):
        sheet.append([line] + ["a long header"] * 21)
    for row in listing(bases, 4200, 12):
        cells = ["e1", "chr13", row["pos"], "x", 1, "x", "Exon", row["ref"], row["alt"], "c.1"]
        cells += ["x"] * 6 + [row["score"], row["score"] + 2, None, "x", "x", row["class"]]
        sheet.append(cells)
    book.save(tmp_path / "huang.xlsx")
    output = tmp_path / "b.parquet"
    report = TASKS["brca2"].build(output, table=tmp_path / "huang.xlsx", reference=fasta)
    assert report.rows == 10 and report.dropped == {"no_label": 2}
    assert [row["score"] for row in rows_of(output)][:2] == pytest.approx([1.0, 1.1])


def test_a_variant_list_becomes_traitgym(tmp_path, brca):
    bases, fasta = brca
    for name, separator in (("t.tsv", "\t"), ("t.csv", ",")):
        table = write_listing(tmp_path / name, listing(bases, 4200, 20), separator)
        output = tmp_path / "t.parquet"
        TASKS["traitgym_mendelian"].build(output, table=table, reference=fasta)
        rows = rows_of(output)
        assert [row["label"] for row in rows] == [0, 1] * 10
        assert {(row["label"], row["class"]) for row in rows} == {(0, "FUNC/INT"), (1, "LOF")}
    task = TASKS["traitgym_mendelian"]
    assert set(task.columns) <= set(rows[0]) and set(TASKS["brca2"].columns) - {"class"} <= set(
        rows[0]
    )


def test_lists_that_are_broken_are_refused(tmp_path, brca):
    bases, fasta = brca
    build = TASKS["traitgym_mendelian"].build
    good = listing(bases, 4200, 20)
    for rows, words in (
        ([{k: v for k, v in row.items() if k != "label"} for row in good], "no column 'label'"),
        ([good[0], good[1] | {"pos": "?"}], "row 2: position '\\?' is not a number"),
        ([good[0], good[1] | {"pos": -5}], "row 2: position -5; places are counted from 1"),
        ([good[0], good[1] | {"alt": " "}], "row 2: has no alt"),
        ([good[0], good[1] | {"label": 2}], "variant 2: label '2'"),
        ([row | {"pos": row["pos"] + 1} for row in good], "variants disagree.*assembly"),
        ([row | {"chrom": "14"} for row in good], "no contig '14'"),
    ):
        table = write_listing(tmp_path / "t.tsv", rows)
        with pytest.raises((UserError, GenomeError), match=words) as raised:
            build(tmp_path / "t.parquet", table=table, reference=fasta)
        assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="no such file"):
        build(tmp_path / "t.parquet", table=tmp_path / "absent.tsv", reference=fasta)


def test_lists_that_cannot_be_read_are_said_in_one_line(tmp_path, brca):
    openpyxl.Workbook().save(tmp_path / "hollow.xlsx")
    short = openpyxl.Workbook()
    sheet = short.create_sheet("Table S3")
    for _ in range(5):
        sheet.append(["a", "b"])
    short.save(tmp_path / "short.xlsx")
    (tmp_path / "torn.tsv.gz").write_bytes(gzip.compress(b"chrom\tpos\n" * 1000)[:30])
    (tmp_path / "binary.tsv").write_bytes(b"chrom\tpos\n\xff\xfe\x00\x81")
    (tmp_path / "empty.csv").write_bytes(b"")
    for name in ("no.xlsx", "no.parquet"):
        (tmp_path / name).write_bytes(b"no")
    for name, words in (
        ("hollow.xlsx", "has no row"),
        ("empty.csv", "has no row"),
        ("short.xlsx", "cannot be read"),
        ("torn.tsv.gz", r"cannot be read \(Compressed file ended"),
        ("binary.tsv", r"cannot be read \('utf-8' codec"),
        ("no.xlsx", "cannot be read .*of another kind than its name says"),
        ("no.parquet", "cannot be read"),
    ):
        with pytest.raises(UserError, match=f"{name}: {words}") as raised:
            TASKS["brca2"].build(tmp_path / "b.parquet", table=tmp_path / name, reference=brca[1])
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "b.parquet").exists()


def test_what_is_drawn_and_written(tmp_path):
    assert drawn(5, None, 0) == drawn(5, 9, 0) == [0, 1, 2, 3, 4]
    assert drawn(100, 10, 1) == sorted(set(drawn(100, 10, 1))) != drawn(100, 10, 2)
    rows = ({"n": n, "text": "x" * n} for n in range(40))
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    dropped = Counter({"none": 0, "some": 2})
    report = write_dataset(tmp_path / "x.parquet", rows, dropped, [], {}, schema)
    assert report.rows == 40 and report.dropped == {"some": 2}
    assert [row["n"] for row in rows_of(tmp_path / "x.parquet")] == list(range(40))
    with pytest.raises(UserError, match="create it first"):
        write_dataset(tmp_path / "no" / "x.parquet", [{"n": 1}], Counter(), [], {})
