"""What is imported once; none of it is ours, which the folder of the caller may choose."""

OF_TRAINING = [
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.utils.flop_counter",
    "transformers.models.llama.modeling_llama",
    "pyarrow.parquet",
    "fsspec.implementations.local",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
]
OF_COMMANDS = [
    *OF_TRAINING,
    "torch.distributed.run",
    "transformers.generation",
    "pysam",
    "rich.progress",
    "peft",
    "sklearn.metrics",
    "trl.trainer.grpo_trainer",
]
