"""Stock models of k-mers by Carbon's runner, against transformers alone."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

import carbon
from carbon.cli import main
from carbon.errors import ModelError, UserError
from carbon.finetune.data import prepare
from carbon.finetune.job import as_config, run_identity
from carbon.finetune.network import OpenedModel, batches
from carbon.finetune.readers import pair_of
from carbon.finetune.tasks import LabelTask
from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.inference.identity import identity_of, model_settings_of, tokens_of
from carbon.inference.passages import padded_length
from carbon.inference.scan import join_chunks
from carbon.inference.stock_check import check_runs_as_stock
from carbon.inference.variants.background_file import BackgroundFile
from carbon.model.folder import is_stock, model_folder
from carbon.tokenizer import NATIVE
from carbon.tokenizer.read import read_kmer_vocabulary
from carbon.tokenizer.vocabulary import NEEDS_SIX_MERS
from eval.hugging_face import HuggingFaceModel
from eval.models import load_any
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.finetune import finetuned_on_stock
from tests.helpers.stock_models import StockModel, kmer_tokenizer, save_stock_model

torch.set_num_threads(1)

CLOSE = 1e-4
CASES = [
    *(("llama", 1, True), ("qwen3", 1, False), ("qwen3", 3, True), ("llama", 3, False)),
    *(("llama", 6, True), ("qwen3", 6, False), ("llama", 5, False)),
]
CONTIG = random_bases(400, 11)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(map(str, case)))
def folder(request, tmp_path_factory) -> Path:
    kind, k, begin = request.param
    return save_stock_model(tmp_path_factory.mktemp("stock") / "m", kind, k, begin=begin)


@pytest.fixture(scope="module")
def model(folder) -> carbon.Model:
    return carbon.load(folder, device="cpu")


@pytest.fixture(scope="module")
def stock(folder, model) -> StockModel:
    return StockModel.load(folder, model.runner.vocabulary.k)


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Reference:
    path = tmp_path_factory.mktemp("genome") / "g.fa"
    write_fasta(path, {"c": CONTIG})
    return Reference(path)


def along(strand: str, bases: str) -> str:
    return bases if strand == "+" else reverse_complement(bases)


def test_likelihoods(model, stock):
    for length_bp in (60, 61, 5):
        text = CONTIG[:length_bp]
        (score,) = model.score([text])
        assert score.bases == pytest.approx(stock.base_log_p(text), abs=CLOSE)


def test_unknown_bases_have_no_score_and_one_token(model, stock):
    k, text = stock.k, CONTIG[:48]
    unknown = text[: 4 * k] + "N" + text[4 * k + 1 :]
    (score,) = model.score([unknown])
    assert score.bases[4 * k] == 0 and score.num_known_bases == 47
    assert score.bases[: 4 * k] == pytest.approx(stock.base_log_p(text)[: 4 * k], abs=CLOSE)
    tokens = model.runner.vocabulary.tokens(unknown)
    assert tokens.ids[4] == stock.tokenizer.unk_token_id and len(tokens.ids) == -(-48 // k)


def test_a_sequence_longer_than_the_context_overlaps_by_half(model, stock):
    k, room = stock.k, model.context_bp
    text = (CONTIG * 3)[: room + 40]
    stride = room // 2 // k * k
    expected = np.concatenate(
        [stock.base_log_p(text[:room]), stock.base_log_p(text[stride:])[room - stride :]]
    )
    (score,) = model.score([text])
    assert score.bases == pytest.approx(expected, abs=CLOSE)


def centered_delta(
    stock: StockModel, variant: Variant, window_bp: int, strand: str, offset: int
) -> float:
    """Sum from the variant on, with ALT less REF; the window of ALT leaves out bases of its own.

    Near the end of a contig as many bases are compared as follow both alleles.
    """
    before_bp = (window_bp if strand == "+" else window_bp - 1) // 2
    first, last = variant.position, variant.position + len(variant.ref)
    left, rest = CONTIG[:first], CONTIG[last:]
    if strand == "-":
        left, rest = reverse_complement(rest), reverse_complement(left)
    left, totals = left[-before_bp:], []
    alleles = variant.ref, variant.alt
    shared_bp = min(window_bp - before_bp, min(map(len, alleles)) + len(rest))
    for allele in alleles:
        skipped = left[(offset + len(allele) - len(variant.ref)) % stock.k :]
        text = (along(strand, allele) + rest)[:shared_bp]
        totals.append(stock.base_log_p(skipped + text)[len(skipped) :].sum())
    return totals[1] - totals[0]


def snv(at: int) -> Variant:
    return Variant("c", at, CONTIG[at], "ACGT"["ACGT".index(CONTIG[at]) - 1])


VARIANTS = [snv(180), snv(200)]


def insertion() -> Variant:
    """Return a normalised insertion: neither base before it equals its last one."""
    at = next(n for n in range(190, 300) if CONTIG[n] != "G" and CONTIG[n + 1] != "T")
    return Variant("c", at, CONTIG[at], CONTIG[at] + "TG")


def deletion() -> Variant:
    """Return a normalised deletion near the end of the contig."""
    at = next(n for n in range(380, 390) if CONTIG[n] != CONTIG[n + 2])
    return Variant("c", at, CONTIG[at : at + 3], CONTIG[at])


@pytest.mark.parametrize("strand", ["forward", "reverse"])
def test_deltas_of_centered(model, stock, reference, strand):
    window_bp = min(60, model.context_bp)
    variants, offsets = [*VARIANTS, insertion(), deletion()], sorted({0, stock.k - 1})
    options = {"window_bp": window_bp, "strands": strand, "offsets": offsets}
    options["protocol"] = "centered"
    scores = list(model.score_variants(reference, variants, **options))
    sign = "+" if strand == "forward" else "-"
    for variant, score in zip(variants, scores, strict=True):
        deltas = [centered_delta(stock, variant, window_bp, sign, each) for each in offsets]
        expected = np.mean(deltas)
        assert score.delta == pytest.approx(expected, abs=CLOSE)


def homopolymer_insertion() -> Variant:
    """Return a normalised insertion before a run of one base, of that base."""
    at = next(
        n for n in range(100, 300)
        if len(set(CONTIG[n + 1 : n + 4])) == 1 and CONTIG[n] != CONTIG[n + 1]
    )  # fmt: skip
    return Variant("c", at, CONTIG[at], CONTIG[at : at + 2])


def inner_deletion() -> Variant:
    """Return a normalised deletion far from the ends of the contig."""
    at = next(n for n in range(210, 290) if CONTIG[n] != CONTIG[n + 2])
    return Variant("c", at, CONTIG[at : at + 3], CONTIG[at])


def tiled_delta(stock: StockModel, variant: Variant, strand: str, context_bp: int) -> float:
    """Sum from the first difference to 10 bases after the longer allele, in windows of 66 bases.

    The context before the difference is whole k-mers. The tile with ALT leaves out bases, so that
    the k-mers after ALT begin at the same reference bases as those after REF.
    """
    bases, ref, alt = (along(strand, each) for each in (CONTIG, variant.ref, variant.alt))
    start = variant.position if strand == "+" else len(CONTIG) - variant.interval.end
    texts = [allele + bases[start + len(ref) :] for allele in (ref, alt)]
    same = next(n for n, (a, b) in enumerate(zip(*texts, strict=False)) if a != b)
    count = max(len(ref) - same, len(alt) - same, 0) + 10
    context_bp += -context_bp % stock.k
    step_bp = (66 - context_bp - 10) // stock.k * stock.k
    tile_at = max(0, (start + same - context_bp) // step_bp) * step_bp
    totals = []
    for text, skipped in zip(texts, (0, (len(alt) - len(ref)) % stock.k), strict=True):
        left = bases[tile_at + skipped : start + same]
        whole = left + text[same : same + count]
        totals.append(stock.base_log_p(whole)[len(left) :].sum())
    return totals[1] - totals[0]


def default_context_bp(stock: StockModel) -> int:
    """Return a sixth of a window of 66 bases, in whole k-mers."""
    return 11 // stock.k * stock.k


@pytest.mark.parametrize(
    ("variants", "context_bp"),
    [  # SNV 7 is near the start of the contig, and of its reverse complement near the end
        ([*VARIANTS, snv(7)], None),
        ([insertion(), inner_deletion(), homopolymer_insertion()], 24),
    ],
    ids=["snvs", "indels"],
)
def test_deltas_of_tiled(model, stock, reference, variants, context_bp):
    options = {"window_bp": 66, "downstream_bp": 10, "least_context_bp": context_bp}
    scores = model.score_variants(reference, variants, protocol="tiled", **options)
    for variant, score in zip(variants, scores, strict=True):
        least_bp = context_bp or default_context_bp(stock)
        expected = [tiled_delta(stock, variant, strand, least_bp) for strand in "+-"]
        assert [score.forward, score.reverse] == pytest.approx(expected, abs=CLOSE)


def test_right_end_is_the_next_base(model, stock, reference):
    (variant, _) = VARIANTS
    (score,) = model.score_variants(
        reference, [variant], protocol="right_end", window_bp=48, strands="forward"
    )
    whole_bp = 48 // stock.k * stock.k
    left = CONTIG[variant.position - whole_bp : variant.position]
    row = stock.conditionals(left + variant.ref)[-1]
    expected = row["ACGT".index(variant.alt)] - row["ACGT".index(variant.ref)]
    assert score.delta == pytest.approx(expected, abs=CLOSE)


def test_scan_from_the_left(model, stock, reference):
    chunk = join_chunks(model.scan(reference, Interval("c", 0, 50)))
    expected = stock.conditionals(CONTIG[:50])
    assert chunk.log_probabilities == pytest.approx(expected, abs=CLOSE)


def left_span(place: int, offset: int, k: int) -> tuple[int, int]:
    """Return the first window that holds a base.

    Windows are the whole k-mers of 24 bases, and overlap by the whole k-mers from 12 bases on.
    """
    if place < offset:
        return 0, offset
    first, window_bp = offset, 24 // k * k
    context_bp = -(-(window_bp // 2) // k) * k
    while first + window_bp <= place:
        first += window_bp - context_bp
    return first, first + window_bp


def test_scan_of_the_reverse_strand_in_windows_at_an_offset(model, stock, reference):
    """p(b) on the forward strand is p of its complement, in the order T, G, C, A."""
    offset = stock.k - 1
    chunk = join_chunks(
        model.scan(
            reference, Interval("c", 340, 400), window_bp=24, offsets=(offset,), strands="reverse"
        )
    )
    bases = reverse_complement(CONTIG)
    spans = {place: left_span(place, offset, stock.k) for place in range(59, -1, -1)}
    rows = {span: stock.conditionals(bases[slice(*span)]) for span in set(spans.values())}
    expected = [rows[span][place - span[0]][::-1] for place, span in spans.items()]
    assert chunk.log_probabilities == pytest.approx(np.array(expected), abs=CLOSE)


def test_scan_of_both_sides(model, stock, reference):
    options = {"window_bp": 66, "downstream_bp": 10, "strands": "forward"}
    chunk = join_chunks(model.scan(reference, Interval("c", 100, 103), sides="both", **options))
    for row, at in zip(chunk.log_probabilities, range(100, 103), strict=True):
        deltas = [
            0.0 if base == CONTIG[at]
            else tiled_delta(
                stock, Variant("c", at, CONTIG[at], base), "+", default_context_bp(stock)
            )
            for base in "ACGT"
        ]  # fmt: skip
        expected = torch.tensor(deltas).log_softmax(dim=0).numpy()
        assert row == pytest.approx(expected, abs=CLOSE)


def test_embeddings(model, stock):
    text = CONTIG[:60]
    padded = text + "A" * (-60 % stock.k)
    states = stock.states(padded)
    num_known = np.minimum(60 - np.arange(0, 60, stock.k), stock.k)
    (mean,), (last,) = (list(model.embed([text], pool=pool)) for pool in ("mean", "last"))
    assert mean == pytest.approx(np.average(states, 0, num_known), abs=CLOSE)
    assert last == pytest.approx(states[-1], abs=CLOSE)
    with torch.inference_mode():
        ids = torch.tensor([stock.ids(padded)])
        inner = stock.network(ids, output_hidden_states=True).hidden_states[1][0]
    (first_layer,) = model.embed([text], layer=1)
    expected = np.average(inner[int(stock.has_begin) :].numpy(), 0, num_known)
    assert first_layer == pytest.approx(expected, abs=CLOSE)
    with pytest.raises(UserError, match="pool 'end': is the state of </dna>"):
        model.embed([text], pool="end")


def test_dependency(model, stock, reference):
    """e(i, j) is the largest change of the log2 odds of a base at j over substitutions at i."""
    region, (i, j) = Interval("c", 30, 42), (2, 9)
    found = model.dependency(reference, region, window_bp=42)

    def odds(text: str) -> np.ndarray:
        p = np.exp(stock.conditionals(text)[30 + j])
        return np.log2(p / (1 - p))

    text = CONTIG[:42]
    others = [text[: 30 + i] + base + text[31 + i :] for base in "ACGT" if base != text[30 + i]]
    expected = max(np.abs(odds(other) - odds(text)).max() for other in others)
    assert found.directed[i, j] == pytest.approx(expected, abs=1e-3)


def test_dependency_in_the_first_kmer_without_a_begin_token(tmp_path, reference):
    """Nothing predicts it, so that its bases are equally likely after every substitution."""
    model = carbon.load(save_stock_model(tmp_path / "m", "qwen3", 3, begin=False), device="cpu")
    directed = model.dependency(reference, Interval("c", 0, 3), window_bp=42).directed
    assert not np.triu(directed, 1).any() and directed[np.tril_indices(3, -1)].all()


def test_offsets_and_windows_are_those_of_the_model(model, stock):
    k = stock.k
    assert model.variant_method(offsets="all").offsets == tuple(range(k))
    with pytest.raises(UserError, match="give 0, the only one" if k == 1 else f"0 to {k - 1}"):
        model.variant_method(offsets=(k,))
    context_bp = (96 - stock.has_begin) * k
    assert model.context_bp == model.variant_method(protocol="centered").window_bp == context_bp
    assert model.variant_method().window_bp == context_bp - context_bp // 4  # left for alleles
    with pytest.raises(UserError, match=f"give {2 * k} to {context_bp} bp"):
        model.variant_method(window_bp=context_bp + 1)
    with pytest.raises(UserError, match="this model has no metadata tags"):
        model.score(["ACGT"], tags=["<fungi_species>"])


class TestReading:
    def test_cases_of_letters(self, tmp_path):
        upper, lower = (
            carbon.load(
                save_stock_model(tmp_path / str(low), "llama", 1, begin=True, lower=low),
                device="cpu",
            )
            for low in (False, True)
        )
        (one,), (other,) = (list(model.score(["ACGTTGCA"])) for model in (upper, lower))
        assert one.log_likelihood == other.log_likelihood

    def test_values_of_a_tokenizer(self):
        found = read_kmer_vocabulary(kmer_tokenizer(3, begin=True), "m")
        assert (found.k, found.begin, found.other) == (3, 0, 1)
        # A, T, C, G are Carbon's digits 0, 1, 2, 3; the tokenizer's are A, C, G, T after two
        # specials: GTA is 3 x 16 + 1 x 4 + 0 here, and 2 + 2 x 16 + 3 x 4 + 0 there.
        assert found.ids[52] == 46
        without = read_kmer_vocabulary(kmer_tokenizer(1, begin=False, unknown=False), "m")
        assert (without.begin, without.other, without.rows) == (None, None, slice(0, 4))
        assert without.tokens("ANT").ids.tolist() == [0, 0, 3]

    def test_a_missing_unknown_token_is_reported(self, tmp_path, capsys):
        folder = save_stock_model(tmp_path / "m", "llama", 1, begin=True, unknown=False)
        carbon.load(folder, device="cpu")
        assert "no token for unknown bases, which are read as A" in capsys.readouterr().err


class TestCarbonsNumberOfRows:
    """A vocabulary of 6-mers that is padded to a multiple of 128 has 4,224 rows, as Carbon's."""

    def test_likelihoods(self, tmp_path):
        folder = save_stock_model(tmp_path / "m", "llama", 6, begin=True, num_rows=NATIVE.size)
        (score,) = carbon.load(folder, device="cpu").score([CONTIG[:40]])
        expected = StockModel.load(folder, 6).base_log_p(CONTIG[:40])
        assert score.bases == pytest.approx(expected, abs=CLOSE)

    @pytest.mark.parametrize("name", ["vocab.txt", "vocab.json", "tokenizer_config.json"])
    def test_the_listed_tokens_decide(self, tmp_path, name):
        (tmp_path / "config.json").write_text(json.dumps({"vocab_size": NATIVE.size}))
        tokens = {"vocab.txt": "<s>\nAAAAAA\n", "vocab.json": '{"<s>": 0, "AAAAAA": 1}'}
        (tmp_path / name).write_text(tokens.get(name, "{}"))
        assert is_stock(tmp_path) == (name in tokens)


def with_exchanged_tokens(folder: Path, copy: Path) -> Path:
    """Copy a folder, with the ids of A and C exchanged; the weights stay."""
    shutil.copytree(folder, copy)
    text = (copy / "tokenizer.json").read_text()
    table = json.loads(text)
    ids = table["model"]["vocab"]
    ids["A"], ids["C"] = ids["C"], ids["A"]
    (copy / "tokenizer.json").write_text(json.dumps(table))
    return copy


def test_the_same_weights_with_other_tokens_are_another_model(tmp_path):
    folder = save_stock_model(tmp_path / "m", "qwen3", 1, begin=True)
    folders = [folder, with_exchanged_tokens(folder, tmp_path / "o")]
    one, other = (carbon.load(each, device="cpu").runner for each in folders)
    assert one.weights_sha256 == other.weights_sha256
    settings, others = model_settings_of(one), model_settings_of(other)
    assert {name for name in settings if settings[name] != others[name]} == {"tokens_sha256"}
    whole = [identity_of(each, str(at)) for each, at in zip((one, other), folders, strict=True)]
    assert whole[0]["tokens_sha256"] != whole[1]["tokens_sha256"]
    made = BackgroundFile({"settings": settings, "drawn": {}})
    assert made.why_other(settings) is None
    assert "other tokens of the model" in made.why_other(others)
    assert tokens_of(NATIVE) == {}


def probe_config(model: Path, folder: Path) -> dict:
    """Write a table whose class is that of many Gs; return a probe on it."""
    drawn = [random_bases(30, n) for n in range(40)]
    rows = [f"{bases},{'a' if bases.count('G') > 7 else 'b'}" for bases in drawn]
    (folder / "d.csv").write_text("\n".join(["sequence,label", *rows]) + "\n")
    return {
        "model": str(model), "output": str(folder / "out"), "data": {"path": str(folder / "d.csv")},
        "task": {"type": "binary"}, "method": {"name": "probe", "pool": "mean"}, "baselines": [],
    }  # fmt: skip


def test_a_fine_tuning_of_other_tokens_is_another_run(tmp_path):
    """A tokenizer_config.json decides the begin token, and no checksum of a file shows it."""
    folder = save_stock_model(tmp_path / "m", "qwen3", 1, begin=True)
    hashes = []
    for each in (folder, with_exchanged_tokens(folder, tmp_path / "o")):
        config = as_config(probe_config(each, tmp_path))
        hashes.append(run_identity(config, prepare(config.data, config.task, 1))["hashes"])
    changed = {name for name in hashes[0] if hashes[0][name] != hashes[1][name]}
    assert changed == {"base model (tokens_sha256)"}


@pytest.mark.parametrize("k", [2, 8])
def test_likelihoods_of_other_lengths(tmp_path, k):
    folder = save_stock_model(tmp_path / "m", "llama", k, begin=True)
    (score,) = carbon.load(folder, device="cpu").score([CONTIG[: k + 1]])
    expected = StockModel.load(folder, k).base_log_p(CONTIG[: k + 1])
    assert score.bases == pytest.approx(expected, abs=CLOSE)


def save_network(folder: Path, network: object) -> Path:
    """Write a network and the tokenizer of bases."""
    network.save_pretrained(folder)
    kmer_tokenizer(1, begin=True).save_pretrained(folder)
    return folder


def test_a_network_that_scales_its_embedding_is_opened(tmp_path):
    """Gemma multiplies the rows by the root of the width, inside of its embedding."""
    torch.manual_seed(0)
    config = GemmaConfig(
        vocab_size=6, hidden_size=16, intermediate_size=24, num_hidden_layers=2, head_dim=8,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        initializer_range=0.4, pad_token_id=5,
    )  # fmt: skip
    folder = save_network(tmp_path / "m", GemmaForCausalLM(config))
    model, stock = carbon.load(folder, device="cpu"), StockModel.load(folder, 1)
    opened = OpenedModel(model.model)
    batch = batches(model.runner.vocabulary, "mean")([CONTIG[:20]])
    with torch.inference_mode():
        states = opened.backbone(input_ids=batch.ids, use_cache=False).last_hidden_state[0]
    assert states[1:].numpy() == pytest.approx(stock.states(CONTIG[:20]), abs=CLOSE)
    opened.closed()
    (score,) = model.score([CONTIG[:20]])
    assert score.bases == pytest.approx(stock.base_log_p(CONTIG[:20]), abs=CLOSE)


class TestWindows:
    """A sliding window, whose cache keeps a token less than the window."""

    def mistral(self, folder: Path, window: int) -> Path:
        torch.manual_seed(0)
        config = MistralConfig(
            vocab_size=6, hidden_size=16, intermediate_size=24, num_hidden_layers=2, head_dim=8,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            initializer_range=0.4, sliding_window=window,
        )  # fmt: skip
        return save_network(folder, MistralForCausalLM(config))

    def test_a_window_of_the_context_is_refused(self, tmp_path):
        needed = padded_length(64) + 1
        carbon.load(self.mistral(tmp_path / "wide", needed), device="cpu")
        folder = self.mistral(tmp_path / "m", needed - 1)
        message = f"attends to {needed - 1} tokens at most, and its context needs {needed}"
        with pytest.raises(ModelError, match=message):
            carbon.load(folder, device="cpu")

    def test_chunks_are_refused(self, tmp_path):
        runner = carbon.load(save_stock_model(tmp_path / "m", "llama", 1, begin=True)).runner
        runner.network.config.layer_types = ["chunked_attention", "full_attention"]
        with pytest.raises(ModelError, match="m: LlamaForCausalLM attends in chunks"):
            check_runs_as_stock(runner, "m")


def test_a_linear_probe(tmp_path, monkeypatch):
    monkeypatch.setattr("carbon.finetune.job.write_pages", lambda *_: None)
    folder = save_stock_model(tmp_path / "m", "qwen3", 1, begin=True)
    config = probe_config(folder, tmp_path)
    carbon.finetune.run(None, config)
    finetuned = carbon.load_finetuned(tmp_path / "out", device="cpu")
    text = CONTIG[:30]
    stock = StockModel.load(folder, 1)
    layer = finetuned.manifest.layer
    means = [stock.states(along(strand, text), layer).mean(axis=0) for strand in "+-"]
    vector = torch.from_numpy(np.mean(means, axis=0))[None]
    expected = finetuned.network.head(vector).detach().numpy()[0]
    (logits,) = finetuned.logits([text])
    assert logits == pytest.approx(expected, abs=1e-3)
    with pytest.raises(UserError, match=r"method.name = 'full': .* set method.name to 'probe'"):
        carbon.finetune.run(
            None, config | {"output": str(tmp_path / "o"), "method": {"name": "full"}}
        )


@pytest.fixture(scope="module")
def of_3mers(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("threes") / "m"
    return save_stock_model(folder, "qwen3", 3, begin=True)


@pytest.mark.parametrize("length_bp", [30, 32])
def test_a_label_of_every_base_with_other_kmers(of_3mers, length_bp):
    """The head reads the state of a k-mer, and that of its reverse complement."""
    task = LabelTask("bases", ("no", "yes", "maybe"), "cross_entropy")
    finetuned = finetuned_on_stock(of_3mers, task, 3)
    stock = StockModel.load(of_3mers, 3)

    def logits_along(text: str) -> np.ndarray:
        pad_bp = -len(text) % 3
        states = stock.states(text + "A" * pad_bp)
        turned = stock.states("T" * pad_bp + reverse_complement(text))[::-1]
        vectors = torch.from_numpy(np.concatenate([states, turned], axis=1))
        return finetuned.network.head(vectors).detach().numpy().reshape(-1, 3)[: len(text)]

    text = CONTIG[:length_bp]
    (forward,) = finetuned.logits([text], "forward")
    assert forward == pytest.approx(logits_along(text), abs=CLOSE)
    (both,) = finetuned.logits([text], "both")
    expected = (logits_along(text) + logits_along(reverse_complement(text))[::-1]) / 2
    assert both == pytest.approx(expected, abs=CLOSE)


def test_pairs_of_alleles_with_other_kmers(of_3mers, reference):
    finetuned = finetuned_on_stock(
        of_3mers, LabelTask("numbers", ("a",), "mse"), 3, variant_input="ref_and_difference"
    )
    stock = StockModel.load(of_3mers, 3)

    def mean_state(window: str) -> np.ndarray:
        states = stock.states(window + "A" * (-len(window) % 3))
        return np.mean([states[n // 3] for n in range(len(window))], axis=0)

    for variant in (insertion(), inner_deletion()):
        pair = pair_of(reference, variant, 48, 3)
        after = variant.position + len(variant.ref)
        following = CONTIG[after + 2 : after + 17]
        # The k-mers of both windows begin at the same reference bases after the variant.
        assert len({window.index(following) % 3 for window in pair}) == 1
        ref, alt = map(mean_state, pair)
        vector = torch.from_numpy(np.concatenate([ref, alt - ref]))[None].float()
        (logits,) = finetuned.logits([pair], "forward")
        expected = finetuned.network.head(vector).detach().numpy()[0]
        assert logits == pytest.approx(expected, abs=CLOSE)


class TestRefusals:
    def test_generation(self, tmp_path):
        folder = save_stock_model(tmp_path / "m", "llama", 1, begin=True)
        with pytest.raises(UserError, match="need a Carbon model of 6-mers"):
            carbon.load(folder, device="cpu").generate(["ACGT"], 6)
        assert main(["generate", "--model", str(folder), "--prompt", "ACGT", "--length", "6"]) == 2

    def test_documents_and_commands_agree_on_what_is_refused(self):
        root = Path(carbon.__file__).parents[1]
        text = " ".join((root / "docs/models.md").read_text().replace("`", "").split())
        assert NEEDS_SIX_MERS in text
        commands = {
            path.stem.removesuffix("_token")
            for path in (root / "carbon" / "commands").glob("*.py")
            if re.search(r"carbon_only=True|carbon_folder\(", path.read_text())
        } - {"shared"}
        assert len(commands) >= 6 and commands <= set(NEEDS_SIX_MERS.split(", "))

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_a_network_that_scales_its_logits(self, tmp_path, dtype):
        """Granite divides its logits, which the product with the head alone does not.

        Small logits change no log-probability by more than bfloat16 may.
        """
        torch.manual_seed(0)
        config = GraniteConfig(
            vocab_size=6, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            initializer_range=0.02, logits_scaling=8.0,
        )  # fmt: skip
        folder = save_network(tmp_path / "m", GraniteForCausalLM(config))
        with pytest.raises(ModelError, match="GraniteForCausalLM has logits that differ by 7 of"):
            carbon.load(folder, device="cpu", dtype=dtype)
        plain = save_stock_model(tmp_path / "plain", "qwen3", 1, begin=True)
        carbon.load(plain, device="cpu", dtype=dtype)

    def test_a_network_without_the_attention(self, tmp_path):
        config = GPTNeoConfig(
            vocab_size=6, hidden_size=16, num_layers=1, num_heads=2, max_position_embeddings=64,
            attention_types=[[["global"], 1]],
        )  # fmt: skip
        folder = save_network(tmp_path / "m", GPTNeoForCausalLM(config))
        with pytest.raises(ModelError, match=r"/m: attention 'sdpa' cannot be used: GPTNeo"):
            carbon.load(folder, device="cpu")
        assert isinstance(load_any(str(folder), "m", yarn=None, device="cpu"), HuggingFaceModel)

    @pytest.mark.parametrize(
        ("values", "problem"),
        [
            ({"architectures": None}, r"config.json has no architectures; .*LlamaForCausalLM"),
            ({"model_type": ["x"]}, r"transformers has no model_type \['x'\]"),
            ({"vocab_size": 5}, r"its tokenizer has id 5, the network 5 rows"),
        ],
    )
    def test_a_config_that_fits_no_network(self, tmp_path, values, problem):
        folder = save_stock_model(tmp_path / "m", "llama", 1, begin=True)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | values))
        with pytest.raises(ModelError, match=problem):
            model_folder(folder)

    @pytest.mark.parametrize(
        ("values", "problem"),
        [
            (
                {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
                r"the weights have '.*k_norm.weight', and the network of config.json does not",
            ),
            ({"num_attention_heads": 3}, r"o_proj.weight is \(16, 16\), .* implies \(16, 24\)"),
            ({"num_hidden_layers": 3}, r"the weights lack 11 tensors such as model.layers.2"),
        ],
    )
    def test_weights_of_another_network(self, tmp_path, values, problem):
        """transformers would leave out extra tensors, and draw missing ones at random."""
        folder = save_stock_model(tmp_path / "m", "qwen3", 1, begin=True)
        config = json.loads((folder / "config.json").read_text())
        del config["layer_types"]
        (folder / "config.json").write_text(json.dumps(config | values))
        with pytest.raises(ModelError, match=problem):
            carbon.load(folder, device="cpu")

    def test_buffers_that_older_releases_of_transformers_wrote(self, tmp_path):
        """They are left out; the model loads."""
        folder = save_stock_model(tmp_path / "m", "llama", 3, begin=True)
        path = folder / "model.safetensors"
        old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
        save_file(load_file(path) | old, path, metadata={"format": "pt"})
        assert carbon.load(folder, device="cpu").score(["ACGTTA" * 3])

    def test_a_gpt_2_is_read_but_has_no_single_layers(self, tmp_path, capsys):
        """Older files have the causal mask among the weights."""
        tokenizer = kmer_tokenizer(1, begin=True)
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=2, n_head=2,
            initializer_range=0.4,
        )  # fmt: skip
        GPT2LMHeadModel(config).save_pretrained(tmp_path / "m")
        tokenizer.save_pretrained(tmp_path / "m")
        weights = load_file(tmp_path / "m" / "model.safetensors")
        weights["transformer.h.0.attn.bias"] = torch.ones(1, 1, 64, 64, dtype=torch.bool).tril()
        save_file(weights, tmp_path / "m" / "model.safetensors", {"format": "pt"})
        model, stock = carbon.load(tmp_path / "m", device="cpu"), StockModel.load(tmp_path / "m", 1)
        (score,) = model.score([CONTIG[:40]])
        assert score.bases == pytest.approx(stock.base_log_p(CONTIG[:40]), abs=CLOSE)
        with pytest.raises(UserError, match="layer: GPT2Model gives no states of single layers"):
            model.embed(["ACGT"], layer=1)
        capsys.readouterr()
        assert main(["info", str(tmp_path / "m")]) == 0
        assert json.loads(capsys.readouterr().out)["rope"] is None
