"""trl's trainer of GRPO (arXiv 2402.03300), taken as it is and made one of DNA.

The head gets a bias that leaves probability to 6-mers alone in what is learned from, as our engine
does in what is drawn; the prompt is of our tokens; adapters are LoRA on every product of a layer.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PrinterCallback

from carbon.finetune.train import LINEAR
from carbon.model import LoadedModel, model_folder
from carbon.rl.config import TuneJob, TuneTask
from carbon.rl.rewards import Rewards
from carbon.rl.rollouts import OwnRollouts, Rollouts, corrected
from carbon.tokenizer import NATIVE, K, Vocabulary
from carbon.tokenizer.tokenizers import HybridDNATokenizer, NativeDNATokenizer

# Added to the logit of a row that is no 6-mer: its probability is 0 in every dtype, and 0 times
# this is 0 where an entropy is summed, as it is not for an infinity.
_NEVER = -1e9


def rank() -> int:
    """Return the number of this process among those that torchrun has started."""
    return int(os.environ.get("RANK", "0"))


def num_processes() -> int:
    """Return how many processes torchrun has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextmanager
def six_mers_alone(loaded: LoadedModel) -> Iterator[None]:
    """Leave probability to the rows of 6-mers alone, by a bias of the head that is no weight.

    trl's head adds it. It is taken away in the end.
    """
    head: Any = loaded.network.lm_head
    bias = torch.full_like(head.weight[:, 0], _NEVER)
    bias[loaded.vocabulary.kmer_rows] = 0
    head.bias = nn.Parameter(bias, requires_grad=False)
    try:
        yield
    finally:
        head.bias = None


def trainer_of(
    job: TuneJob,
    loaded: LoadedModel,
    tokenizer: Any,
    rewards: Rewards,
    rollouts: Rollouts | None = None,
) -> Any:
    """Return trl's trainer of a model whose head is held to 6-mers, with adapters that are new."""
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    task, network = job.task, loaded.network
    _name(network, job.model, tokenizer)
    kind: Any = corrected(GRPOTrainer) if rollouts else GRPOTrainer
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*rollout_func")  # trl's, that it may change
        trainer: Any = kind(
            model=network,
            reward_funcs=rewards.functions(),
            args=_arguments(job),
            train_dataset=Dataset.from_list([{"prompt": prompt_of(task)}] * task.steps),
            processing_class=tokenizer,
            peft_config=_adapters(job),
            rollout_func=rollouts or OwnRollouts(task, loaded.vocabulary, rank()),
        )
    # Without the word, peft looks for the start's vocabulary on the Hub at each checkpoint.
    trainer.model.save_pretrained = partial(
        trainer.model.save_pretrained, save_embedding_layers=False
    )
    trainer.create_model_card = lambda *_, **__: None  # one at each checkpoint, and none filled in
    trainer.remove_callback(PrinterCallback)
    return trainer


def prompt_of(task: TuneTask) -> str:
    """Return the text of tags, `<dna>` and bases that every draw begins with."""
    return "".join(task.tags) + "<dna>" + task.prompt.upper()


def tokenizer_of(model: str, vocabulary: Vocabulary) -> Any:
    """Return our tokenizer with an end that trl wants and the head never gives.

    Raises:
        ModelError: the folder of a hybrid lacks its byte pairs.
    """
    kind = NativeDNATokenizer if vocabulary.name == NATIVE.name else HybridDNATokenizer
    tokenizer: Any = kind.from_pretrained(model_folder(model).path, padding_side="left")
    tokenizer.eos_token = "</dna>"
    return tokenizer


def finetuned(job: TuneJob, loaded: LoadedModel, tokenizer: Any) -> Any:
    """Return the network with adapters that are new, ready to draw, for who does not train."""
    from peft import get_peft_model

    _name(loaded.network, job.model, tokenizer)
    network = get_peft_model(loaded.network, _adapters(job)).eval()
    return network.to("cuda" if torch.cuda.is_available() and not job.on_cpu else "cpu")


def _name(network: Any, model: str, tokenizer: Any) -> None:
    """Name the start as the adapter does, and the ends as transformers would, with a warning.

    Of the ends nothing is written.
    """
    network.name_or_path = model
    ends = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    network.config.update(ends)
    network.generation_config = GenerationConfig(**ends)  # type: ignore[no-untyped-call]


def _adapters(job: TuneJob) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=job.task.rank,
        lora_alpha=2 * job.task.rank,
        lora_dropout=0.0,
        target_modules=list(LINEAR),
        task_type="CAUSAL_LM",
        base_model_name_or_path=job.model,
    )


def _arguments(job: TuneJob) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    task = job.task
    has_gpu = torch.cuda.is_available() and not job.on_cpu
    arguments = GRPOConfig(
        output_dir=str(job.output),
        use_cpu=not has_gpu,
        bf16=has_gpu,
        seed=task.seed,
        data_seed=task.seed,
        max_steps=task.steps,
        per_device_train_batch_size=task.group // num_processes(),
        ddp_find_unused_parameters=False,
        gradient_accumulation_steps=1,
        num_generations=task.group,
        max_completion_length=task.length_bp // K,
        beta=task.kl,
        learning_rate=task.rate,
        multi_objective_aggregation="normalize_then_sum",  # oracles have units of their own
        gradient_checkpointing=False,
        save_steps=task.probe_steps,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    _ = arguments.device  # counts the GPUs; of a process it is one, whatever the machine has
    arguments._n_gpu = min(arguments._n_gpu, 1)
    return arguments


def has_adapter(name: str) -> bool:
    """Return whether a weight of this name is one that tuning changes."""
    return name.removesuffix(".weight").rpartition(".")[2] in LINEAR
