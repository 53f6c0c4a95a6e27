"""The protocol `tiled`: its tiles, and the command; test_variant_score_types.py has its scores."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import GPT2Config

from carbon.cli import main
from carbon.errors import UserError
from carbon.genome import Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference import VariantOptions, jobs
from carbon.inference.variants import compare_block, method_for
from carbon.inference.variants import files as variant_files
from carbon.inference.variants.plan import hours_h200
from carbon.inference.variants.tiles import tiled_site
from carbon.inference.variants.windows import TileGrid
from carbon.model import PRESETS, save_model
from carbon.tokenizer import HYBRID
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.reference import stock_delta, tiled_pair

OPTIONS = {"window_bp": 150, "least_context_bp": 48, "downstream_bp": 20}
REPEAT_BP = 199  # the base before it
BASES = random_bases(200, 1) + "CA" * 20 + random_bases(180, 2)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return Reference(write_fasta(tmp_path_factory.mktemp("ref") / "r.fa", {"c": BASES}))


@given(st.integers(24, 400), st.integers(0, 30), st.integers(1, 100), st.integers(0, 5000))
def test_a_position_has_one_tile_that_holds_its_bases(window_bp, kmers, downstream_bp, position):
    context_bp = 6 * kmers
    if context_bp + downstream_bp + 6 > window_bp:
        return
    grid = TileGrid(window_bp, context_bp, downstream_bp, 6)
    start = grid.tile_of(position) * grid.step_bp
    assert start % 6 == grid.step_bp % 6 == 0
    assert start <= position and position + downstream_bp <= start + window_bp
    assert start == 0 or position - start >= context_bp


def test_alleles_that_do_not_fit_have_a_reason(model, reference):
    """Of 48 tokens one is `<dna>`, and one 6-mer more is predicted: 288 bp, 150 of them a tile."""
    method = method_for(model.runner, VariantOptions(protocol="tiled", **OPTIONS))
    alts = ("G" + random_bases(bp - 1, 6) for bp in (138, 140))
    fits, long = (Variant("c", 100, BASES[100], alt) for alt in alts)
    (one, _), (other, _) = compare_block(model.runner, reference, [fits, long], method)
    assert one.delta is not None and other.reason == "allele_longer_than_context"


def test_indels_without_any_context_before_them(model, network, tmp_path):
    """A tile may begin at a variant, or three bases before the end, fewer than ALT's skips."""
    options = {"window_bp": 36, "least_context_bp": 0, "downstream_bp": 6}
    end = len(BASES) // 30 * 30 + 3  # tiles begin every 30 bases
    bases = (BASES + BASES)[:end]
    reference = Reference(write_fasta(tmp_path / "r.fa", {"c": bases}))
    starts = [*range(60, 120), *range(end - 14, end - 1)]
    variants = [Variant("c", at, bases[at : at + 2], bases[at]) for at in starts]
    variants += [Variant("c", at, bases[at], bases[at] + "ACG") for at in starts]
    together = list(model.score_variants(reference, variants, **options))
    assert sum(score.delta is not None for score in together) > 0.9 * len(together)
    assert {score.reason for score in together} <= {None, "contig_edge"}
    for variant, score in list(zip(variants, together, strict=True))[::7]:
        assert list(model.score_variants(reference, [variant], **options)) == [score]
    for variant, score in zip(variants, together, strict=True):
        for strand, delta in (("+", score.forward), ("-", score.reverse)):
            pair = tiled_pair(bases, normalize_variant(reference, variant), strand, 0, options)
            expected = pair and pytest.approx(stock_delta(network, *pair[:2]), abs=1e-4)
            assert delta == expected, (variant, strand)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_bp": 60, "least_context_bp": 48, "downstream_bp": 20}, "give at most 54"),
        ({"window_bp": 600}, "window of 600 bp does not fit"),
        ({"downstream_bp": 0}, "1 or more"),
        ({"protocol": "centered", "downstream_bp": 30}, "only the protocol tiled"),
        ({"window_bp": 90, "least_context_bp": -1}, "do not fit into a window"),
        ({"window_bp": 90, "least_context_bp": -6}, "do not fit into a window"),
    ],
)
def test_options_that_cannot_be(model, options, message):
    with pytest.raises(UserError, match=message):
        method_for(model.runner, VariantOptions(**{"protocol": "tiled", **options}))


@pytest.fixture(scope="module")
def run(tmp_path_factory, network):
    """Score every fifth base of two contigs by the command."""
    folder = tmp_path_factory.mktemp("command")
    save_model(network, folder / "model")
    contigs = {"c": BASES, "d": random_bases(200, 5)}
    write_fasta(folder / "r.fa", contigs)
    records = [
        f"{contig}\t{at + 1}\t.\t{bases[at]}\t{'ACGT'['ACGT'.index(bases[at]) - 1]}\t.\t.\t."
        for contig, bases in contigs.items()
        for at in range(0, len(bases), 5)
    ]
    write_vcf(folder / "in.vcf", records)

    def run(output, *more, vcf=folder / "in.vcf"):
        return main(
            ["variants", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
             "--vcf", str(vcf), "--output", str(output), "--protocol", "tiled",
             "--window", "150", "--least-context", "48", "--downstream", "20", *more]
        )  # fmt: skip

    return run


def test_regions_and_blocks_change_no_byte(run, tmp_path, monkeypatch):
    assert run(tmp_path / "whole.tsv") == 0
    whole = (tmp_path / "whole.tsv").read_text().splitlines()
    monkeypatch.setattr(variant_files, "_TILES_PER_BLOCK", 1)
    monkeypatch.setattr(variant_files, "_MOST_RECORDS_OF_TILES", 3)
    assert run(tmp_path / "small.tsv") == 0
    assert (tmp_path / "small.tsv").read_text().splitlines() == whole
    assert run(tmp_path / "part.tsv", "--region", "c:200-330") == 0
    part = (tmp_path / "part.tsv").read_text().splitlines()
    assert len(part) > 20 and set(part[1:]) < set(whole)


def test_a_dry_run_writes_nothing(run, tmp_path, capsys):
    assert run(tmp_path / "none.tsv", "--dry-run") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["alleles"] == plan["records"] == 124 and plan["hours"] > 0  # 420 / 5 + 200 / 5
    assert "hours_h200" not in plan  # a size that was not measured
    assert not (tmp_path / "none.tsv").exists()


def test_hours_on_an_h200_are_those_of_the_size_of_the_model():
    tokens = 7200 * 222_499  # two hours of the smaller one
    assert hours_h200(PRESETS["500m"](), tokens) == {"hours_h200": 2.0}
    assert hours_h200(PRESETS["3b"](HYBRID, "qwen3"), tokens) == {"hours_h200": 8.0352}
    assert hours_h200(PRESETS["8b"](), tokens) == hours_h200(GPT2Config(), tokens) == {}


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_an_unsorted_vcf_is_refused_before_the_model_loads(
    run, tmp_path, capsys, monkeypatch, more
):
    write_vcf(tmp_path / "bad.vcf", [f"c\t{at}\t.\t{BASES[at - 1]}\tN\t.\t.\t." for at in (9, 5)])
    loaded = []
    monkeypatch.setattr(jobs.LoadingOptions, "load", lambda *_: loaded.append(1))
    assert run(tmp_path / "o.tsv", *more, vcf=tmp_path / "bad.vcf") == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "comes after c:9, the file is not sorted" in line and not loaded
    assert [path.name for path in tmp_path.iterdir()] == ["bad.vcf"]


@pytest.mark.parametrize("strand", "+-")
@pytest.mark.parametrize(("ref_bp", "alt"), [(5, ""), (1, "CACA"), (3, "")])
def test_bases_after_an_indel_in_a_repeat_are_paired(reference, strand, ref_bp, alt):
    """The indel stands before 20 CA, so that the texts begin to differ after both alleles."""
    ref = BASES[REPEAT_BP : REPEAT_BP + ref_bp]
    written = Variant("c", REPEAT_BP, ref, ref[0] + alt)
    site = tiled_site(reference, normalize_variant(reference, written), strand, 20)
    ref_bp, alt_bp = site.allele_bp
    after = site.ref[ref_bp:], site.alt[alt_bp:]
    paired_bp = min(map(len, after))
    assert paired_bp > 10 and after[0][:paired_bp] == after[1][:paired_bp]
