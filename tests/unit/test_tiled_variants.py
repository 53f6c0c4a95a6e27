"""The protocol `tiled` against whole stock forwards over tile and compared bases."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from carbon.cli import main
from carbon.errors import UserError
from carbon.genome import Reference, Variant, reverse_complement
from carbon.genome.normalize import normalize_variant
from carbon.inference import ModelRunner, VariantOptions
from carbon.inference.options import STRANDS_READ
from carbon.inference.variants import compare_block, method_for
from carbon.inference.variants import files as variant_files
from carbon.inference.variants.tiles import tiled_site
from carbon.inference.variants.windows import TileGrid
from carbon.model import LoadedModel, save_model
from carbon.tokenizer import NATIVE
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.reference import stock_log_likelihood

WINDOW_BP, CONTEXT_BP, DOWNSTREAM_BP = 150, 48, 20
OPTIONS = {
    "protocol": "tiled",
    "window_bp": WINDOW_BP,
    "least_context_bp": CONTEXT_BP,
    "downstream_bp": DOWNSTREAM_BP,
}
STEP_BP = 78  # (150 - 48 - 20) // 6 * 6
# A repeat longer than the compared bases, unknown and soft-masked bases, and a random end.
BASES = (
    random_bases(200, 1)
    + "CA" * 20
    + random_bases(100, 2).lower()
    + "GNNNNNNNNT"
    + random_bases(170, 3)
    + "A" * 9
    + random_bases(71, 4)
)
LENGTH_BP = len(BASES)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(3)
    return LlamaForCausalLM(small_config(48)).eval()


@pytest.fixture(scope="module")
def runner(network):
    return ModelRunner(LoadedModel(network, NATIVE))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return Reference(write_fasta(tmp_path_factory.mktemp("ref") / "r.fa", {"c": BASES}))


def by_definition(network, variant, strand, offset, by="chain"):
    """Return the delta by the definition, from whole texts; None without a difference."""
    bases, start = BASES.upper(), variant.position
    ref, alt = variant.ref, variant.alt
    if strand == "-":
        bases, start = reverse_complement(bases), LENGTH_BP - variant.interval.end
        ref, alt = reverse_complement(ref), reverse_complement(alt)
    texts = [allele + bases[start + len(ref) :] for allele in (ref, alt)]
    differing = [n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b]
    if not differing or "N" in {text[differing[0]] for text in texts}:
        return None
    same = differing[0]
    count = max(0, max(len(ref), len(alt)) - same) + DOWNSTREAM_BP
    first = start + same
    count = min(count, *(len(text) - same for text in texts))
    tile = max(0, (first - CONTEXT_BP) // STEP_BP) * STEP_BP
    totals = []
    for text, longer_bp in zip(texts, (0, len(alt) - len(ref)), strict=True):
        skip = (offset + longer_bp) % 6
        left = bases[tile + skip : first]
        if first - tile < skip:
            left = "N" * (6 + first - tile - skip)
        whole = left + text[same : same + count]
        totals.append(
            stock_log_likelihood(network, whole, by) - stock_log_likelihood(network, left, by)
        )
    return totals[1] - totals[0]


def check(network, runner, reference, variants, strands="both", offsets=(0,), by="chain"):
    method = method_for(runner, VariantOptions(**OPTIONS, strands=strands, offsets=offsets, by=by))
    scores = compare_block(runner, reference, variants, method)
    for variant, (score, _) in zip(variants, scores, strict=True):
        found_by_strand = {"+": score.forward, "-": score.reverse}
        for strand in STRANDS_READ[strands]:
            found = found_by_strand[strand]
            plain = normalize_variant(reference, variant)
            expected = [by_definition(network, plain, strand, offset, by) for offset in offsets]
            if expected[0] is None:
                assert found is None, variant
            else:
                assert found == pytest.approx(np.mean(expected), abs=1e-4), (variant, strand)


def at(position, ref_bp, alt):
    """Return a variant; after the base before it, if one allele is empty."""
    ref = BASES[position : position + ref_bp].upper()
    if ref and alt:
        return Variant("c", position, ref, alt)
    base = BASES[position - 1].upper()
    return Variant("c", position - 1, base + ref, base + alt)


def snv(position):
    base = BASES[position].upper()
    return at(position, 1, "ACGT"["ACGT".index(base) - 1])


# Where tiles begin to own, and the ends of the contig, on both strands.
EDGES = [
    position
    for tile in (0, 1, 2)
    for edge in [CONTEXT_BP + tile * STEP_BP]
    for position in (edge - 1, edge, LENGTH_BP - edge - 1, LENGTH_BP - edge)
]


class TestAgainstWholeForwards:
    @pytest.mark.parametrize(
        "variants",
        [
            [snv(position) for position in (0, 1, 5, LENGTH_BP - 1, LENGTH_BP - 6, *EDGES)],
            [snv(300), snv(301), snv(303)],  # of one 6-mer, soft-masked
            [at(100, 3, "CGTACC"), at(101, 3, "GCC"), at(102, 2, "TTTTTTTT")],
            [at(2, 0, "G"), at(2, 1, ""), at(3, 2, ""), at(1, 0, "GATTACA")],
            [at(200, 2, ""), at(200, 0, "CA"), at(202, 4, ""), at(200, 0, "CACAC")],
            [at(510, 1, ""), at(510, 0, "A"), at(510, 0, "AAA")],
            [snv(340), snv(349), at(338, 0, "T"), at(351, 1, "")],  # beside unknown bases
            [at(300, 30, ""), at(330, 0, random_bases(24, 8)), at(395, 7, "C")],
        ],
        ids=["edges", "one 6-mer", "MNVs", "start", "repeat", "homopolymer", "unknown", "long"],
    )
    def test_of_each_kind(self, network, runner, reference, variants):
        check(network, runner, reference, variants)

    def test_offsets_and_marginals(self, network, runner, reference):
        variants = [snv(3), snv(130), at(150, 2, ""), at(151, 0, "ACGG")]
        check(network, runner, reference, variants, offsets=(0, 1, 4))
        check(network, runner, reference, variants, strands="reverse", by="marginals")

    @settings(max_examples=40)
    @given(st.data())
    def test_of_random_variants(self, network, runner, reference, data):
        position = data.draw(st.integers(1, LENGTH_BP - 1))
        ref_bp = data.draw(st.integers(0, min(9, LENGTH_BP - position)))
        alt = data.draw(st.text("ACGT", max_size=9))
        variant = at(position, ref_bp, alt)
        if "N" not in variant.ref and variant.ref != alt:
            check(network, runner, reference, [variant])


def test_neighbours_and_batches_change_no_bit(network, reference):
    variants = [snv(position) for position in range(60, 330, 7)]
    variants += [at(90, 2, ""), at(90, 0, "TG"), at(205, 2, ""), at(120, 0, random_bases(30, 5))]
    options = VariantOptions(**OPTIONS)

    def deltas(some, batch_tokens=None):
        runner = ModelRunner(LoadedModel(network, NATIVE), batch_tokens)
        method = method_for(runner, options)
        return [score.delta for score, _ in compare_block(runner, reference, some, method)]

    together = deltas(variants)
    assert deltas(variants[::-1])[::-1] == together
    assert deltas(variants, batch_tokens=32) == together
    assert [deltas([variant])[0] for variant in variants] == together


@given(st.integers(24, 400), st.integers(0, 30), st.integers(1, 100), st.integers(0, 5000))
def test_a_position_has_one_tile_that_holds_its_bases(window_bp, kmers, downstream_bp, position):
    context_bp = 6 * kmers
    if context_bp + downstream_bp + 6 > window_bp:
        return
    grid = TileGrid(window_bp, context_bp, downstream_bp)
    start = grid.tile_of(position) * grid.step_bp
    assert start % 6 == grid.step_bp % 6 == 0
    assert start <= position and position + downstream_bp <= start + window_bp
    assert start == 0 or position - start >= context_bp


def test_alleles_that_do_not_fit_have_a_reason(runner, reference):
    method = method_for(runner, VariantOptions(**OPTIONS))
    # 48 tokens, of which one is `<dna>`; the last 6-mer is only predicted: 288 bp, of which a tile
    # takes 150.
    fits, long = (at(100, 1, "G" + random_bases(bp - 1, 6)) for bp in (138, 140))
    (one, _), (other, _) = compare_block(runner, reference, [fits, long], method)
    assert one.delta is not None and other.reason == "allele_longer_than_context"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"window_bp": 60, "least_context_bp": 48, "downstream_bp": 20},
            "give at most 54",
        ),
        ({"window_bp": 600}, "window of 600 bp does not fit"),
        ({"downstream_bp": 0}, "1 or more"),
        ({"protocol": "centered", "downstream_bp": 30}, "only the protocol tiled"),
    ],
)
def test_options_that_cannot_be(runner, options, message):
    with pytest.raises(UserError, match=message):
        method_for(runner, VariantOptions(**{"protocol": "tiled", **options}))


class TestCommand:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory, network):
        folder = tmp_path_factory.mktemp("command")
        save_model(network, folder / "model")
        write_fasta(folder / "r.fa", {"c": BASES, "d": random_bases(400, 5)})
        records = [
            f"{contig}\t{position + 1}\t.\t{base}\t{'ACGT'['ACGT'.index(base) - 1]}\t.\t.\t."
            for contig, bases in (("c", BASES), ("d", random_bases(400, 5)))
            for position, base in enumerate(bases.upper())
            if position % 5 == 0 and base in "ACGT"
        ]
        write_vcf(folder / "in.vcf", records)
        return folder

    def run(self, folder, output, *more):
        return main(
            ["variants", "--model", str(folder / "model"), "--reference", str(folder / "r.fa"),
             "--vcf", str(folder / "in.vcf"), "--output", str(output), "--protocol", "tiled",
             "--window", "150", "--least-context", "48", "--downstream", "20", *more]
        )  # fmt: skip

    def test_regions_and_blocks_change_no_byte(self, folder, tmp_path, monkeypatch, capsys):
        assert self.run(folder, tmp_path / "whole.tsv") == 0
        whole = (tmp_path / "whole.tsv").read_text().splitlines()
        monkeypatch.setattr(variant_files, "_TILES_PER_BLOCK", 1)
        monkeypatch.setattr(variant_files, "_MOST_RECORDS_OF_TILES", 3)
        assert self.run(folder, tmp_path / "small.tsv") == 0
        assert (tmp_path / "small.tsv").read_text().splitlines() == whole
        assert self.run(folder, tmp_path / "part.tsv", "--region", "c:200-330") == 0
        part = (tmp_path / "part.tsv").read_text().splitlines()
        assert len(part) > 20 and set(part[1:]) < set(whole)

    def test_a_dry_run_writes_nothing(self, folder, tmp_path, capsys):
        assert self.run(folder, tmp_path / "none.tsv", "--dry-run") == 0
        plan = json.loads(capsys.readouterr().out)
        assert plan["alleles"] == plan["records"] > 150 and plan["hours"] > 0
        assert set(plan["hours_h200"]) == {"500m", "3b"}
        assert not (tmp_path / "none.tsv").exists()


@pytest.mark.parametrize("strand", "+-")
@pytest.mark.parametrize(("ref_bp", "alt"), [(5, ""), (1, "CACA"), (3, "")])
def test_bases_after_an_indel_in_a_repeat_are_paired(reference, strand, ref_bp, alt):
    # Before the repeat of 20 CA, so that the texts begin to differ after both alleles.
    ref = BASES[199 : 199 + ref_bp]
    variant = normalize_variant(reference, Variant("c", 199, ref, ref[0] + alt))
    site = tiled_site(reference, variant, strand, DOWNSTREAM_BP)
    ref_bp, alt_bp = site.allele_bp
    after = site.ref[ref_bp:], site.alt[alt_bp:]
    paired_bp = min(map(len, after))
    assert paired_bp > 10 and after[0][:paired_bp] == after[1][:paired_bp]


@pytest.mark.parametrize("context_bp", [-1, -5, -6])
def test_a_negative_least_context_is_refused(runner, context_bp):
    options = VariantOptions(protocol="tiled", window_bp=90, least_context_bp=context_bp)
    with pytest.raises(UserError, match="do not fit into a window"):
        method_for(runner, options)
