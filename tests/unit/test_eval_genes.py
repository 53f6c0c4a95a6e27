"""What `heldout` measures gene by gene: frames, codon adaptation, damage of known kind."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from carbon.errors import GenomeError, UserError
from carbon.genome import STOP_CODONS, Consequences, Interval, Reference, reverse_complement
from carbon.metrics import rank_correlation
from carbon.uncertainty import wilson
from eval.__main__ import main
from eval.heldout.codon_adaptation import (
    adaptation_index,
    adaptation_weights,
    codon_adaptation,
    reference_usage,
    usage_of,
)
from eval.heldout.consequence import change_of, choose_known, consequence_auroc
from eval.heldout.frame import expected_stops, reading_frame, stops_by_counting
from eval.heldout.gene_sections import GENE_SECTIONS
from eval.heldout.genes import CodingGene, HeldOutGenes
from eval.heldout.likelihood import heldout_likelihood
from eval.heldout.markov import Markov
from eval.heldout.meaning import meaning_of
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.inspect import state_files

CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
SENSE = [codon for codon in CODONS if codon not in STOP_CODONS]


def open_frame(num_codons, seed):
    drawn = np.random.default_rng(seed).choice(SENSE, num_codons - 2)
    return "ATG" + "".join(drawn) + "TAA"


@pytest.fixture
def genome(tmp_path):
    """Two contigs; `h` is held out: a gene of two exons, one on the other strand, a broken one."""
    plus, minus, bad = open_frame(60, 1), open_frame(50, 2), "ATGTAAGCATAA"
    intron = "GT" + random_bases(56, 3) + "AG"
    parts = [random_bases(300, 4), plus[:70], intron, plus[70:], random_bases(300, 5)]
    parts += [reverse_complement(minus), random_bases(200, 6), bad, random_bases(200, 7)]
    ends = np.cumsum([len(part) for part in parts])
    other = random_bases(100, 8) + open_frame(40, 9) + random_bases(100, 10)
    reference = Reference(write_fasta(tmp_path / "g.fa", {"h": "".join(parts), "t": other}))
    lines = []

    def gene(name, contig, strand, *spans):
        tags = f'gene_id "{name}"; transcript_id "{name}.1"; gene_name "N{name}";'
        whole = spans[0][0], spans[-1][1]
        for kind, some in (("gene", [whole]), ("exon", spans), ("CDS", spans)):
            for start, end in some:
                lines.append(f"{contig}\tx\t{kind}\t{start + 1}\t{end}\t.\t{strand}\t0\t{tags}\n")

    gene("P", "h", "+", (ends[0], ends[1]), (ends[2], ends[3]))
    gene("M", "h", "-", (ends[4], ends[5]))
    gene("B", "h", "+", (ends[6], ends[7]))
    gene("T", "t", "+", (100, 220))
    (tmp_path / "g.gtf").write_text("".join(lines))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    manifest = {"held_out": [f"h:1-{ends[-1]}"], "outputs": {}, "sources": {}}
    (corpus / "manifest.json").write_text(json.dumps(manifest))
    genes = HeldOutGenes(str(corpus), reference, tmp_path / "g.gtf")
    return SimpleNamespace(genes=genes, plus=plus, minus=minus, ends=ends, folder=tmp_path)


def test_genes_are_read_and_told_apart(genome):
    genes = genome.genes
    assert [(gene.name, gene.cds) for gene in genes.coding()] == [
        ("NP", genome.plus), ("NM", genome.minus)
    ]  # fmt: skip
    assert [gene.name for gene in genes.coding_outside()] == ["NT"]
    (training,) = [part for part in genes.training() if len(part.codes)]
    assert training.labels.tolist() == [6] * 100 + [0, 1, 2] * 40 + [6] * 100


def test_every_base_has_one_owner(genome):
    genes, end = genome.genes, int(genome.ends[-1])
    owners = genes.owners(Interval("h", 0, end))
    by_number = {n: gene for n, gene in enumerate(genes.annotation.genes)}
    for place in range(end):
        behind = [n for n, g in by_number.items()
                  if g.interval.contig == "h" and g.interval.end > place]  # fmt: skip
        wanted = min(behind, default=owners[-1], key=lambda n: by_number[n].interval.end)
        assert owners[place] == wanted
    assert len(set(owners.tolist())) == 3
    part = genes.owners(Interval("h", 250, 700))
    assert part.tolist() == owners[250:700].tolist()


def test_another_genome_is_refused(genome, tmp_path):
    other = Reference(write_fasta(tmp_path / "o.fa", {"t": random_bases(400, 1)}))
    with pytest.raises(GenomeError, match=r"has no contig of what .* held out"):
        HeldOutGenes(str(tmp_path / "corpus"), other, tmp_path / "g.gtf")


def test_expected_stops_against_the_next_token(model):
    """Every whole 6-mer, by `next_token`, summed over those with a stop codon in a frame."""
    cds = open_frame(12, 3)
    sums, counts = np.zeros(6), np.zeros(6)
    for start in range(3):
        for at in range(start, len(cds) - 5, 6):
            for kmer, p in model.next_token(cds[start:at]).ranked():
                for slot in range(4):
                    word, frame = kmer[slot : slot + 3], (start + slot) % 3
                    sums[frame] += p * (word in STOP_CODONS)
                    sums[3 + frame] += p * (reverse_complement(word) in STOP_CODONS)
            for slot in range(4):
                counts[[(start + slot) % 3, 3 + (start + slot) % 3]] += 1
    assert expected_stops(model, cds) == pytest.approx(sums / counts, rel=1e-4)


def test_stops_by_counting_against_a_loop():
    markov, cds = Markov(2, [random_bases(500, 1)]), open_frame(20, 2)
    wanted = [[[] for _ in range(3)] for _ in range(2)]
    for at in range(2, len(cds) - 2):
        for side in (0, 1):
            total = 0.0
            for stop in STOP_CODONS:
                word = stop if side == 0 else reverse_complement(stop)
                logs = markov.log_likelihoods(cds[at - 2 : at] + word)
                total += np.exp(logs[2:].sum())
            wanted[side][at % 3].append(total)
    means = [np.mean(each) for side in wanted for each in side]
    assert stops_by_counting(markov, cds) == pytest.approx(means)


def test_reading_frame_counts_genes(model):
    genes = [CodingGene(str(n), str(n), open_frame(30, n)) for n in range(5)]
    genes.append(CodingGene("short", "short", open_frame(10, 9)))
    found = reading_frame(model, Markov(6, [random_bases(900, 1)]), genes, least_codons=20)
    own = [expected_stops(model, g.cds).argmin() == 0 for g in genes[:5]]
    assert found["value"] == pytest.approx(np.mean(own)) and sum(found["by_frame"]) == 5
    assert meaning_of("reading_frame", found) and GENE_SECTIONS["reading_frame"](found)
    with pytest.raises(GenomeError, match="more than 300 codons"):
        reading_frame(model, Markov(6, [random_bases(900, 1)]), genes)


def test_wilson_against_its_equation():
    """Its ends are the shares p for which the observed one is 1.96 standard deviations away."""
    share, low, high, _ = wilson(19, 20)
    for end in (low, high):
        assert (share - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / 20, rel=1e-5)
    assert low < share < high
    assert wilson(20, 20).high == pytest.approx(1) and wilson(20, 20).low < 0.85


def test_index_against_arithmetic():
    usage = dict.fromkeys(CODONS, 1.0) | {"AAA": 8.0, "AAG": 2.0}
    weights = adaptation_weights(usage)
    assert "ATG" not in weights and "TGG" not in weights and "TAA" not in weights
    # Lysine's codons: 1, 1/4, 1/4; the geometric mean is (1/16) ** (1/3).
    assert adaptation_index("ATGAAAAAGAAGTAA", weights) == pytest.approx((1 / 16) ** (1 / 3))
    counted = usage_of([CodingGene("", "", "ATGAAAAAATAA")])
    assert (counted["AAA"], counted["AAG"], counted["ATG"]) == (2.0, 0.5, 1.0)


def test_rank_correlation_of_drawn_samples_is_that_of_copies():
    random = np.random.default_rng(0)
    one, other = random.integers(0, 9, 40).astype(float), random.normal(size=40)
    weights = random.integers(0, 3, 40)
    from scipy.stats import spearmanr

    wanted = spearmanr(np.repeat(one, weights), np.repeat(other, weights)).statistic
    assert rank_correlation(one, other, weights.astype(float)) == pytest.approx(wanted)
    assert np.isnan(rank_correlation(np.ones(40), other, np.ones(40)))


def test_codon_adaptation_of_a_model(model, genome):
    genes = [CodingGene(str(n), str(n), open_frame(30, n)) for n in range(12)]
    usage = reference_usage(None, "N[A-Z]", genome.genes)
    found = codon_adaptation(model, genes, usage)
    assert -1 <= found["low"] <= found["value"] <= found["high"] <= 1
    nats = [score.nats_per_base for score in model.score(gene.cds for gene in genes)]
    assert found["nats_per_base"] == pytest.approx(np.mean(nats))
    assert meaning_of("codon_adaptation", found) and GENE_SECTIONS["codon_adaptation"](found)
    for pattern, message in (("X", "no coding gene outside"), ("(", "no regular expression")):
        with pytest.raises(UserError, match=message):
            reference_usage(None, pattern, genome.genes)
    with pytest.raises(GenomeError, match="0 coding genes"):
        codon_adaptation(model, [], usage)


def test_controls_have_the_changes_of_what_they_stand_beside(genome):
    sets = choose_known(genome.genes, 30, seed=0)
    consequences = Consequences(genome.genes.reference, genome.genes.annotation)
    assert set(sets) == {"stop_gained", "start_lost", "splice_site"}
    for kind, chosen in sets.items():
        changes = {}
        for known in chosen:
            told = consequences.of(known.variant)
            assert known.kind.split("_")[0] in told.consequence or known.kind == "intronic"
            change = change_of(genome.genes.reference, known.variant)
            changes.setdefault(change, []).append(known.kind)
        for kinds in changes.values():
            damaging = kinds.count(kind)
            assert 0 < damaging <= max(kinds.count(c) for c in set(kinds) - {kind})
            assert all(kinds.count(c) <= damaging for c in set(kinds))
        assert len({known.variant for known in chosen}) == len(chosen)
    assert sets == choose_known(genome.genes, 30, seed=0)


def test_consequence_auroc_against_sklearn(model, genome):
    found = consequence_auroc(model, genome.genes, 20, 0, 60)
    chosen = choose_known(genome.genes, 20, 0)["start_lost"]
    scores = model.score_variants(
        genome.genes.reference, [k.variant for k in chosen], strands="both", window_bp=60
    )
    deltas = [score.delta for score in scores]
    labels = [known.kind == "start_lost" for known in chosen]
    wanted = roc_auc_score(labels, [-delta for delta in deltas])
    assert found["by_kind"]["start_lost"]["value"] == pytest.approx(wanted)
    assert meaning_of("consequence_auroc", found) and GENE_SECTIONS["consequence_auroc"](found)


def test_likelihood_draws_genes(model):
    test = [random_bases(300, 1), random_bases(200, 2)]
    owners = [np.repeat([0, 1], 150), np.full(200, 1)]
    found = heldout_likelihood(model, [random_bases(900, 3)], test, 9999, 0, owners=owners)
    plain = heldout_likelihood(model, [random_bases(900, 3)], test, 9999, 0)
    assert found["value"] == pytest.approx(plain["value"])
    assert (found["num_samples"], found["resampled"]) == (2, "genes")
    every = {f"order_{k}": m["value"] for k, m in enumerate(plain["markov"])}
    every |= {name: each["value"] for name, each in plain["others"].items()}
    best = min(every, key=every.get)
    assert plain["best_markov"] == best
    assert plain["ahead_of_best"]["value"] == pytest.approx(every[best] - plain["value"])


def test_the_command_measures_by_gene(model, genome, monkeypatch, capsys):
    """One command over a corpus with two records of the held-out contig."""
    genes, corpus, end = genome.genes, genome.folder / "corpus", int(genome.ends[-1])
    held_out = genes.reference.fetch(Interval("h", 0, end))
    rows = [("h", 0, 700, "+", held_out[:700]), ("h", 700, end, "+", held_out[700:])]
    (corpus / "genome").mkdir()
    for split, some in (("test", rows), ("train", [("t", 0, 500, "+", random_bases(500, 1))])):
        names = ("record_id", "start", "end", "strand", "sequence")
        table = dict(zip(names, map(list, zip(*some, strict=True)), strict=True))
        pq.write_table(pa.table(table), corpus / "genome" / f"{split}-00000.parquet")
    sources = {"genome": {"test": {"bases": end}, "train": {"bases": 500}}}
    manifest = {"held_out": [f"h:1-{end}"], "outputs": {}, "sources": sources}
    (corpus / "manifest.json").write_text(json.dumps(manifest))
    state_files(corpus)
    monkeypatch.setattr("eval.heldout.material.load", lambda path: model)
    words = ["heldout", "--model", "m", "--corpus", str(corpus), "--output", str(genome.folder)]
    words += ["--reference", str(genes.reference.path)]
    words += ["--annotation", str(genome.folder / "g.gtf"), "--variants-each", "5"]
    words += ["--window-bp", "60", "--tasks", "heldout_likelihood,consequence_auroc"]
    assert main(words) == 0, capsys.readouterr().err
    results = json.loads((genome.folder / "results.json").read_text())
    likelihood = results["heldout_likelihood"]
    # Three genes own the contig between them; six bases of each record have no context.
    assert (likelihood["resampled"], likelihood["num_samples"]) == ("genes", 3)
    assert likelihood["num_bases"] == end - 12
    assert "codon_periodic" in likelihood["others"]
    overlap = results["overlap_with_train"]  # 30 ends of a record begin no 31-mer
    assert (overlap["num_kmers"], overlap["num_shared"]) == (end - 60, 0)
    assert set(results["consequence_auroc"]["by_kind"]) <= {
        "stop_gained", "start_lost", "splice_site"
    }  # fmt: skip
