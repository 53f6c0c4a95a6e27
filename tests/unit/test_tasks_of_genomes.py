"""Tasks on the held-out part of a genome: frames, codons, consequences, likelihood, recovery."""

import json
import tempfile
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from carbon.errors import CorpusError
from carbon.genome import (
    STOP_CODONS,
    Consequences,
    Interval,
    Reference,
    Variant,
    reverse_complement,
)
from carbon.genome.alphabet import adaptation_index, adaptation_weights
from carbon.inference.held_out import choose_sites, equal_share, measured_bases, recovered_shares
from carbon.metrics import rank_correlation
from carbon.model import save_model
from carbon.uncertainty import wilson
from eval.__main__ import main
from eval.baselines import GcModel, MarkovModel, UniformModel
from eval.contract import Options
from eval.models import CarbonModel
from eval.records import read_rows
from eval.tasks import TASKS
from eval.tasks.codon_adaptation.build import usage_of
from eval.tasks.common.held_out import CodingGene, HeldOutGenes
from eval.tasks.consequences.build import change_of, choose_known
from eval.tasks.gene_frames import expected_stops, fewest_stops
from eval.tasks.heldout_likelihood.overlap import Overlap, overlaps_with_train
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.inspect import state_files
from tests.helpers.tasks import training_on

pytestmark = pytest.mark.usefixtures("few_resamples")
CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
SENSE = [codon for codon in CODONS if codon not in STOP_CODONS]
WORDS = [*sorted(STOP_CODONS), *map(reverse_complement, sorted(STOP_CODONS))]
ON_GENES = {"gene_frames": ["--least-codons", "45"], "consequences": ["--num-each", "20"]}


def open_frame(num_codons, seed):
    drawn = np.random.default_rng(seed).choice(SENSE, num_codons - 2)
    return "ATG" + "".join(drawn) + "TAA"


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    """Two contigs; `h` is held out: a gene of two exons, one on the other strand, a broken one."""
    tmp_path = tmp_path_factory.mktemp("genome")
    plus, minus, bad = open_frame(60, 1), open_frame(50, 2), "ATGTAAGCATAA"
    intron = "GT" + random_bases(56, 3) + "AG"
    parts = [random_bases(300, 4), plus[:70], intron, plus[70:], random_bases(300, 5)]
    parts += [reverse_complement(minus), random_bases(200, 6), bad, random_bases(200, 7)]
    ends = np.cumsum([len(part) for part in parts])
    held_out, end = "".join(parts), int(ends[-1])
    other = random_bases(300, 8) + open_frame(40, 9) + random_bases(300, 10)
    reference = Reference(write_fasta(tmp_path / "g.fa", {"h": held_out, "t": other}))
    lines = []

    def gene(name, contig, strand, *spans):
        tags = f'gene_id "{name}"; transcript_id "{name}.1"; gene_name "N{name}";'
        whole = spans[0][0], spans[-1][1]
        for kind, some in (("gene", [whole]), ("exon", spans), ("CDS", spans)):
            for start, stop in some:
                lines.append(f"{contig}\tx\t{kind}\t{start + 1}\t{stop}\t.\t{strand}\t0\t{tags}\n")

    gene("P", "h", "+", (ends[0], ends[1]), (ends[2], ends[3]))
    gene("M", "h", "-", (ends[4], ends[5]))
    gene("B", "h", "+", (ends[6], ends[7]))
    gene("T", "t", "+", (300, 420))
    (tmp_path / "g.gtf").write_text("".join(lines))
    corpus = tmp_path / "corpus"
    (corpus / "genome").mkdir(parents=True)
    rows = [("h", 0, 700, "+", held_out[:700]), ("h", 700, end, "+", held_out[700:])]
    for split, some in (("test", rows), ("train", [("t", 0, 500, "+", random_bases(500, 1))])):
        names = ("record_id", "start", "end", "strand", "sequence")
        table = dict(zip(names, map(list, zip(*some, strict=True)), strict=True))
        pq.write_table(pa.table(table), corpus / "genome" / f"{split}-00000.parquet")
    sources = {"genome": {"test": {"bases": end}, "train": {"bases": 500}}}
    manifest = {"held_out": [f"h:1-{end}"], "outputs": {}, "sources": sources}
    (corpus / "manifest.json").write_text(json.dumps(manifest))
    state_files(corpus)
    genes = HeldOutGenes(corpus, reference, tmp_path / "g.gtf")
    return SimpleNamespace(
        genes=genes, plus=plus, minus=minus, ends=ends, folder=tmp_path, bases=held_out
    )


def built(genome, name, *more):
    """Build a task's dataset by the command, once of equal words, and return its table."""
    return built_in(genome.folder, name, *map(str, more))


@cache
def built_in(folder, name, *more):
    output = Path(tempfile.mkdtemp(dir=folder))
    words = ["build", name, "--output", str(output), "--corpus", str(folder / "corpus"), *more]
    assert main(words) == 0
    return pq.read_table(output / f"{name}.parquet")


def annotated(genome):
    return [
        "--reference", str(genome.folder / "g.fa"), "--annotation", str(genome.folder / "g.gtf"),
    ]  # fmt: skip


def summary_of(name, table, model, reference=None):
    task = TASKS[name]
    examples = task.examples(table, Options(reference=reference))
    results = list(task.run(model, examples))
    assert [result["id"] for result in results] == [example.id for example in examples]
    return task.summarise([r for r in results if "skipped" not in r]), results


class TestGenes:
    def test_genes_are_read_and_told_apart(self, genome):
        genes = genome.genes
        assert [(gene.name, gene.cds) for gene in genes.coding()] == [
            ("NP", genome.plus), ("NM", genome.minus)
        ]  # fmt: skip
        assert genes.not_coding() == {"gene_without_a_plain_open_frame": 1}
        assert [gene.name for gene in genes.coding_outside()] == ["NT"]
        (training,) = [part for part in genes.training() if len(part.codes)]
        assert training.labels.tolist() == [6] * 300 + [0, 1, 2] * 40 + [6] * 300

    def test_every_base_has_one_owner(self, genome):
        genes, end = genome.genes, int(genome.ends[-1])
        owners = genes.owners(Interval("h", 0, end))
        by_number = dict(enumerate(genes.annotation.genes))
        for place in range(end):
            after = [n for n, g in by_number.items()
                     if g.interval.contig == "h" and g.interval.end > place]  # fmt: skip
            wanted = min(after, default=owners[-1], key=lambda n: by_number[n].interval.end)
            assert owners[place] == wanted
        assert len(set(owners.tolist())) == 3
        part = genes.owners(Interval("h", 250, 700))
        assert part.tolist() == owners[250:700].tolist()

    def test_another_genome_is_refused(self, genome, tmp_path):
        other = Reference(write_fasta(tmp_path / "o.fa", {"t": random_bases(800, 1)}))
        with pytest.raises(CorpusError, match=r"has no contig that .* held out"):
            HeldOutGenes(genome.folder / "corpus", other, genome.folder / "g.gtf")


class TestFrames:
    def test_word_probabilities_against_the_next_token(self, model):
        """Every whole 6-mer, by `next_token`; places that two readings cover get their mean."""
        cds = open_frame(12, 3)
        sums, counts = np.zeros((len(cds), len(WORDS))), np.zeros((len(cds), 1))
        for start in range(3):
            for at in range(start, len(cds) - 5, 6):
                for kmer, p in model.next_token(cds[start:at]).ranked():
                    for slot in range(4):
                        if (word := kmer[slot : slot + 3]) in WORDS:
                            sums[at + slot, WORDS.index(word)] += p
                counts[at : at + 4] += 1
        with np.errstate(invalid="ignore"):
            expected = sums / counts
        found = CarbonModel(model, "m").word_probabilities(cds, WORDS)
        assert found == pytest.approx(expected, rel=1e-4, nan_ok=True)

    def test_frames_against_a_loop(self):
        cds = open_frame(20, 2)
        markov = MarkovModel(2, training_on(2, [random_bases(500, 1)]))
        found = markov.word_probabilities(cds, WORDS)
        wanted = [
            np.mean([found[at, 3 * side : 3 * side + 3].sum() for at in range(n, len(cds), 3)])
            for side in (0, 1) for n in range(3)
        ]  # fmt: skip
        assert expected_stops(found) == pytest.approx(wanted)

    def test_a_model_and_equal_frames_that_share_the_point(self, genome, model):
        assert fewest_stops(np.array([3.0, 1, 2, 1, 4, 5])) == ["+1", "other strand"]
        table = built(genome, "gene_frames", *annotated(genome), *ON_GENES["gene_frames"])
        assert table["cds"].to_pylist() == [genome.plus, genome.minus]
        gc = GcModel(training_on(0, [random_bases(500, 1)]))
        summary, results = summary_of("gene_frames", table, gc)
        assert summary.value.value == pytest.approx(1 / 6)
        assert {result["frame"] for result in results} == {"several"}
        wrapped = CarbonModel(model, "m")
        summary, _ = summary_of("gene_frames", table, wrapped)
        own = [
            expected_stops(wrapped.word_probabilities(cds, WORDS)).argmin() == 0
            for cds in (genome.plus, genome.minus)
        ]
        assert summary.value == wilson(sum(own), 2)
        assert sum(each.value for each in summary.groups["frame"].values()) == pytest.approx(1)


def test_wilson_against_its_equation():
    """Its ends are the shares p for which the observed one is 1.96 standard deviations away."""
    share, low, high, _ = wilson(19, 20)
    for end in (low, high):
        assert (share - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / 20, rel=1e-5)
    assert low < share < high
    assert wilson(20, 20).high == pytest.approx(1) and wilson(20, 20).low < 0.85


class TestCodonAdaptation:
    def test_index_against_arithmetic(self):
        usage = dict.fromkeys(CODONS, 1.0) | {"AAA": 8.0, "AAG": 2.0}
        weights = adaptation_weights(usage)
        assert "ATG" not in weights and "TGG" not in weights and "TAA" not in weights
        # Lysine's codons: 1, 1/4, 1/4; the geometric mean is (1/16) ** (1/3).
        index = adaptation_index("ATGAAAAAGAAGTAA", weights)
        assert index == pytest.approx((1 / 16) ** (1 / 3))
        counted = usage_of([CodingGene("", "", "ATGAAAAAATAA")])
        assert (counted["AAA"], counted["AAG"], counted["ATG"]) == (2.0, 0.5, 1.0)

    def test_rank_correlation_of_drawn_samples_is_that_of_copies(self):
        from scipy.stats import spearmanr

        random = np.random.default_rng(0)
        one, other = random.integers(0, 9, 40).astype(float), random.normal(size=40)
        weights = random.integers(0, 3, 40)
        wanted = spearmanr(np.repeat(one, weights), np.repeat(other, weights)).statistic
        assert rank_correlation(one, other, weights.astype(float)) == pytest.approx(wanted)
        assert np.isnan(rank_correlation(np.ones(40), other, np.ones(40)))

    def test_a_model_reads_each_gene_by_itself(self, model):
        frames = [open_frame(30, n) for n in range(12)]
        index = np.linspace(0.2, 0.9, 12)
        table = pa.table({"gene_id": [str(n) for n in range(12)], "cds": frames, "index": index})
        summary, results = summary_of("codon_adaptation", table, CarbonModel(model, "m"))
        nats = [score.nats_per_base for score in model.score(frames)]
        assert [result["score"] for result in results] == pytest.approx(nats)
        expected = rank_correlation(np.array(nats), index, np.ones(12))
        assert summary.value.value == pytest.approx(expected)
        assert set(summary.others) == {"without_gc", "with_gc", "gc_with_index"}

    def test_a_gene_without_a_synonymous_codon_has_no_index_and_is_counted(
        self, genome, tmp_path, monkeypatch
    ):
        alone = CodingGene("W", "NW", "ATGTGGTAA")
        found = genome.genes.coding()
        monkeypatch.setattr(HeldOutGenes, "coding", lambda genes: [*found, alone])
        words = ["--output", str(tmp_path), "--corpus", str(genome.folder / "corpus")]
        words += [*annotated(genome), "--finetuned-genes", "NT"]
        assert main(["build", "codon_adaptation", *words]) == 0
        table = pq.read_table(tmp_path / "codon_adaptation.parquet")
        assert table.num_rows == len(found) and np.isfinite(table["index"].to_numpy()).all()
        dropped = json.loads((tmp_path / "codon_adaptation.json").read_text())["dropped"]
        assert dropped["gene_without_a_synonymous_codon"] == 1

    @pytest.mark.parametrize("words", [["--finetuned-genes", "X"], ["--finetuned-genes", "("], []])
    def test_no_reference_genes(self, genome, tmp_path, words):
        more = ["--output", str(tmp_path / "data"), "--corpus", str(genome.folder / "corpus")]
        assert main(["build", "codon_adaptation", *more, *annotated(genome), *words]) == 2
        assert not list(tmp_path.rglob("*.parquet"))


class TestConsequences:
    def test_controls_have_the_changes_of_what_they_stand_beside(self, genome):
        sets = choose_known(genome.genes, 30, seed=0)
        consequences = Consequences(genome.genes.reference, genome.genes.annotation)
        assert set(sets) == {"stop_gained", "start_lost", "splice_site"}
        for kind, chosen in sets.items():
            changes = {}
            for known in chosen:
                effect = consequences.of(known.variant).consequence
                assert known.kind.split("_")[0] in effect or known.kind == "intronic"
                change = change_of(genome.genes.reference, known.variant)
                changes.setdefault(change, []).append(known.kind)
            for kinds in changes.values():
                damaging = kinds.count(kind)
                assert 0 < damaging <= max(kinds.count(c) for c in set(kinds) - {kind})
                assert all(kinds.count(c) <= damaging for c in set(kinds))
            assert len({known.variant for known in chosen}) == len(chosen)
        assert sets == choose_known(genome.genes, 30, seed=0)

    def test_kinds_without_a_control_are_counted(self, genome, tmp_path, monkeypatch):
        some = choose_known(genome.genes, 30, seed=0)["stop_gained"]
        names = choose_known.__globals__
        monkeypatch.setitem(names, "choose_known", lambda *_: {"stop_gained": some})
        words = ["--output", str(tmp_path), "--corpus", str(genome.folder / "corpus")]
        assert main(["build", "consequences", *words, *annotated(genome)]) == 0
        dropped = json.loads((tmp_path / "consequences.json").read_text())["dropped"]
        lacking = [f"no_{kind}_with_a_control" for kind in ("splice_site", "start_lost")]
        assert json.dumps(dropped) == json.dumps(dict.fromkeys(lacking, 1))

    def test_values_against_sklearn(self, genome, model):
        table = built(genome, "consequences", *annotated(genome), *ON_GENES["consequences"])
        fasta = genome.folder / "g.fa"
        summary, results = summary_of("consequences", table, CarbonModel(model, "m"), fasta)
        aurocs = []
        for name in sorted(set(table["set"].to_pylist())):
            rows = [row for row in table.to_pylist() if row["set"] == name]
            variants = [Variant(r["chrom"], r["pos"] - 1, r["ref"], r["alt"]) for r in rows]
            scores = model.score_variants(
                genome.genes.reference, variants, protocol="centered", strands="both"
            )
            deltas = [-score.delta for score in scores]
            labels = [row["label"] for row in rows]
            aurocs.append(roc_auc_score(labels, deltas))
            assert summary.groups["damage"][name].value == pytest.approx(aurocs[-1])
            precision = summary.groups["average precision"][name].value
            assert precision == pytest.approx(average_precision_score(labels, deltas))
        assert summary.value.value == pytest.approx(np.mean(aurocs))
        assert len(summary.notes) == 1
        # A set that lacks a label is named.
        damaging = [row for row in results if row["set"] != name or row["label"] == 1]
        lacking = TASKS["consequences"].summarise(damaging)
        assert lacking.groups["damage"].keys() == summary.groups["damage"].keys() - {name}
        assert lacking.notes[1:] == [f"without damaging variants or without controls: {name}"]


class TestLikelihood:
    def test_a_command_draws_genes_and_bases_with_six_known_before(self, genome, model):
        table = built(genome, "heldout_likelihood", *annotated(genome))
        wrapped, records = CarbonModel(model, "m"), table["sequence"].to_pylist()
        summary, results = summary_of("heldout_likelihood", table, wrapped)
        values = zip(records, wrapped.base_log_likelihoods(records), strict=True)
        nats = [-each[measured_bases(record)] for record, each in values]
        assert summary.value.value == pytest.approx(np.concatenate(nats).mean())
        # Three genes own the contig between them; six bases of each record have no context.
        assert len({result["gene"] for result in results}) == 3
        end = int(genome.ends[-1])
        assert sum(result["bases"] for result in results) == end - 12
        # 30 ends of a record begin no 31-mer.
        assert sum(r["kmers"] for r in results) == end - 60
        assert sum(r["shared_kmers"] for r in results) == 0
        few = built(genome, "heldout_likelihood", "--most-bp", "650")
        assert sum(map(len, few["sequence"].to_pylist())) == 650
        _, results = summary_of("heldout_likelihood", few, UniformModel())
        assert all(result["score"] == pytest.approx(np.log(4)) for result in results)

    def test_31_mers_of_a_record_count_though_its_first_gene_ends_before_a_base_counts(self):
        row = {"sequence": random_bases(100, 1), "genes": ["a", "b"], "gene_ends": [4, 100]}
        table = pa.Table.from_pylist([{**row, "kmers": 70, "shared_kmers": 7}])
        summary, results = summary_of("heldout_likelihood", table, UniformModel())
        assert ["skipped" in result for result in results] == [True, False]
        assert "10.0% of its 31-mers also occur" in summary.notes[1]

    @pytest.mark.parametrize("by_bed", [False, True])
    def test_the_gap_is_of_coding_bases_or_those_of_a_bed(self, genome, model, by_bed):
        ends, end = genome.ends, int(genome.ends[-1])
        spans = [(ends[0], ends[1]), (ends[2], ends[3]), (ends[4], ends[5]), (ends[6], ends[7])]
        more = []
        if by_bed:
            spans = [(100, 300), (250, 400), (650, 900)]  # two overlap, one is in both records
            bed = genome.folder / "c.bed"
            bed.write_text("".join(f"h\t{start}\t{stop}\n" for start, stop in spans))
            more = ["--conserved", str(bed)]
        table = built(genome, "heldout_likelihood", *annotated(genome), *more)
        summary, _ = summary_of("heldout_likelihood", table, CarbonModel(model, "m"))
        is_inside = np.zeros(end, dtype=bool)
        for start, stop in spans:
            is_inside[start:stop] = True
        inside, outside = [], []
        for start, record in ((0, genome.bases[:700]), (700, genome.bases[700:])):
            values = CarbonModel(model, "m").base_log_likelihoods([record])[0]
            for place in range(6, len(record)):
                (inside if is_inside[start + place] else outside).append(values[place])
        gap = summary.others["ll_gap"]
        assert gap.value == pytest.approx(np.mean(inside) - np.mean(outside))
        assert gap.low <= gap.value <= gap.high
        name = "c.bed" if by_bed else "coding"
        assert f"{len(inside):,} conserved bases ({name})" in summary.notes[-1]

    def test_a_bed_may_name_contigs_differently_and_without_one_there_is_no_gap(self, genome):
        bed, names = genome.folder / "d.bed", genome.folder / "names.tsv"
        bed.write_text("other\t100\t300\n")
        names.write_text("other\th\n")
        words = [*annotated(genome), "--conserved", bed, "--contigs", names]
        table = built(genome, "heldout_likelihood", *words)
        summary, _ = summary_of("heldout_likelihood", table, UniformModel())
        assert "200 conserved bases (d.bed)" in summary.notes[-1]
        table = built(genome, "heldout_likelihood")
        assert summary_of("heldout_likelihood", table, UniformModel())[0].others == {}

    def test_without_other_bases_a_note_replaces_the_gap(self, genome):
        bed, bases = genome.folder / "whole.bed", f"{int(genome.ends[-1]) - 12:,}"
        bed.write_text("h\t0\t9999\n")
        table = built(genome, "heldout_likelihood", *annotated(genome), "--conserved", bed)
        summary, _ = summary_of("heldout_likelihood", table, UniformModel())
        assert summary.others == {}
        assert summary.notes[-1] == f"no ll_gap: {bases} of {bases} bases are conserved (whole.bed)"

    @pytest.mark.parametrize("line", ["other\t100\t300\n", "h\t0\t0\n"])
    def test_a_bed_without_a_place_in_a_record_is_refused(self, genome, tmp_path, capsys, line):
        (tmp_path / "c.bed").write_text(line)
        words = ["--output", str(tmp_path), "--corpus", str(genome.folder / "corpus")]
        words += [*annotated(genome), "--conserved", str(tmp_path / "c.bed")]
        assert main(["build", "heldout_likelihood", *words]) == 2
        assert "none of its places lies in a drawn record" in capsys.readouterr().err

    def test_31_mers_are_looked_up_on_both_strands_of_training_records(self):
        train = random_bases(500, 1)
        copied = reverse_complement(train[100:200])  # 100 - 30 31-mers are of the copy alone
        test = [random_bases(200, 2) + copied.lower(), copied[:50], "ACGT" * 5, random_bases(60, 3)]
        assert overlaps_with_train(iter([train, ""]), test) == [
            (270, 70),
            (20, 20),
            (0, 0),
            (30, 0),
        ]
        unknown = overlaps_with_train([train], [copied[:45] + "N" + copied[46:]])
        assert unknown == [Overlap(15 + 24, 39)]


def test_recovery_at_the_sites_of_the_probe_of_training(genome, model):
    table = built(genome, "genome_recovery", "--examples", "12")
    sites = choose_sites([genome.bases[:700], genome.bases[700:]], 12, 6144, 0)
    rows = table.to_pylist()
    assert [(row["sequence"], row["label"]) for row in rows] == sites
    summary, _ = summary_of("genome_recovery", table, CarbonModel(model, "m"))
    fits_bp = (model.context_bp - 30) // 120 * 120
    short = [(prompt[-min(len(prompt), fits_bp) :], target) for prompt, target in sites]
    for mode, value in (("token", summary.value), ("base", summary.others["base_mode"])):
        assert value.value == pytest.approx(recovered_shares(model, short, mode, 0).mean())
    texts = UniformModel().generate([prompt for prompt, _ in sites], 30)
    chance = [equal_share(text, target) for text, (_, target) in zip(texts, sites, strict=True)]
    assert summary_of("genome_recovery", table, UniformModel())[0].value.value == pytest.approx(
        np.mean(chance)
    )


def test_one_command_builds_several_tasks_and_another_runs_them(genome, network, tmp_path, capsys):
    data, out, fasta = tmp_path / "data", tmp_path / "out", str(genome.folder / "g.fa")
    names = "heldout_likelihood,genome_recovery,gene_frames,consequences"
    words = ["build", names, "--output", str(data), "--corpus", str(genome.folder / "corpus")]
    words += [*annotated(genome), "--examples", "5", *chain(*ON_GENES.values())]
    assert main(words) == 0, capsys.readouterr().err
    assert {path.stem for path in data.glob("*.parquet")} == set(names.split(","))
    save_model(network, tmp_path / "m")
    words = ["run", "--model", str(tmp_path / "m"), "--data", str(data), "--output", str(out)]
    words += ["--reference", fasta, "--max-samples", "6", "--orders", "0,2"]
    words += ["--train", str(genome.folder / "corpus" / "genome")]
    words += ["--codon-periodic", f"{fasta},{genome.folder}/g.gtf,{genome.folder}/corpus"]
    assert main(words) == 0, capsys.readouterr().err
    stems = {"chance", "GC", "Markov-0", "Markov-2", "m"}
    for name in names.split(","):
        assert stems <= {path.stem for path in (out / name).glob("*.json")}
    assert (out / "heldout_likelihood" / "codon-periodic-Markov.json").exists()
    assert all("skipped" in row for row in read_rows(out / "gene_frames/chance.jsonl"))


def test_sites_lie_in_their_records():
    records = [random_bases(400, 1), random_bases(100, 2), random_bases(900, 3), "N" * 500]
    sites = choose_sites(records, 60, most_prompt_bp=300, seed=0)
    assert len(sites) == len(set(sites)) == 60
    for prompt, target in sites:
        assert any(prompt + target in record for record in records)
        assert len(target) == 30 and len(prompt) in (120, 240)
    assert sites == choose_sites(records, 60, most_prompt_bp=300, seed=0)
    assert len(choose_sites(records[1:2], 5, most_prompt_bp=300, seed=0)) == 0
