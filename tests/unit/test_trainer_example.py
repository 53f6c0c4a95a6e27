"""The example of docs/objectives.md, as it stands there."""

import re
from pathlib import Path

import datasets
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

from carbon.losses import log_likelihoods, nucleotide_loss
from carbon.losses.objectives import FNS
from carbon.tokenizer import NATIVE, encode, known_bases
from carbon.tokenizer.tokenizers import NativeDNATokenizer

PAGE = Path(__file__).parents[2] / "docs" / "objectives.md"
TEXTS = ["ACGTAC" * 9, "ACGTNACGTACGT", "TTTTTT" * 3 + "AC", "GATTACA" * 5]


def trainer_of_the_page(output, **arguments):
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1]
    body = code.split("class FNSTrainer")[1].strip().splitlines()[1:]
    assert len(body) - 1 <= 10  # lines of the method
    names = {}
    exec(code, names)
    tokenizer = NativeDNATokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=NATIVE.size, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
    )  # fmt: skip
    rows = datasets.Dataset.from_dict({"text": [f"<dna>{text}" for text in TEXTS]}).map(
        lambda row: tokenizer(row["text"], return_labels=True), remove_columns=["text"]
    )
    return names["FNSTrainer"](
        model=LlamaForCausalLM(config),
        args=TrainingArguments(
            output, per_device_train_batch_size=1, gradient_accumulation_steps=4,
            learning_rate=0.05, logging_steps=1, save_strategy="no", report_to=[],
            remove_unused_columns=False, use_cpu=True, disable_tqdm=True, max_grad_norm=1e9,
            **arguments,
        ),
        train_dataset=rows,
        processing_class=tokenizer,
    )  # fmt: skip


def losses_of(trainer):
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_fns_in_a_stock_trainer(tmp_path):
    trainer = trainer_of_the_page(tmp_path, max_steps=30)
    model = trainer.model
    expected = mean_loss(model)
    # The first logged loss is the mean over tokens of all four accumulated texts.
    assert abs(losses_of(trainer)[0] - expected) < 2e-4
    assert mean_loss(model) < 0.6 * expected
    evaluated = trainer.evaluate(trainer.train_dataset.select([0]))["eval_loss"]
    assert abs(evaluated - mean_loss(model, TEXTS[:1])) < 2e-4


@torch.no_grad()
def mean_loss(model, texts=TEXTS) -> float:
    """One text at a time, logits of the whole vocabulary: the slow way."""
    total = count = 0
    for text in texts:
        encoding = encode(text)
        logits = model(torch.from_numpy(encoding.ids)[None]).logits[0, :-1]
        likelihoods = log_likelihoods(
            logits, torch.from_numpy(encoding.kmers[1:]), first_kmer=128, support="vocabulary"
        )
        sums = nucleotide_loss(likelihoods, torch.from_numpy(known_bases(encoding.known[1:])), FNS)
        total, count = total + float(sums.loss), count + int(sums.num_tokens)
    return total / count
