"""Scans against stock transformers, sums over 4,096 6-mers, scores, and each other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError, UserError
from carbon.genome import Interval, Reference, Variant
from carbon.inference import Model, ScanChunk, join_chunks
from carbon.inference.scan import windows as scan_windows
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE, encode
from tests.helpers.files import write_fasta
from tests.helpers.reference import INDEX, mass
from tests.helpers.scan import BASES, GAPPED, scanned


def whole(reference, contig) -> Interval:
    return Interval(contig, 0, reference.contig_lengths_bp[contig])


def stock_p(network, context: str) -> list[float]:
    """Return the probabilities of the 4,096 6-mers after whole tokens, by stock transformers."""
    ids = torch.tensor([encode(context).ids.tolist()])
    with torch.inference_mode():
        logits = network(ids).logits[0, -1, NATIVE.kmer_rows].double()
    return logits.softmax(dim=0).tolist()


def by_brute_force(network, bases: str, start: int, place: int) -> list[float]:
    """Return log p(b | all before it) of ACGT by sums over 6-mers, for a window from `start` on."""
    tail = (place - start) % 6
    known = "".join(b if b in "ACGT" else "?" for b in bases[place - tail : place].upper())
    p = stock_p(network, bases[start : place - tail])
    masses = [mass(p, (known + base).ljust(6, "?")) for base in "ACGT"]
    return [math.log(m / sum(masses)) for m in masses]


class TestAgainstOtherPaths:
    @pytest.mark.parametrize("offset", [0, 4])
    def test_conditionals_are_sums_over_stock_softmax(self, model, network, reference, offset):
        """Beside and inside of gaps too; one window, and what lies before the offset."""
        found = scanned(
            model, reference, whole(reference, "gaps"), offsets=[offset], window_bp=288,
            least_context_bp=144,
        )  # fmt: skip
        for place in (0, 2, 5, 6, 17, 100, 104, 241, 247, 252, 399):
            start = offset if place >= offset else 0
            if place >= start + 288:  # scored by the next window, which begins 144 bases on
                start += 144
            expected = by_brute_force(network, GAPPED, start, place)
            np.testing.assert_allclose(found.log_probabilities[place], expected, atol=1e-4)

    def test_it_is_the_likelihood_of_the_sequence(self, model, network, reference):
        """By base as `score` has it, and by token as stock transformers does."""
        found = scanned(model, reference, Interval("c", 0, 250))
        (score,) = model.score([BASES[:250]])
        np.testing.assert_allclose(found.log_p_ref, score.bases, atol=1e-5)
        by_token = found.log_p_ref[:120].reshape(20, 6).sum(axis=1)
        for token in (0, 1, 9, 19):
            p = stock_p(network, BASES[: 6 * token])
            expected = math.log(p[INDEX[BASES[6 * token : 6 * token + 6]]])
            assert by_token[token] == pytest.approx(expected, abs=1e-4)

    def test_tags_are_read(self, model, reference):
        tags = ("<fungi_species>",)
        found = scanned(model, reference, Interval("c", 0, 60), tags=tags)
        (tagged,), (bare,) = (model.score([BASES[:60]], tags=names) for names in (tags, ()))
        np.testing.assert_allclose(found.log_p_ref, tagged.bases, atol=1e-4)
        assert not np.allclose(tagged.bases, bare.bases, atol=1e-3)

    def test_token_start_with_equal_contexts_is_right_end(self, model, reference):
        """Windows of one scored 6-mer give every token the same context, as `right_end` has it."""
        context_bp, places = 48, [3, 53, 699]
        found = scanned(
            model, reference, Interval("c", 0, 700), combine="token_start",
            window_bp=context_bp + 6, least_context_bp=context_bp,
        )  # fmt: skip
        for place in places:
            ref = BASES[place]
            variants = [Variant("c", place, ref, alt) for alt in "ACGT" if alt != ref]
            how = {"protocol": "right_end", "window_bp": context_bp, "strands": "forward"}
            for score in model.score_variants(reference, variants, **how):
                delta = found.deltas[place]["ACGT".index(score.variant.alt)]
                assert delta == pytest.approx(score.delta, abs=1e-4)


class TestStrandsAndOffsets:
    @pytest.mark.parametrize("combine", ["mean", "token_start"])
    def test_the_reverse_strand_is_the_contig_turned_round(self, model, reference, combine):
        how = {"offsets": range(6), "combine": combine, "window_bp": 96, "least_context_bp": 30}
        found = scanned(model, reference, whole(reference, "gaps"), strands="reverse", **how)
        turned = scanned(model, reference, whole(reference, "turned"), **how)
        # Complements of ACGT are TGCA: the last column first.
        expected = turned.log_probabilities[::-1, ::-1]
        np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-6)

    def test_deltas_of_offsets_and_strands_are_averaged(self, model, reference):
        where = Interval("gaps", 20, 330)
        alone = [
            scanned(model, reference, where, offsets=[offset], strands=strands)
            for strands in ("forward", "reverse")
            for offset in (1, 2, 5)
        ]
        both = scanned(model, reference, where, offsets=[5, 1, 2], strands="both")
        mean = sum(one.deltas.astype(float) for one in alone) / 6
        np.testing.assert_allclose(both.deltas, mean, atol=1e-5)
        # Weighed products of the six distributions, brought to a sum of one.
        product = np.exp(sum(one.log_probabilities.astype(float) for one in alone) / 6)
        expected = np.log(product / product.sum(axis=1, keepdims=True))
        np.testing.assert_allclose(both.log_probabilities, expected, atol=1e-6)
        assert both.tokens_read == sum(one.tokens_read for one in alone)

    def test_token_start_takes_each_base_in_its_offset(self, model, reference):
        where = Interval("c", 3, 650)
        found = scanned(model, reference, where, combine="token_start", window_bp=90)
        offsets = [scanned(model, reference, where, offsets=[f], window_bp=90) for f in range(6)]
        of_offsets = np.stack([one.log_probabilities for one in offsets])
        places = np.arange(where.length_bp)
        expected = of_offsets[(places + where.start) % 6, places]
        np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-6)


class TestWindows:
    @pytest.mark.parametrize("strands", ["forward", "both"])
    def test_a_part_is_that_part_of_the_whole(self, model, reference, strands):
        how = {
            "offsets": [0, 4], "strands": strands, "window_bp": 72, "least_context_bp": 36
        }  # fmt: skip
        full = scanned(model, reference, whole(reference, "gaps"), **how)
        for start, end in [(0, 1), (71, 73), (77, 300), (399, 400)]:
            part = scanned(model, reference, Interval("gaps", start, end), **how)
            assert part.bases == full.bases[start:end]
            expected = full.log_probabilities[start:end]
            np.testing.assert_allclose(part.log_probabilities, expected, atol=1e-5)

    def test_chunks_follow_one_another_whatever_the_batches(self, network, reference, monkeypatch):
        """Batches and blocks of one window give what those of many give."""
        how = {"offsets": (0, 4), "strands": "both", "window_bp": 66, "least_context_bp": 30}
        where, results = Interval("c", 0, 250), []
        for batch_tokens, block_tokens in ((100, 1), (None, 100), (100, 2**16)):
            model = Model(LoadedModel(network, NATIVE))
            if batch_tokens:
                model.runner.batch_tokens = batch_tokens
            monkeypatch.setattr(scan_windows, "BLOCK_TOKENS", block_tokens)
            chunks = list(model.scan(reference, where, **how))
            assert [c.interval.start for c in chunks[1:]] == [c.interval.end for c in chunks[:-1]]
            assert all(len(c.log_probabilities) == c.interval.length_bp > 0 for c in chunks)
            results.append(join_chunks(chunks))
            assert (len(chunks) > 6) == (block_tokens == 1)
        for found in results:
            assert found.interval == where and found.bases == BASES[:250]
            assert found.tokens_read == results[0].tokens_read
            expected = results[0].log_probabilities
            np.testing.assert_allclose(found.log_probabilities, expected, atol=1e-5)

    @given(
        start=st.integers(0, 699), length=st.integers(1, 120), offset=st.integers(0, 5),
        window=st.integers(2, 16), context=st.floats(0, 0.99),
    )  # fmt: skip
    @settings(max_examples=20)
    def test_any_window_is_one_sequence_scored(
        self, model, reference, start, length, offset, window, context
    ):
        """A base has what `score` gives it in a sequence from its window's anchor on."""
        context_bp = 6 * int(context * window)
        where = Interval("c", start, min(start + length, 700))
        found = scanned(
            model, reference, where, offsets=[offset], window_bp=6 * window,
            least_context_bp=context_bp,
        )  # fmt: skip
        assert found.interval == where
        anchors = [0, *range(offset, 700, 6 * window - context_bp)]
        for place in {where.start, where.end - 1}:
            if place < offset:
                anchor = 0
            else:  # the first window that holds the base
                anchor = next(a for a in anchors[1:] if a <= place < a + 6 * window)
                assert place - anchor >= context_bp or anchor == offset
            (score,) = model.score([BASES[anchor : place + 1]])
            assert found.log_p_ref[place - start] == pytest.approx(score.bases[-1], abs=1e-4)

    def test_tokens_are_counted_by_hand(self, model, reference):
        """A window of 12 6-mers of which 8 are context scores 4, from the second window on."""
        how = {"window_bp": 72, "least_context_bp": 48}
        # Bases 96 to 119 are 6-mers 8 to 11 of the window from base 48 on: <dna> and 11 are read.
        assert scanned(model, reference, Interval("c", 96, 120), **how).tokens_read == 12
        # One base of 6-mer 8: <dna> and 8 are read.
        assert scanned(model, reference, Interval("c", 96, 97), **how).tokens_read == 9
        # From base 0: the first window, and 6-mers 12 to 15.
        assert scanned(model, reference, Interval("c", 0, 96), **how).tokens_read == 24
        # Offset 2: base 0 and 1 behind <dna>, and the first window, which is scored up to base 73.
        found = scanned(model, reference, Interval("c", 0, 74), offsets=[2], **how)
        assert found.tokens_read == 1 + 12

    def test_long_regions_are_read_as_they_are_taken(self, model, reference, monkeypatch):
        """Before the first chunk is there, no more than a block of windows has been read."""
        read = []

        class Counting(Reference):
            def __init__(self):
                self.contig_lengths_bp = reference.contig_lengths_bp

            def fetch(self, interval):
                read.append(interval)
                return reference.fetch(interval)

        model = Model(model.model)
        monkeypatch.setattr(scan_windows, "BLOCK_TOKENS", 64)
        chunks = model.scan(Counting(), whole(reference, "c"), window_bp=60)
        next(chunks)
        assert max(interval.end for interval in read[1:]) < 200

    def test_defaults(self, model):
        """48 tokens: `<dna>`, 47 6-mers, and one more that is predicted and not read."""
        method = model.scan_method()
        assert (method.window_bp, method.least_context_bp) == (288, 144)
        assert (method.offsets, method.combine) == ((0,), "mean")
        assert model.scan_method(combine="token_start").offsets == (0, 1, 2, 3, 4, 5)
        rounded = model.scan_method(window_bp=101, least_context_bp=31)
        assert (rounded.window_bp, rounded.least_context_bp) == (96, 36)

    @pytest.mark.parametrize(
        ("how", "message"),
        [
            ({"window_bp": 289}, "give 12 to 288"),
            ({"window_bp": 282, "tags": list(NATIVE.tags[:2])}, "give 12 to 276"),
            ({"least_context_bp": 283}, "give 0 to 282"),
            ({"offsets": []}, "offsets none"),
            ({"offsets": [6]}, "offsets 6"),
            ({"offsets": [0, 1], "combine": "token_start"}, "at all, 0 to 5"),
        ],
    )
    def test_settings_that_make_no_sense(self, model, reference, how, message):
        with pytest.raises(UserError, match=message):
            model.scan(reference, whole(reference, "c"), **how)

    def test_places_that_are_not_there(self, model, reference):
        for place in (Interval("chrc", 0, 5), Interval("c", 690, 701)):
            with pytest.raises(GenomeError):
                model.scan(reference, place)
        assert list(model.scan(reference, Interval("c", 7, 7))) == []

    def test_a_contig_shorter_than_a_token(self, model, network, reference):
        for offset in (0, 1, 2, 5):
            found = scanned(model, reference, whole(reference, "short"), offsets=[offset])
            expected = by_brute_force(network, "ACG", 0 if offset > 1 else offset, 1)
            np.testing.assert_allclose(found.log_probabilities[1], expected, atol=1e-4)


class TestValues:
    chunk = ScanChunk(
        Interval("c", 0, 3),
        "GNA",
        np.log(np.array([[0.1, 0.2, 0.3, 0.4], [0.25] * 4, [0.7, 0.1, 0.1, 0.1]])).astype("f4"),
        5,
    )

    def test_what_follows_from_log_probabilities(self):
        log = np.log
        expected = [log(0.1 / 0.3), log(0.2 / 0.3), 0, log(0.4 / 0.3)]
        np.testing.assert_allclose(self.chunk.deltas[0], expected, atol=1e-6)
        np.testing.assert_allclose(self.chunk.log_p_ref, [log(0.3), np.nan, log(0.7)], atol=1e-6)
        np.testing.assert_allclose(self.chunk.mean_delta[0], sum(expected) / 3, atol=1e-6)
        np.testing.assert_allclose(self.chunk.worst_delta[0], log(0.1 / 0.3), atol=1e-6)
        np.testing.assert_allclose(self.chunk.worst_delta[2], log(0.1 / 0.7), atol=1e-6)
        assert self.chunk.entropy_nats[1] == pytest.approx(math.log(4))
        # An unknown reference has no delta.
        assert np.isnan(self.chunk.deltas[1]).all() and not np.isnan(self.chunk.deltas[::2]).any()
        assert np.isnan(self.chunk.mean_delta[1]) and np.isnan(self.chunk.worst_delta[1])

    def test_case_does_not_matter(self, model, reference, tmp_path):
        upper = Reference(write_fasta(tmp_path / "u.fa", {"c": BASES}))
        for where in (Interval("c", 310, 420), Interval("c", 290, 310)):
            one, two = (scanned(model, r, where) for r in (reference, upper))
            assert one.bases == two.bases
            np.testing.assert_array_equal(one.log_probabilities, two.log_probabilities)

    def test_a_gap_is_summed_over_and_the_conditionals_stand(self, model, reference):
        found = scanned(model, reference, whole(reference, "gaps"))
        assert found.bases[100] + found.bases[230] + found.bases[399] == "NRN"
        unknown = np.isnan(found.log_p_ref)
        assert np.flatnonzero(unknown).tolist() == [100, *range(230, 250), 399]
        assert np.isfinite(found.log_probabilities).all()
