"""A small corpus and a short run over it, for tests of the trainer."""

from pathlib import Path

from carbon.config import load_config
from data_pipeline.__main__ import main as data_pipeline
from train.config import TrainConfig

RECIPE = Path(__file__).parents[2] / "train" / "recipes" / "tiny.toml"
BATCH_TOKENS = 8 * 64
CONTEXTS = (64, 128)  # of the two stages


def make_corpus(folder: Path) -> Path:
    words = ["--output", f"{folder}/genome", "--genome-bp", "60000"]
    assert data_pipeline(["simulate", *words]) == 0
    settings = [
        f"assemblies.0.genome={folder}/genome/genome.fa",
        f"assemblies.0.annotation={folder}/genome/genes.gff3",
        "assemblies.0.species_type=inv",
        f"output={folder}/corpus",
    ]
    assert data_pipeline(["build", *[w for s in settings for w in ("--set", s)]]) == 0
    return folder / "corpus"


def make_config(corpus: Path, output: Path, *more: str) -> TrainConfig:
    """Two steps of CE over 8 rows of 64 tokens, and two of FNS over 4 of 128 with another theta."""
    return load_config(
        TrainConfig,
        RECIPE,
        [
            f"data.corpus={corpus}", f"output={output}", "data.microbatch_tokens=192",
            *(f"stages.{i}.context_tokens={n}" for i, n in enumerate(CONTEXTS)),
            *(f"stages.{i}.batch_rows={BATCH_TOKENS // n}" for i, n in enumerate(CONTEXTS)),
            "stages.1.rope_theta=5e6", "checkpoint.every_steps=2",
            "checkpoint.keep=5", "stages.0.warmup_steps=0",
            f"stages.0.tokens={2 * BATCH_TOKENS}", f"stages.1.tokens={2 * BATCH_TOKENS}", *more,
        ],
    )  # fmt: skip


def spoil(trainer, at_step: int) -> None:
    """Let a gradient of this rank be no number in the step behind so many."""
    run = trainer.pipeline._run_loop

    def spoiled(batch):
        run(batch)
        if trainer.state.step == at_step:
            next(iter(trainer.parts[0].parameters())).grad.mul_(float("nan"))

    trainer.pipeline._run_loop = spoiled
