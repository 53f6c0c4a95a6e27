"""Examples and guide of each command, shown at the end of its help.

`carbon models --copy yeast` writes the folder `yeast_VIII` that the examples read. Other files come
from examples that are earlier in the table, or are yours.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Guide(NamedTuple):
    """The guide that describes a command, and two command lines."""

    page: str
    examples: tuple[str, str]


_REFERENCE = "--model yeast --reference yeast_VIII/VIII.fa.gz"
_GENES = f"{_REFERENCE} --annotation yeast_VIII/VIII.gtf.gz"

GUIDES: Mapping[str, Guide] = {
    "models": Guide("docs/models.md", ("carbon models", "carbon models --copy yeast")),
    "convert": Guide(
        "docs/serving.md",
        (
            "carbon convert yeast my_model --dtype bfloat16",
            "carbon convert yeast yeast.gguf --to gguf --dtype float32",
        ),
    ),
    "info": Guide("docs/models.md", ("carbon info yeast", "carbon info ./my_model")),
    "doctor": Guide("docs/install.md", ("carbon doctor", "carbon doctor --json > doctor.json")),
    "completion": Guide(
        "docs/install.md",
        (
            "carbon completion bash > ~/.local/share/bash-completion/completions/carbon",
            "carbon completion zsh > _carbon",
        ),
    ),
    "tokenize": Guide(
        "docs/tokenizers.md",
        (
            "carbon tokenize yeast_VIII/VIII.fa.gz > VIII.tok",
            "carbon tokenize --decode VIII.tok > again.fa",
        ),
    ),
    "generate": Guide(
        "docs/generation.md",
        (
            "carbon generate --model yeast --prompt ATGGCCAAG --length 300 --output new.fa",
            "carbon generate --model yeast --prompt ATGGCC --right GGATCAT --length 30",
        ),
    ),
    "next": Guide(
        "docs/generation.md",
        (
            "carbon next --model yeast --prompt ATGGCCAAG",
            "carbon next --model yeast --prompt ATGGCCAAG --fixed GT.... --output next.tsv",
        ),
    ),
    "score": Guide(
        "docs/sequences.md",
        (
            "carbon score --model yeast new.fa",
            "carbon score --model yeast new.fa --per-base --output bases.parquet",
        ),
    ),
    "embed": Guide(
        "docs/sequences.md",
        (
            "carbon embed --model yeast new.fa --output vectors.parquet",
            f"carbon embed {_REFERENCE} --vcf yeast_VIII/ENO2.vcf --output alleles.parquet",
        ),
    ),
    "variants": Guide(
        "docs/variants.md",
        (
            f"carbon variants {_GENES} --vcf yeast_VIII/ENO2.vcf --output scored.vcf",
            f"carbon variants {_GENES} --variant VIII-451984-CA-C --output few.tsv",
        ),
    ),
    "background": Guide(
        "docs/percentiles.md",
        (
            f"carbon background {_GENES} --output background.json",
            f"carbon background {_GENES} --neighbour-bp 5 --output calibration.json",
        ),
    ),
    "compare": Guide(
        "docs/percentiles.md",
        (
            "carbon compare small.vcf.gz large.parquet --labels small,large --output both.tsv",
            "carbon compare centered.tsv tiled.tsv --plot both.png",
        ),
    ),
    "join": Guide(
        "docs/scale.md",
        (
            "carbon join --output all.tsv 0.tsv 1.tsv",
            "carbon join --output all.json 0.json 1.json",
        ),
    ),
    "scan": Guide(
        "docs/scanning.md",
        (
            f"carbon scan {_GENES} --gene ENO2 --output ENO2.tsv",
            f"carbon scan {_REFERENCE} --region VIII:451000-452000 --output region.parquet",
        ),
    ),
    "dependency": Guide(
        "docs/dependency.md",
        (
            f"carbon dependency {_REFERENCE} --region VIII:451000-451060 --output map.npz",
            f"carbon dependency {_REFERENCE} --region VIII:451000-451060 --output map.parquet "
            "--plot map.png",
        ),
    ),
    "design": Guide(
        "docs/design.md",
        (
            "carbon design --model yeast --function python:my_functions:cpg --length 60 "
            "--calls 40 --output designs.fa",
            "carbon design --model yeast --function python:my_functions:cpg --protein MSKGEEL "
            "--output designs.tsv",
        ),
    ),
    "rl": Guide(
        "docs/design.md",
        (
            "carbon rl --model yeast --function python:my_rewards:gc --length 120 --output gc_run",
            "torchrun --nproc-per-node 2 -m carbon rl --model yeast --length 120 "
            "--function python:my_rewards:gc --output gc_run",
        ),
    ),
    "finetune": Guide(
        "docs/finetuning.md",
        (
            "carbon finetune --config promoters.toml --dry-run",
            "carbon finetune --config promoters.toml --set method.name=probe",
        ),
    ),
    "predict": Guide(
        "docs/finetuning.md",
        (
            "carbon predict --model my_promoters new.fa --output new.tsv",
            "carbon predict --model my_promoters calls.vcf.gz --reference genome.fa "
            "--output calls.tsv",
        ),
    ),
    "serve": Guide(
        "docs/serving.md",
        ("carbon serve --model yeast", f"carbon serve {_REFERENCE} --port 8001"),
    ),
}
