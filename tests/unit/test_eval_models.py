"""The adapters: against stock networks read a token at a time, and against one another."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from carbon.errors import ModelError, UserError
from carbon.genome import Reference, Variant
from carbon.model import save_model
from eval.contract import Model, Options, Reading
from eval.cost import tokens_counted
from eval.hugging_face import HuggingFaceModel, load_hugging_face
from eval.models import CarbonModel, load_any
from eval.tasks import TASKS
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import KMERS, stock_distribution, stock_log_likelihood
from tests.helpers.stock_models import StockModel, save_stock_model
from tests.helpers.tasks import OTHER

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def carbon_model(model) -> CarbonModel:
    return CarbonModel(model, "ours")


def gpt2(num_rows: int, context_tokens: int = 64) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=num_rows, n_positions=context_tokens, n_embd=16, n_layer=2, n_head=2,
        initializer_range=0.5, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def wrapped(tokenizer: Tokenizer, **specials: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)


def by_character(**specials: str) -> PreTrainedTokenizerFast:
    vocabulary = {"<s>": 0, "<unk>": 1, "N": 2, "G": 3, "A": 4, "T": 5, "C": 6}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return wrapped(tokenizer, unk_token="<unk>", **specials)


def by_pairs() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=40, special_tokens=["<s>"], initial_alphabet=list("ACGTN"), show_progress=False
    )
    tokenizer.train_from_iterator([random_bases(2000, n) for n in range(5)], trainer)
    return wrapped(tokenizer, bos_token="<s>")


@pytest.fixture(scope="module", params=["character", "byte pairs"])
def toy(request) -> HuggingFaceModel:
    tokenizer = by_character(bos_token="<s>") if request.param == "character" else by_pairs()
    return HuggingFaceModel(gpt2(len(tokenizer)), tokenizer, request.param)


def dna_ids(tokenizer) -> dict[int, str]:
    return {i: t for t, i in tokenizer.get_vocab().items() if t and set(t) <= set("ACGT")}


def slow_distribution(model: HuggingFaceModel, ids: list[int]) -> dict[int, float]:
    """Read a whole row again and return p of every token that is DNA."""
    texts = dna_ids(model.tokenizer)
    with torch.inference_mode():
        logits = model.network(torch.tensor([ids])).logits[0, -1].double()
    mass = {i: float(logits[i].exp()) for i in texts}
    return {i: m / sum(mass.values()) for i, m in mass.items()}


def slow_log_likelihood(model: HuggingFaceModel, sequence: str) -> float:
    ids = model.tokenizer(sequence.upper(), add_special_tokens=False)["input_ids"]
    total = 0.0
    for at, token in enumerate(ids):
        p = slow_distribution(model, [0, *ids[:at]])
        total += np.log(p[token]) if token in p else 0.0
    return total


def test_likelihoods_of_toys_are_those_of_their_own_tokens(toy):
    sequences = [random_bases(40, 1), "acgtNACG", random_bases(17, 2), "", "A"]
    expected = [slow_log_likelihood(toy, sequence) for sequence in sequences]
    assert toy.log_likelihoods(sequences) == pytest.approx(expected, abs=1e-4)
    pairs = [(sequences[0], sequences[2])]
    assert toy.differences(pairs) == pytest.approx([expected[0] - expected[2]], abs=1e-4)


def test_next_base_of_toys_is_the_mass_of_first_letters(toy):
    prompts = [random_bases(30, 3), "ACG", ""]
    for prompt, row in zip(prompts, toy.next_base(prompts), strict=True):
        ids = toy.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        p = slow_distribution(toy, [0, *ids])
        texts = dna_ids(toy.tokenizer)
        expected = [sum(p[i] for i in p if texts[i][0] == base) for base in "ACGT"]
        assert row == pytest.approx(expected, abs=1e-5) and row.sum() == pytest.approx(1)


@pytest.mark.parametrize("mode", ["token", "base"])
def test_toys_generate_greedily_by_bases(toy, mode):
    prompts = [random_bases(30, 4), random_bases(11, 5), random_bases(30, 6)]
    found = toy.generate(prompts, 20, mode)
    for prompt, text in zip(prompts, found, strict=True):
        ids = [0, *toy.tokenizer(prompt, add_special_tokens=False)["input_ids"]]
        texts, slow = dna_ids(toy.tokenizer), ""
        while len(slow) < 20:
            p = slow_distribution(toy, ids)
            best = max(p, key=lambda i: p[i]) if mode == "token" else slow_by_bases(p, texts)
            ids.append(best)
            slow += texts[best]
        assert text == slow[:20] and len(text) == 20


def slow_by_bases(p: dict[int, float], texts: dict[int, str]) -> int:
    prefix = ""
    while True:
        ends = {i: p[i] for i in p if texts[i] == prefix}
        longer = {
            base: sum(p[i] for i in p if texts[i].startswith(prefix + base)) for base in "ACGT"
        }
        if ends and max(ends.values()) > max(longer.values()):
            return max(ends, key=lambda i: ends[i])
        prefix += max(longer, key=lambda base: longer[base])


def test_a_toy_goes_past_its_context(toy):
    assert toy.context_tokens == 64
    sequence = random_bases(300, 7)
    (found,) = toy.log_likelihoods([sequence])
    ids = toy.tokenizer(sequence, add_special_tokens=False)["input_ids"]
    total = 0.0
    for at, token in enumerate(ids):
        # Windows of 63 tokens and the beginning, a new one each 31.
        start = 0 if at < 63 else (at - 63) // 31 * 31 + 31
        total += np.log(slow_distribution(toy, [0, *ids[start:at]])[token])
    assert found == pytest.approx(total, abs=1e-3)
    assert len(toy.generate([sequence], 200)[0]) == 200
    assert toy.next_base([sequence]).sum() == pytest.approx(1)


def test_context_in_bases(toy):
    mean_bp = 2000 / len(toy.tokenizer(random_bases(2000, 9))["input_ids"])
    margin = 1 if toy.name == "character" else 0.9
    assert toy.step_bp == 1
    assert toy.context_bp == pytest.approx(63 * margin * mean_bp, rel=0.05)


def test_without_a_beginning_the_first_token_counts_a_quarter_a_base():
    tokenizer = by_character()
    model = HuggingFaceModel(gpt2(len(tokenizer)), tokenizer, "c")
    ids = tokenizer("ACG", add_special_tokens=False)["input_ids"]
    expected = np.log(0.25)
    for at in (1, 2):
        expected += np.log(slow_distribution(model, ids[:at])[ids[at]])
    assert model.log_likelihoods(["ACG"]) == pytest.approx([expected], abs=1e-5)
    with pytest.raises(UserError, match="has no token to begin with"):
        model.next_base([""])


def test_bases_after_a_first_and_only_token_have_the_mass_of_tokens_that_begin_so():
    """A model of 2-mers without a first token, as one of `AC` reads `ACG`."""
    pairs = [a + b for a in "ACGT" for b in "ACGT"]
    tokenizer = Tokenizer(models.WordLevel({text: n for n, text in enumerate(pairs)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(".{2}"), "isolated")
    model = HuggingFaceModel(gpt2(len(pairs)), wrapped(tokenizer), "2-mers")
    after = slow_distribution(model, [pairs.index("AC")])
    mass = sum(after[pairs.index(text)] for text in ("GA", "GC", "GG", "GT"))
    expected = 2 * np.log(0.25) + np.log(mass)
    assert model.log_likelihoods(["ACG"]) == pytest.approx([expected], abs=1e-5)


def test_carbon_by_stock_transformers_is_carbon(model, carbon_model, tmp_path):
    """A native checkpoint through the other adapter: the same numbers, token by token."""
    save_model(model.model.network, tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m", bos_token="<dna>")
    stock = HuggingFaceModel(model.model.network, tokenizer, "stock")
    assert (stock.step_bp, stock.context_bp) == (6, carbon_model.context_bp)
    sequences = [random_bases(6 * n, n) for n in (1, 7, 30)]
    # What is left over of 6-mers, with N or alone, has the mass of those that begin so.
    read = [*sequences, random_bases(50, 1), "ACG", random_bases(36, 2) + "NC", ""]
    read += [random_bases(20, 3) + "N" + random_bases(21, 4), "ACNGTT" + random_bases(12, 5)]
    assert stock.log_likelihoods(read) == pytest.approx(
        carbon_model.log_likelihoods(read), abs=1e-4
    )
    assert stock.next_base(sequences) == pytest.approx(carbon_model.next_base(sequences), abs=1e-5)
    assert stock.generate(sequences, 40) == carbon_model.generate(sequences, 40)
    bases = random_bases(400, 8)
    with Reference(write_fasta(tmp_path / "r.fa", {"c": bases})) as reference:
        variants = [Variant("c", at, bases[at], OTHER[bases[at]]) for at in (6, 150, 388)] + [
            # Of whole 6-mers, as windows of text do not know where 6-mers begin.
            Variant("c", 12, bases[12:19], bases[12]),
            Variant("c", 393, bases[393:400], bases[393]),  # only its reverse strand differs
            Variant("c", 200, bases[200], "<DEL>"),
        ]
        for protocol in ("centered", "right_end", "tiled"):
            for strands in ("forward", "both"):
                reading = Reading(protocol, 96, strands)
                ours = carbon_model.deltas(reference, variants, reading)
                theirs = stock.deltas(reference, variants, reading)
                assert ours[-1] is theirs[-1] is None
                assert (ours[-2] is None) == (strands == "forward")
                assert [d is None for d in ours] == [d is None for d in theirs]
                measured = [(a, b) for a, b in zip(theirs, ours, strict=True) if b is not None]
                theirs, ours = zip(*measured, strict=True)
                assert theirs == pytest.approx(ours, abs=1e-4), (protocol, strands)


def test_carbons_likelihoods_and_next_base_against_a_stock_network(model, carbon_model):
    sequences = [random_bases(50, 1), random_bases(13, 2), "ACGTNACGTA"]
    network = model.model.network
    expected = [stock_log_likelihood(network, s, "chain") for s in sequences]
    assert carbon_model.log_likelihoods(sequences) == pytest.approx(expected, abs=1e-4)
    prompts = [*sequences[:2], "", random_bases(400, 3)]  # the last is longer than the context
    for prompt, row in zip(prompts, carbon_model.next_base(prompts), strict=True):
        whole, tail = prompt[: len(prompt) // 6 * 6][-282:], prompt[len(prompt) // 6 * 6 :]
        p = stock_distribution(network, whole)
        agree = np.array([kmer.startswith(tail) for kmer in KMERS])
        by_base = [
            p[agree & np.array([k[len(tail)] == base for k in KMERS])].sum() for base in "ACGT"
        ]
        assert row == pytest.approx(np.array(by_base) / p[agree].sum(), abs=1e-5)


def test_differences_share_what_both_begin_with(carbon_model):
    first = random_bases(240, 1)
    pairs = [
        (first, first[:200] + random_bases(40, 2)),
        (first, first),
        (first[:13], first[:11]),
        ("ACGT", "TGCA"),
    ]
    slow = Model.differences(carbon_model, pairs)
    assert carbon_model.differences(pairs) == pytest.approx(slow, abs=1e-4)
    long = [(first + first, first[1:] + first)]  # longer than the context: in windows
    assert carbon_model.differences(long) == pytest.approx(Model.differences(carbon_model, long))
    pairs = pairs[:1]
    with tokens_counted(carbon_model) as shared:
        carbon_model.differences(pairs)
    with tokens_counted(carbon_model) as whole:
        Model.differences(carbon_model, pairs)
    assert (shared.tokens, whole.tokens) == (32 + 2 * 32, 2 * 64)  # 41 tokens, in steps of 32


@pytest.mark.parametrize("prompt_bp", [0, 203])
def test_recall_reads_the_prompt_once(model, carbon_model, prompt_bp):
    prompt, endings = random_bases(prompt_bp, 4), [random_bases(24, 5), random_bases(24, 6)]
    with tokens_counted(carbon_model) as count:
        text, likelihoods = carbon_model.recall(prompt, 24, endings)
    assert text == model.generate([prompt], 24, temperature=0)[0]
    slow = Model.recall(carbon_model, prompt, 24, endings)
    assert likelihoods == pytest.approx(slow[1], abs=1e-4)
    once = prompt_bp // 6 + 1
    tail = prompt_bp % 6 > 0  # is read again with what follows
    assert count.tokens == once + (3 + tail) * (1 + len(endings))
    # Of a prompt that is too long the end is read.
    long = random_bases(500 - 203, 7) + random_bases(203, 4)
    fits = long[: 500 // 6 * 6][-(carbon_model.context_bp - 30) :] + long[500 // 6 * 6 :]
    assert carbon_model.recall(long, 24, endings)[0] == carbon_model.recall(fits, 24, endings)[0]


def test_what_is_loaded_as_what(model, tmp_path):
    save_model(model.model.network, tmp_path / "carbon")
    tokenizer = by_pairs()
    gpt2(len(tokenizer)).save_pretrained(tmp_path / "toy")
    tokenizer.save_pretrained(tmp_path / "toy")
    carbon = load_any(str(tmp_path / "carbon"), "a", yarn=None, device="cpu")
    toy = load_any(str(tmp_path / "toy"), "b", yarn=None, device="cpu", dtype="bfloat16")
    assert isinstance(carbon, CarbonModel) and isinstance(toy, HuggingFaceModel)
    assert (carbon.name, toy.name) == ("a", "b")
    assert toy.log_likelihoods(["ACGT"]) == pytest.approx(
        HuggingFaceModel(gpt2(len(tokenizer)), tokenizer, "c").log_likelihoods(["ACGT"]), abs=0.1
    )
    with pytest.raises(ModelError, match="no such model folder"):
        load_any(str(tmp_path / "absent"), "c", yarn=None)
    with pytest.raises(UserError, match="device 'abacus' cannot be used"):
        load_any(str(tmp_path / "toy"), "c", yarn=None, device="abacus")
    (tmp_path / "toy" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="toy: the model cannot be loaded"):
        load_any(str(tmp_path / "toy"), "c", yarn=None)


def check_words(ours: CarbonModel, stock: StockModel, bases: str) -> None:
    """Compare p(word) at places of the first and the second part of a longer sequence."""
    words = ["ACG", "TTA"]
    found = ours.word_probabilities(bases, words)
    part_bp = ours.context_bp - stock.k * -(-3 // stock.k)
    for place in (0, 1, 20, part_bp + 9):
        start = place % stock.k + place // part_bp * part_bp
        for word, p in zip(words, found[place], strict=True):
            log_p = stock.base_log_p(bases[start:place] + word)[-3:].sum()
            assert p == pytest.approx(np.exp(log_p), rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "k", "begin"), [("qwen3", 1, True), ("llama", 2, False), ("llama", 3, False)]
)
def test_a_stock_model_of_k_mers_runs_as_carbons_do(tmp_path, kind, k, begin):
    """Its numbers are those of the slow path, which reads whole windows by transformers."""
    folder = str(save_stock_model(tmp_path / "m", kind, k, begin=begin))
    ours = load_any(folder, "m", yarn=None, device="cpu")
    slow = load_hugging_face(folder, "m", dtype="float32", device="cpu")
    assert isinstance(ours, CarbonModel) and ours.context_bp == slow.context_bp
    sequences = [random_bases(k * n, n) for n in (4, 7, 12)]
    assert ours.log_likelihoods([*sequences, ""]) == pytest.approx(
        slow.log_likelihoods([*sequences, ""]), abs=1e-4
    )
    assert ours.next_base(sequences) == pytest.approx(slow.next_base(sequences), abs=1e-5)
    for mode in ("token", "base"):
        assert ours.generate(sequences, 20, mode) == slow.generate(sequences, 20, mode)
    pairs = [(sequences[1] + "A" * k, sequences[1] + "C" * k)]
    assert ours.differences(pairs) == pytest.approx(slow.differences(pairs), abs=1e-4)
    text, likelihoods = ours.recall(sequences[2], 2 * k, ["A" * k, "GC" * k])
    slow_text, expected = slow.recall(sequences[2], 2 * k, ["A" * k, "GC" * k])
    assert text == slow_text and likelihoods == pytest.approx(expected, abs=1e-4)
    bases = random_bases(300, 8)
    with Reference(write_fasta(tmp_path / "r.fa", {"c": bases})) as reference:
        variants = [Variant("c", at, bases[at], OTHER[bases[at]]) for at in (9, 150, 291)]
        for protocol in ("centered", "right_end"):
            reading = Reading(protocol, 24, "both")
            assert ours.deltas(reference, variants, reading) == pytest.approx(
                slow.deltas(reference, variants, reading), abs=1e-4
            )
    if k < 3:
        check_words(ours, StockModel.load(tmp_path / "m", k), bases)
    states, untrained = ours.states(sequences), ours.untrained(1)
    assert states is not None and set(states) == {"mean", "last"}
    assert type(untrained.carbon.model.network) is type(ours.carbon.model.network)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        # All bases would be unknown and count 0, and every comparison would be a tie.
        ("acgt", "x: the tokenizer does not cut DNA in capitals"),
        ("Acgt", "x: the tokenizer does not cut DNA in capitals"),
        (["hello"], "no tokens of A, C, G and T"),
    ],
)
def test_a_tokenizer_that_does_not_read_capitals_is_refused(tokens, message):
    vocabulary = {name: n for n, name in enumerate(["<s>", "<unk>", *tokens])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    with pytest.raises(ModelError, match=message):
        HuggingFaceModel(gpt2(6), wrapped(tokenizer, bos_token="<s>"), "x")


def test_a_task_of_variants_by_another_protocol(model, carbon_model, tmp_path):
    bases = random_bases(400, 8)
    fasta = write_fasta(tmp_path / "r.fa", {"c": bases})
    table = pa.Table.from_pylist([
        {"chrom": "c", "pos": at + 1, "ref": bases[at], "alt": OTHER[bases[at]], "label": n % 2,
         "ref_seq": bases, "var_seq": bases}
        for n, at in enumerate((30, 200, 390))
    ])  # fmt: skip
    task, options = TASKS["labelled_variants"], Options(reference=fasta, protocol="tiled")
    examples = task.examples(table, options)
    results = task.run(carbon_model, examples)
    variants = [example.data["variant"] for example in examples]
    with Reference(fasta) as reference:
        tiled = model.score_variants(reference, variants, protocol="tiled", strands="both")
        assert [result["score"] for result in results] == [-score.delta for score in tiled]
    with pytest.raises(UserError, match="hold windows for centered"):
        TASKS["traitgym_mendelian"].examples(table, options)
