"""Scores of real variants against whole windows through stock transformers, in fp64 sums."""

import math
from itertools import islice

import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.genome import Interval, Reference, Variant, VcfReader
from carbon.genome.normalize import normalize_variant
from carbon.inference import Model
from carbon.model import PRESETS, LoadedModel
from carbon.tokenizer import NATIVE, encode
from tests.helpers.reference import HAS_BASE, centered_pair, stock_log_likelihood

pytestmark = pytest.mark.nightly

CHR20 = "variants_chr20/GRCh37.chr20_1M_2M.fa.gz", "variants_chr20/1000G_phase3.chr20_1M_2M.vcf.gz"


@pytest.fixture(scope="module")
def untrained():
    torch.manual_seed(3)
    config = PRESETS["tiny"]()
    config.initializer_range = 0.1
    return Model(LoadedModel(LlamaForCausalLM(config).eval(), NATIVE))


def snvs(reference, contig, first, step, number):
    """SNVs at regular places, the next base in the alphabet for each."""
    found = []
    for position in range(first, first + step * number, step):
        ref = reference.fetch(Interval(contig, position, position + 1)).upper()
        if ref in "ACGT":
            found.append(Variant(contig, position, ref, "ACGT"["ACGT".index(ref) - 1]))
    return found


def chosen(folder, name):
    """Open a reference and choose variants of it."""
    if name == "chr20":
        reference = Reference(folder / CHR20[0])
        rows = list(islice(VcfReader(folder / CHR20[1], reference), 4000))
        scorable = [r for r in rows if not any(v.why_unscorable() for v in r.variants)]
        kinds = (
            [r for r in scorable if len(r.variants) > 1],
            [r for r in scorable if len(r.variants[0].ref) > len(r.variants[0].alt)],
            [r for r in scorable if len(r.variants[0].ref) < len(r.variants[0].alt)],
            scorable,
        )
        return reference, [v for kind in kinds for row in kind[:3] for v in row.variants]
    if name == "yeast":
        (path,) = (folder / "yeast").glob("*.fa*")
        reference = Reference(path)
        contig = next(iter(reference.contig_lengths_bp))
        return reference, snvs(reference, contig, 3, 9973, 6)
    (path,) = (folder / "human_chr21").glob("*.fa*")
    reference = Reference(path)
    contig, length_bp = next(iter(reference.contig_lengths_bp.items()))
    return reference, snvs(reference, contig, length_bp - 500_000, 49_999, 6)


@pytest.mark.parametrize(
    ("name", "by"),
    [("chr20", "chain"), ("chr20", "marginals"), ("chr21", "marginals"), ("yeast", "chain")],
)
def test_against_whole_windows(real_data, untrained, name, by):
    reference, variants = chosen(real_data, name)
    with reference:
        options = {"protocol": "centered", "window_bp": 1501, "by": by, "strands": "both"}
        scores = list(untrained.score_variants(reference, variants, **options))
        assert len(scores) >= 5
        for variant, score in zip(variants, scores, strict=True):
            # Some are padded; tests/unit/test_normalize.py compares this with bcftools norm.
            plain = normalize_variant(reference, variant)
            for strand, found in (("+", score.forward), ("-", score.reverse)):
                ref, alt = (
                    stock_log_likelihood(untrained.model.network, whole, by)
                    - stock_log_likelihood(untrained.model.network, left, by)
                    for left, whole in centered_pair(reference, plain, 1501, strand)
                )
                assert found == pytest.approx(alt - ref, abs=1e-4)


def test_right_end_against_the_published_form(real_data, untrained):
    """24 kbp to the left, and the marginal of the first base of the next token."""
    reference, variants = chosen(real_data, "chr21")
    with reference:
        alone = {"protocol": "right_end", "strands": "forward"}
        scores = untrained.score_variants(reference, variants[:3], **alone)
        for variant, score in zip(variants, scores, strict=False):
            start = variant.position - 24_000
            left = reference.fetch(Interval(variant.contig, start, variant.position))
            ids = torch.from_numpy(encode(left).ids)[None]
            assert ids.shape == (1, 4001)
            with torch.inference_mode():
                logits = untrained.model.network(ids, logits_to_keep=1).logits[0, -1]
            p = logits[NATIVE.kmer_rows].double().softmax(dim=0).numpy()
            expected = math.log(
                p[HAS_BASE[0, variant.alt]].sum() / p[HAS_BASE[0, variant.ref]].sum()
            )
            assert score.delta == pytest.approx(expected, abs=1e-4)
