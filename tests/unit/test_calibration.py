"""Calibrations of neutral sites: drawing, cells, the command, and the scores that they give."""

import json
import re
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest

import carbon
from carbon.cli import main
from carbon.errors import UserError
from carbon.genome import (
    Interval,
    Reference,
    Variant,
    intergenic,
    read_gene_file,
    reverse_complement,
)
from carbon.inference.options import BackgroundOptions
from carbon.inference.variants.background_scores import neutral_of
from carbon.inference.variants.calibration import (
    Calibration,
    calibration_of,
    draw_neutral_sites,
)
from carbon.model import save_model
from tests.helpers.files import place_gene, random_bases, write_fasta, write_vcf

# Common contexts in a repeat, soft-masked and unknown bases.
BASES = random_bases(1500, 1) + "ACGTTGA" * 40 + "nnnNN" + random_bases(300, 2).lower()
NEUTRAL = [Interval("c", 0, 900), Interval("c", 1200, len(BASES))]


def snv_at(bases, at):
    return Variant("c", at, bases[at], "ACGT".replace(bases[at], "")[0])


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("neutral")
    return Reference(write_fasta(folder / "r.fa", {"c": BASES, "d": random_bases(50, 3)}))


def sites_by_context(is_folded, width=5):
    """Return positions by context, found base by base."""
    positions = defaultdict(list)
    side = width // 2
    for interval in NEUTRAL:
        for at in range(interval.start, interval.end):
            context = BASES[max(at - side, 0) : at + side + 1].upper()
            if at < side or len(context) < width or "N" in context:
                continue
            if is_folded and context[side] in "AG":
                context = reverse_complement(context)
            positions[context].append(at)
    return positions


@pytest.mark.parametrize("is_folded", [True, False])
def test_draws_without_replacement_from_all_sites_of_a_context(reference, is_folded):
    expected = sites_by_context(is_folded)
    drawing = BackgroundOptions(neighbour_bp=5, sites_per_context=4, seed=2)
    drawn = draw_neutral_sites(reference, NEUTRAL, drawing, is_folded=is_folded)
    assert drawn.num_by_context == {c: len(found) for c, found in expected.items()}
    positions = [site.position for site in drawn.sites]
    assert positions == sorted(set(positions))
    for found in expected.values():
        assert len(set(found) & set(positions)) == min(4, len(found))
    assert all(site.ref == BASES[site.position].upper() for site in drawn.sites)
    again = draw_neutral_sites(reference, NEUTRAL, drawing, is_folded=is_folded)
    assert again == drawn


def test_the_draw_is_uniform(reference):
    """Each of 44 sites of a context is drawn by half of 30 seeds: 15 +- 3 times."""
    sites = sites_by_context(True)["CGTTG"]
    counts = dict.fromkeys(sites, 0)
    for seed in range(30):
        drawing = BackgroundOptions(neighbour_bp=5, sites_per_context=len(sites) // 2, seed=seed)
        for site in draw_neutral_sites(reference, NEUTRAL, drawing, is_folded=True).sites:
            if site.position in counts:
                counts[site.position] += 1
    assert len(sites) == 44 and sum(counts.values()) == 30 * 22
    assert min(counts.values()) > 3 and max(counts.values()) < 27


@pytest.mark.parametrize("is_folded", [True, False])
def test_cells_are_means_or_those_of_three_bases(reference, is_folded):
    drawing = BackgroundOptions(neighbour_bp=5, sites_per_context=30, seed=2)
    drawn = draw_neutral_sites(reference, NEUTRAL, drawing, is_folded=is_folded)
    snvs = [snv for site in drawn.sites for snv in site.snvs]
    deltas = np.random.default_rng(0).normal(size=len(snvs)).tolist()
    about = {"neighbour_bp": 5, "is_folded": is_folded, "settings": {}, "drawn": {}}
    made = calibration_of(reference, drawn, deltas, about)
    assert len(made.cells) == (1536 if is_folded else 3072)

    values = defaultdict(list)
    for snv, delta in zip(snvs, deltas, strict=True):
        context = BASES[snv.position - 2 : snv.position + 3].upper()
        alt = snv.alt
        if is_folded and snv.ref in "AG":
            context, alt = reverse_complement(context), reverse_complement(alt)
        values[context, alt].append(delta)
    counts = {c: len(found) for c, found in sites_by_context(is_folded).items()}
    levels = set()
    for cell, entry in made.cells.items():
        context, alt = cell[:2] + cell[3] + cell[7:], cell[5]
        own = values[context, alt]
        inner = {c: v for (c, a), v in values.items() if a == alt and c[1:4] == context[1:4] and v}
        expected, level = None, None
        if len(own) >= 20:
            expected, level = sum(own) / len(own), 5
        elif sum(map(len, inner.values())) >= 20:
            total = sum(counts[c] for c in inner)
            expected = sum(counts[c] * sum(v) / len(v) for c, v in inner.items()) / total
            level = 3
        levels.add(level)
        assert (entry["sites"], entry["context_bp"]) == (len(own), level)
        assert entry["delta"] == (expected if expected is None else pytest.approx(expected))
    assert levels >= {3, 5}
    snv = snv_at(BASES, 700)
    context, alt = BASES[698:703], snv.alt
    if is_folded and snv.ref in "AG":
        context, alt = reverse_complement(context), reverse_complement(alt)
    mean = made.cells[f"{context[:2]}[{context[2]}>{alt}]{context[3:]}"]["delta"]
    assert made.calibrated(reference, snv, 1.5) == (None if mean is None else 1.5 - mean)
    assert made.calibrated(reference, snv, None) is None
    # Neither two bases before it, nor an SNV, nor without an N beside it.
    insertion = Variant("c", 700, BASES[700], BASES[700] + "A")
    for other in (snv_at(BASES, 1), insertion, snv_at(BASES, 1779)):
        assert made.calibrated(reference, other, 1.0) is None


GENE, GFF3, _ = place_gene()
OPTIONS = ["--window", "24"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("calibrations")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c1": GENE})
    (folder / "g.gff3").write_text(GFF3)
    (folder / "n.bed").write_text("c1\t2\t42\nc1\t30\t50\n")
    snvs = [snv_at(GENE, at) for at in (20, 115, 300)]
    records = [f"c1\t{snv.position + 1}\t.\t{snv.ref}\t{snv.alt}\t.\t.\t." for snv in snvs]
    write_vcf(folder / "in.vcf", [*records, f"c1\t321\t.\t{GENE[320]}\t{GENE[320]}AC\t.\t.\t."])
    assert make(folder, folder / "k.json", "--neutral", str(folder / "n.bed")) == 0
    return folder


def make(folder, output, *more):
    return main(
        ["background", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
         "--output", str(output), "--neighbour-bp", "3", *OPTIONS, *more]
    )  # fmt: skip


def score(folder, output, *more, names="abs_delta,jsd,calibrated_delta,allele_entropy"):
    return main(
        ["variants", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
         "--vcf", str(folder / "in.vcf"), "--output", str(output), "--scores", names,
         *OPTIONS, *more]
    )  # fmt: skip


@pytest.mark.nightly
def test_processes_share_the_neutral_sites_of_an_annotation(folder, tmp_path):
    annotated = tmp_path / "a.json"
    few = ["--sites-per-context", "1", "--processes", "2"]
    assert make(folder, annotated, "--annotation", str(folder / "g.gff3"), *few) == 0
    assert 20 < Calibration.read(annotated).drawn["sites"] <= 32  # contexts of three bases


def test_the_command_scores_all_snvs_of_the_regions(folder):
    made = Calibration.read(folder / "k.json")
    assert (made.neighbour_bp, made.is_folded) == (3, True)
    assert (made.drawn["neutral"], made.drawn["sites"]) == ("n.bed", 48)
    assert sum(cell["sites"] for cell in made.cells.values()) == 3 * 48
    with Reference(folder / "r.fa") as reference:
        model = carbon.load(folder / "model")
        neutral = [Interval("c1", 2, 42), Interval("c1", 30, 50)]
        same = model.calibration(reference, neutral, neighbour_bp=3, window_bp=24)
    assert same.cells == made.cells and same.settings == made.settings


def test_a_dry_run_counts_what_the_tiles_read(folder, tmp_path, monkeypatch, capsys, read_tokens):
    monkeypatch.setattr("carbon.inference.variants.plan._LEAST_SECONDS", 0)
    words = ["--neutral", str(folder / "n.bed"), "--protocol", "tiled", "--downstream", "4"]
    assert make(folder, tmp_path / "k.json", *words, "--dry-run") == 0
    plan = json.loads(capsys.readouterr().out)
    assert not list(tmp_path.iterdir())
    read_tokens.clear()
    assert make(folder, tmp_path / "k.json", *words) == 0
    assert plan["tokens"] == sum(read_tokens) and plan["variants"] == 3 * 48


def test_scores_in_tables_and_vcfs_are_those_of_python(folder, tmp_path, capsys):
    given = ["--calibration", str(folder / "k.json")]
    assert score(folder, tmp_path / "s.parquet", *given) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    names = ("abs_delta", "jsd", "allele_entropy", "calibrated_delta")
    assert summary["scores"] == ["delta", *names]
    rows = pq.read_table(tmp_path / "s.parquet").to_pylist()
    made = Calibration.read(folder / "k.json")
    with Reference(folder / "r.fa") as reference:
        variants = [Variant(r["contig"], r["position"] - 1, r["ref"], r["alt"]) for r in rows]
        model = carbon.load(folder / "model")
        scores = list(
            model.score_variants(reference, variants, scores=names, calibration=made, window_bp=24)
        )
    for row, each in zip(rows, scores, strict=True):
        assert all(row[name] == getattr(each, name) for name in names)
    missing = {name: sum(row[name] is None for row in rows) for name in names}
    assert summary["alleles_without"] == {"delta": 0, **missing}
    assert missing["allele_entropy"] == 1  # the insertion
    assert score(folder, tmp_path / "s.vcf", *given) == 0
    text = (tmp_path / "s.vcf").read_text()
    assert "##INFO=<ID=CARBON_JSD,Number=A,Type=Float,Description=" in text
    entropy = float(re.search(r"CARBON_ALLELE_ENTROPY=([^;\t\n]+)", text)[1])
    assert entropy == pytest.approx(rows[0]["allele_entropy"], rel=1e-6)  # float32


@pytest.mark.parametrize(
    ("more", "names", "message"),
    [
        ([], "calibrated_delta", "calibrated_delta': give its background by --calibration"),
        (["--calibration", "k.json"], "jsd", "only the score calibrated_delta has one"),
        (["--calibration", "k.json", "--offsets", "0,2"], "calibrated_delta", "with offsets [0]"),
        (["--calibration", "model/config.json"], "calibrated_delta", "no file of `carbon backgr"),
        (["--protocol", "right_end"], "jsd", "score 'jsd': right_end has only delta, abs_delta"),
        ([], "delta,jsb", "there is no score 'jsb'; did you mean jsd?"),
    ],
)
def test_a_mistake_is_one_line(folder, tmp_path, capsys, monkeypatch, more, names, message):
    monkeypatch.chdir(folder)
    assert score(folder, tmp_path / "s.tsv", *more, names=names) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and message in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "give --annotation, whose genes are not neutral, or --neutral BED"),
        (["--neutral", "n.bed", "--annotation", "g.gff3"], "or --neutral BED"),
        (["--neutral", "n.bed", "--protocol", "right_end"], "right_end has only"),
        (["--neutral", "n.bed", "--draw-from", "c2"], "no contig 'c2'"),
        (["--neutral", "n.bed", "--neighbour-bp", "4"], "give 3, 5 or 7"),
    ],
)
def test_a_mistake_of_a_calibration_is_one_line(
    folder, tmp_path, capsys, monkeypatch, more, message
):
    monkeypatch.chdir(folder)
    assert make(folder, tmp_path / "k.json", *more) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and message in line
    assert not list(tmp_path.iterdir())


def test_contigs_without_genes_are_not_neutral(folder, tmp_path, capsys):
    path = write_fasta(tmp_path / "r.fa", {"c1": GENE, "other": random_bases(70, 1)})
    with Reference(path) as reference:
        annotation = read_gene_file(folder / "g.gff3", reference, {})
        neutral = neutral_of(annotation, reference)
        expected = list(intergenic(annotation, {"c1": len(GENE)}))
    assert neutral == expected and len(neutral) == 2
    assert "left out contigs without genes: 1 of 70 bp (e.g. other)" in capsys.readouterr().err


def test_python_refuses_a_calibration_of_other_options(folder):
    made = Calibration.read(folder / "k.json")
    model = carbon.load(folder / "model")
    with Reference(folder / "r.fa") as reference:
        with pytest.raises(UserError, match="was made with window_bp 24, not window_bp 30"):
            model.score_variants(
                reference, [], scores=["calibrated_delta"], calibration=made, window_bp=30
            )
        with pytest.raises(TypeError, match="scores: a single str"):
            model.score_variants(reference, [], scores="jsd")
        for contig, options, message in (
            ("x", {}, "neutral: no contig 'x'"),
            ("c1", {"seed": -1}, "seed -1: give"),
            ("c1", {"sites_per_context": 0}, "sites per context 0"),
        ):
            with pytest.raises(UserError, match=message):
                model.calibration(reference, [Interval(contig, 2, 42)], window_bp=24, **options)
