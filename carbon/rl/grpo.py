"""trl's GRPO trainer (arXiv 2402.03300), adapted to DNA.

A bias on the head gives probability only to 6-mers during training, as our engine does during
generation; prompts consist of our tokens; LoRA adapters are on every linear layer.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig, PrinterCallback

from carbon.finetune.config import LINEAR
from carbon.model import LoadedModel, model_folder
from carbon.rl.config import RLConfig, RLJob, num_processes, rank
from carbon.rl.rewards import Rewards
from carbon.rl.rollouts import OwnRollouts, WorkerRollouts, off_policy
from carbon.tokenizer import NATIVE, K, Vocabulary
from carbon.tokenizer.tokenizers import HybridDNATokenizer, NativeDNATokenizer

# Added to the logits of rows that are not 6-mers: gives probability 0 in every dtype, and a
# finite product with 0 in the entropy, unlike infinity.
_EXCLUDED = -1e9


@contextmanager
def kmers_only(loaded: LoadedModel) -> Iterator[None]:
    """Add a bias to the head that gives probability only to 6-mers; remove it at the end."""
    head: Any = loaded.network.lm_head
    bias = torch.full_like(head.weight[:, 0], _EXCLUDED)
    bias[loaded.six_mers.kmer_rows] = 0
    head.bias = nn.Parameter(bias, requires_grad=False)
    try:
        yield
    finally:
        head.bias = None


def make_trainer(
    job: RLJob,
    loaded: LoadedModel,
    tokenizer: Any,
    rewards: Rewards,
    rollouts: WorkerRollouts | None = None,
) -> Any:
    """Return trl's trainer with new adapters, for a model inside `kmers_only`."""
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    config, network = job.config, loaded.network
    _set_names(network, job.model, tokenizer)
    trainer_class: Any = off_policy(GRPOTrainer) if rollouts else GRPOTrainer
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*rollout_func")  # trl marks it as experimental
        trainer: Any = trainer_class(
            model=network,
            reward_funcs=rewards.reward_functions(),
            args=_arguments(job),
            train_dataset=Dataset.from_list([{"prompt": prompt_of(config)}] * config.steps),
            processing_class=tokenizer,
            peft_config=_adapters(job),
            rollout_func=rollouts or OwnRollouts(config, loaded.six_mers, rank()),
        )
    # Otherwise peft looks up the vocabulary of the starting model on the Hub at each checkpoint.
    trainer.model.save_pretrained = partial(
        trainer.model.save_pretrained, save_embedding_layers=False
    )
    trainer.create_model_card = lambda *_, **__: None  # an empty form at each checkpoint
    trainer.remove_callback(PrinterCallback)
    return trainer


def prompt_of(config: RLConfig) -> str:
    """Return the prompt of all samples: tags, `<dna>` and bases."""
    return "".join(config.tags) + "<dna>" + config.prompt.upper()


def tokenizer_of(model: str, vocabulary: Vocabulary) -> Any:
    """Return our tokenizer, with the end token that trl requires; the head never predicts it.

    Raises:
        ModelError: the folder of a hybrid lacks its byte pairs.
    """
    tokenizer_class = NativeDNATokenizer if vocabulary.name == NATIVE.name else HybridDNATokenizer
    tokenizer: Any = tokenizer_class.from_pretrained(model_folder(model).path, padding_side="left")
    tokenizer.eos_token = "</dna>"
    return tokenizer


def with_adapters(job: RLJob, loaded: LoadedModel, tokenizer: Any) -> Any:
    """Return the network with new adapters, in evaluation mode, for a worker that draws."""
    from peft import get_peft_model

    _set_names(loaded.network, job.model, tokenizer)
    network = get_peft_model(loaded.network, _adapters(job)).eval()
    return network.to("cuda" if torch.cuda.is_available() and not job.on_cpu else "cpu")


def _set_names(network: Any, model: str, tokenizer: Any) -> None:
    """Set the base model's name for the adapter, and the special tokens of trl in memory only.

    transformers would set the tokens with a warning.
    """
    network.name_or_path = model
    special_tokens = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    network.config.update(special_tokens)
    network.generation_config = GenerationConfig(**special_tokens)  # type: ignore[no-untyped-call]


def _adapters(job: RLJob) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=job.config.rank,
        lora_alpha=2 * job.config.rank,
        lora_dropout=0.0,
        target_modules=list(LINEAR),
        task_type="CAUSAL_LM",
        base_model_name_or_path=job.model,
    )


def _arguments(job: RLJob) -> Any:
    from trl.trainer.grpo_config import GRPOConfig

    config = job.config
    has_gpu = torch.cuda.is_available() and not job.on_cpu
    arguments = GRPOConfig(
        output_dir=str(job.output),
        use_cpu=not has_gpu,
        bf16=has_gpu,
        seed=config.seed,
        data_seed=config.seed,
        max_steps=config.steps,
        per_device_train_batch_size=config.group // num_processes(),
        ddp_find_unused_parameters=False,
        gradient_accumulation_steps=1,
        num_generations=config.group,
        max_completion_length=config.length_bp // K,
        beta=config.kl,
        learning_rate=config.rate,
        multi_objective_aggregation="normalize_then_sum",  # units differ between functions
        gradient_checkpointing=False,
        save_steps=config.save_steps,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    _ = arguments.device  # counts all GPUs of the machine; a process uses one
    arguments._n_gpu = min(arguments._n_gpu, 1)
    return arguments


def has_adapter(name: str) -> bool:
    """Return whether training changes the weight of this name."""
    return name.removesuffix(".weight").rpartition(".")[2] in LINEAR
