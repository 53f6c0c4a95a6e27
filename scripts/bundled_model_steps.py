"""The steps that make the bundled model; what stands in a command is told in quickstart_steps.

Another measure is another entry of `EVALUATIONS`: its command writes `results.json` into
`{work}/eval/NAME`, and the bundled model's results and card have it under that name.
"""

from quickstart_steps import Step

BUILD = Step(
    "build", "building the corpus, one chromosome held out", """
    -m carbon.cli corpus build --config data_pipeline/recipes/yeast_bundled_model.toml
    --set output="{corpus!j}" --set assemblies.0.genome="{genome!j}"
    --set assemblies.0.annotation="{annotation!j}" """,
)  # fmt: skip
MAKE = (
    BUILD,
    Step(
        "train", "training: an hour and a half on two cores, which may be interrupted", """
        -m train.launch --standalone --nproc-per-node {processes}
        -m train --config train/recipes/yeast.toml --set output="{run!j}"
        --set data.corpus="{corpus!j}" *changes --resume auto""",
    ),
)  # fmt: skip
MEASURE_FROM = (
    Step(
        "export", "exporting the newest checkpoint", """
        -m train export --config {run}/config.toml --set output="{run!j}"
        --set data.corpus="{corpus!j}" --output {work}/export""",
        replaces="export",
    ),
    Step(
        "convert", "rounding the weights to bfloat16", """
        -m carbon.cli convert {work}/export {work}/model --dtype bfloat16""",
        replaces="model",
    ),
    Step(
        "background", "scoring random variants of every kind, for percentiles", """
        -m carbon.cli background --model {work}/model --reference {genome}
        --annotation {annotation} --draw-from {contig} --variants-per-kind {variants_per_kind}
        --output {work}/model/background.json""",
    ),
)  # fmt: skip
EVALUATIONS = (
    Step(
        "heldout", "measuring on the held-out chromosome", """
        -m eval heldout --model {work}/model --corpus {corpus} --source genome
        --reference {genome} --annotation {annotation} --finetuned-genes RP[LS][0-9]
        --tasks {tasks} --variants-each {variants_each} --most-bp {most_bp} --sites {sites} --seed 0
        --output {work}/eval/heldout""",
        replaces="eval/heldout",
    ),
)  # fmt: skip
