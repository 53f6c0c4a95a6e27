"""Stock models of k-mers by Carbon's runner, against transformers alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

import carbon
from carbon.cli import main
from carbon.errors import ModelError, UserError
from carbon.genome import Interval, Reference, Variant, reverse_complement
from carbon.inference.scan import join_chunks
from carbon.model.folder import is_stock, model_folder
from carbon.tokenizer import NATIVE
from carbon.tokenizer.read import read_kmer_vocabulary
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.stock_models import StockModel, kmer_tokenizer, save_stock_model

torch.set_num_threads(1)

CLOSE = 1e-4
CASES = [
    ("qwen3", 1, True), ("qwen3", 1, False), ("llama", 3, True), ("qwen3", 3, False),
    ("llama", 6, True), ("qwen3", 6, False),
]  # fmt: skip
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
    assert tokens.ids[4] == stock.tokenizer.unk_token_id and len(tokens.ids) == 48 // k


def test_a_sequence_longer_than_the_context_overlaps_by_half(model, stock):
    k, room = stock.k, model.context_bp
    text = (CONTIG * 3)[: room + 40]
    stride = room // 2 // k * k
    expected = np.concatenate(
        [stock.base_log_p(text[:room]), stock.base_log_p(text[stride:])[room - stride :]]
    )
    (score,) = model.score([text])
    assert score.bases == pytest.approx(expected, abs=CLOSE)


def centered_delta(stock: StockModel, variant: Variant, window_bp: int, strand: str) -> float:
    """Sum from the variant on, with ALT less REF; the window of ALT leaves out bases of its own."""
    before_bp = (window_bp if strand == "+" else window_bp - 1) // 2
    first, last = variant.position, variant.position + len(variant.ref)
    left, rest = CONTIG[:first], CONTIG[last:]
    if strand == "-":
        left, rest = reverse_complement(rest), reverse_complement(left)
    left, totals = left[-before_bp:], []
    for allele in (variant.ref, variant.alt):
        skipped = left[(len(allele) - len(variant.ref)) % stock.k :]
        text = (along(strand, allele) + rest)[: window_bp - before_bp]
        totals.append(stock.base_log_p(skipped + text)[len(skipped) :].sum())
    return totals[1] - totals[0]


VARIANTS = [
    Variant("c", 180, CONTIG[180], "ACGT"["ACGT".index(CONTIG[180]) - 1]),
    Variant("c", 200, CONTIG[200], "ACGT"["ACGT".index(CONTIG[200]) - 1]),
]


def insertion() -> Variant:
    """Return a normalised insertion: neither base before it equals its last one."""
    at = next(n for n in range(190, 300) if CONTIG[n] != "G" and CONTIG[n + 1] != "T")
    return Variant("c", at, CONTIG[at], CONTIG[at] + "TG")


@pytest.mark.parametrize("strand", ["forward", "reverse"])
def test_deltas_of_centered(model, stock, reference, strand):
    window_bp = min(60, model.context_bp)
    variants = [*VARIANTS, insertion()]
    scores = list(model.score_variants(reference, variants, window_bp=window_bp, strands=strand))
    sign = "+" if strand == "forward" else "-"
    for variant, score in zip(variants, scores, strict=True):
        expected = centered_delta(stock, variant, window_bp, sign)
        assert score.delta == pytest.approx(expected, abs=CLOSE)


def tiled_text(stock: StockModel, first: int, allele: str, strand: str, window_bp: int) -> tuple:
    """Return the bases of the tile before a position of a strand, and the allele with 10 bases."""
    bases = along(strand, CONTIG)
    context_bp = window_bp // 2 + -(window_bp // 2) % stock.k
    step_bp = (window_bp - context_bp - 10) // stock.k * stock.k
    tile = max(0, (first - context_bp) // step_bp)
    return bases[tile * step_bp : first], along(strand, allele) + bases[first + 1 : first + 11]


def tiled_delta(stock: StockModel, variant: Variant, window_bp: int, strand: str) -> float:
    first = variant.position if strand == "+" else len(CONTIG) - 1 - variant.position
    totals = []
    for allele in (variant.ref, variant.alt):
        left, text = tiled_text(stock, first, allele, strand, window_bp)
        totals.append(stock.base_log_p(left + text)[len(left) :].sum())
    return totals[1] - totals[0]


def test_deltas_of_tiled(model, stock, reference):
    scores = model.score_variants(
        reference, VARIANTS, protocol="tiled", window_bp=66, downstream_bp=10
    )
    for variant, score in zip(VARIANTS, scores, strict=True):
        expected = [tiled_delta(stock, variant, 66, strand) for strand in "+-"]
        assert [score.forward, score.reverse] == pytest.approx(expected, abs=CLOSE)


def test_right_end_is_the_next_base(model, stock, reference):
    (variant, _) = VARIANTS
    (score,) = model.score_variants(
        reference, [variant], protocol="right_end", window_bp=48, strands="forward"
    )
    left = CONTIG[variant.position - 48 : variant.position]
    row = stock.conditionals(left + variant.ref)[-1]
    expected = row["ACGT".index(variant.alt)] - row["ACGT".index(variant.ref)]
    assert score.delta == pytest.approx(expected, abs=CLOSE)


def test_scan_from_the_left(model, stock, reference):
    chunk = join_chunks(model.scan(reference, Interval("c", 0, 50)))
    expected = stock.conditionals(CONTIG[:50])
    assert chunk.log_probabilities == pytest.approx(expected, abs=CLOSE)


def test_scan_of_both_sides(model, stock, reference):
    options = {"window_bp": 66, "downstream_bp": 10, "strands": "forward"}
    chunk = join_chunks(model.scan(reference, Interval("c", 100, 103), sides="both", **options))
    for row, first in zip(chunk.log_probabilities, range(100, 103), strict=True):
        totals = []
        for base in "ACGT":
            left, text = tiled_text(stock, first, base, "+", 66)
            totals.append(stock.base_log_p(left + text)[len(left) :].sum())
        expected = torch.tensor(totals).log_softmax(dim=0).numpy()
        assert row == pytest.approx(expected, abs=CLOSE)


def test_embeddings(model, stock):
    text = CONTIG[:60]
    states = stock.states(text)
    (mean,), (last,) = (list(model.embed([text], pool=pool)) for pool in ("mean", "last"))
    assert mean == pytest.approx(states.mean(axis=0), abs=CLOSE)
    assert last == pytest.approx(states[-1], abs=CLOSE)
    with torch.inference_mode():
        ids = torch.tensor([stock.ids(text)])
        inner = stock.network(ids, output_hidden_states=True).hidden_states[1][0]
    (first_layer,) = model.embed([text], layer=1)
    expected = inner[int(stock.has_begin) :].mean(dim=0).numpy()
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


def test_offsets_and_windows_are_those_of_the_model(model, stock):
    k = stock.k
    assert model.variant_method(offsets="all").offsets == tuple(range(k))
    with pytest.raises(UserError, match="give 0, the only one" if k == 1 else f"0 to {k - 1}"):
        model.variant_method(offsets=(k,))
    context_bp = (96 - stock.has_begin) * k
    assert model.context_bp == model.variant_method().window_bp == context_bp
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
        assert (without.begin, without.other) == (None, None)
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


def test_a_background_of_one_model_is_refused_for_another(reference, tmp_path, capsys):
    folders = [
        save_stock_model(tmp_path / f"m{seed}", "qwen3", 1, begin=True, seed=seed)
        for seed in (0, 1)
    ]
    vcf = tmp_path / "v.vcf"
    vcf.write_text(
        "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
        f"c\t181\t.\t{VARIANTS[0].ref}\t{VARIANTS[0].alt}\t.\t.\t.\n"
    )
    method = ["--reference", str(reference.path), "--window", "40"]
    background = tmp_path / "background.json"
    words = ["background", "--model", str(folders[0]), *method, "--variants-per-kind", "2"]
    assert main([*words, "--output", str(background)]) == 0
    capsys.readouterr()
    scored = ["variants", "--vcf", str(vcf), *method, "--background", str(background)]
    assert main([*scored, "--model", str(folders[0]), "--output", str(tmp_path / "a.tsv")]) == 0
    capsys.readouterr()
    assert main([*scored, "--model", str(folders[1]), "--output", str(tmp_path / "b.tsv")]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith(f"error: {background}: ") and "other model weights" in line


def test_a_linear_probe(tmp_path, capsys):
    folder = save_stock_model(tmp_path / "m", "qwen3", 1, begin=True)
    rows = [f"{random_bases(30, n)},{'a' if n % 2 else 'b'}" for n in range(40)]
    (tmp_path / "d.csv").write_text("\n".join(["sequence,label", *rows]) + "\n")
    config = {
        "model": str(folder),
        "output": str(tmp_path / "out"),
        "data": {"path": str(tmp_path / "d.csv")},
        "task": {"type": "binary"},
        "method": {"name": "probe", "pool": "mean"},
        "baselines": [],
    }
    carbon.finetune(config)
    finetuned = carbon.load_finetuned(tmp_path / "out", device="cpu")
    text = CONTIG[:30]
    stock = StockModel.load(folder, 1)
    means = [stock.states(along(strand, text)).mean(axis=0) for strand in "+-"]
    assert finetuned.manifest.layer is None or finetuned.manifest.layer < 2
    if finetuned.manifest.layer is None:
        head = finetuned.network.head
        vector = torch.from_numpy(np.mean(means, axis=0))[None]
        expected = head(vector).detach().numpy()[0]
        (logits,) = finetuned.logits([text])
        assert logits == pytest.approx(expected, abs=1e-3)
    with pytest.raises(UserError, match=r"method.name = 'full': .* set method.name to 'probe'"):
        carbon.finetune(config | {"output": str(tmp_path / "o"), "method": {"name": "full"}})


def changed(folder: Path, tmp_path: Path, **values: object) -> Path:
    """Copy a folder, with other values in its config."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | values))
    return copy


class TestRefusals:
    def test_generation(self, tmp_path, capsys):
        folder = save_stock_model(tmp_path / "m", "llama", 1, begin=True)
        words = ["generate", "--model", str(folder), "--prompt", "ACGT", "--length", "6"]
        capsys.readouterr()
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {folder}: is a model of 1-mers")
        with pytest.raises(UserError, match="need a Carbon model of 6-mers"):
            carbon.load(folder, device="cpu").generate(["ACGT"], 6)

    def test_a_network_that_scales_its_logits(self, tmp_path):
        """Granite divides its logits, which the product with the head alone does not."""
        from transformers import GraniteConfig, GraniteForCausalLM

        tokenizer = kmer_tokenizer(1, begin=True)
        torch.manual_seed(0)
        config = GraniteConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            initializer_range=0.4, logits_scaling=8.0,
        )  # fmt: skip
        GraniteForCausalLM(config).save_pretrained(tmp_path / "m")
        tokenizer.save_pretrained(tmp_path / "m")
        with pytest.raises(ModelError, match=r"GraniteForCausalLM differs by .* nats"):
            carbon.load(tmp_path / "m", device="cpu")

    def test_a_tokenizer_of_more_rows_than_the_network(self, tmp_path):
        folder = save_stock_model(tmp_path / "m", "llama", 1, begin=True)
        with pytest.raises(ModelError, match=r"its tokenizer has id 5, the network 5 rows"):
            model_folder(changed(folder, tmp_path, vocab_size=5))

    def test_a_gpt_2_is_read_but_has_no_single_layers(self, tmp_path):
        tokenizer = kmer_tokenizer(1, begin=True)
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=2, n_head=2,
            initializer_range=0.4,
        )  # fmt: skip
        GPT2LMHeadModel(config).save_pretrained(tmp_path / "m")
        tokenizer.save_pretrained(tmp_path / "m")
        model, stock = carbon.load(tmp_path / "m", device="cpu"), StockModel.load(tmp_path / "m", 1)
        (score,) = model.score([CONTIG[:40]])
        assert score.bases == pytest.approx(stock.base_log_p(CONTIG[:40]), abs=CLOSE)
        with pytest.raises(UserError, match="layer: GPT2Model gives no states of single layers"):
            model.embed(["ACGT"], layer=1)

    def test_a_bert(self, tmp_path):
        config = BertConfig(vocab_size=6, hidden_size=16, num_hidden_layers=1, intermediate_size=16)
        config.num_attention_heads = 2
        BertForMaskedLM(config).save_pretrained(tmp_path / "m")
        kmer_tokenizer(1, begin=True).save_pretrained(tmp_path / "m")
        assert is_stock(tmp_path / "m")
        with pytest.raises(ModelError, match="BertForMaskedLM is no causal language model"):
            model_folder(tmp_path / "m")
