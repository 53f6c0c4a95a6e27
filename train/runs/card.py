"""The model card: identity, origin and limits of an exported model."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from carbon import __version__
from carbon.io.files import atomic_file
from carbon.losses.objectives import OBJECTIVES
from carbon.model.architectures import MODEL_SPECS
from carbon.model.folder import read_config
from carbon.progress import shown
from carbon.reports.card import card_front, plain, table
from carbon.tokenizer import NATIVE, K
from train.config import TrainConfig
from train.optim import OPTIMIZERS
from train.runs.record import (
    RunRecord,
    Work,
    beginning,
    objective_changes,
    read_run,
    recipe_rows,
    results_of,
)
from train.runs.summary import loss_figure
from train.schedule import Schedule

_MOST_LISTED = 20
_USE_STOCK = f"""
With stock `transformers`, and no code but theirs; `.` is the folder of this file:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
inputs = tokenizer("<dna>ATGGCCAAGTAA", return_tensors="pt")
kmer_logits = model(**inputs).logits[:, :, {NATIVE.first_kmer}:]  # over the 4,096 6-mers
output = model.generate(**inputs, max_new_tokens=10, do_sample=True,
                        suppress_tokens=list(range({NATIVE.first_kmer})))
print(tokenizer.decode(output[0]))
```

Begin with `<dna>`. Ids below {NATIVE.first_kmer} are not 6-mers and were never trained as outputs:
leave their logits out, as here. A length that is no multiple of {K} is padded with A.

"""
_USE_CARBON = f"""
With Carbon, which needs no multiple of {K} and scores base by base:

```python
import carbon

model = carbon.load(".")
(score,) = model.score(["ATGGCCAAGTAA"])
print(score.nats_per_base)
print(model.generate(["ATGGCCAAG"], 60, seed=1))
```
"""


def write_card(
    run: Path,
    export: Path,
    *,
    corpus_manifest: Mapping[str, Any] | None,
    parameters: int | None = None,
    trained: Work | None = None,
) -> None:
    """Write `README.md` into an exported model's folder, and `curves.png` if a step was taken.

    Args:
        run: folder of the run that the model comes from.
        export: folder of the model.
        corpus_manifest: of the corpus, if it has one.
        parameters: of the network; counted in the exported weights if not given.
        trained: the training of all workers that is in the model; None: the steps of the run.

    Raises:
        ConfigError: the run has no config.toml, or a file of it is malformed.
    """
    record = read_run(run)
    if parameters is None:
        parameters = _parameters_of(export)
    figure = loss_figure(record)
    if figure is not None:
        with atomic_file(export / "curves.png") as temporary:
            figure.savefig(temporary, dpi=150, metadata={"Software": None})
    sections = (
        card_front("transformers", "text-generation"),
        _what(record, export, parameters, trained),
        _use(export),
        _recipe(record),
        _data(record.config, corpus_manifest),
        _results(record, figure is not None),
        _limits(record, corpus_manifest),
    )
    with atomic_file(export / "README.md") as temporary:
        temporary.write_text("".join(sections), encoding="utf-8")


def _use(export: Path) -> str:
    """Return code; a hybrid needs its special tokenizer."""
    has_config = (export / "config.json").is_file()
    is_hybrid = has_config and read_config(export)["vocab_size"] != NATIVE.size
    return f"\n## Use\n{'' if is_hybrid else _USE_STOCK}{_USE_CARBON}"


def _parameters_of(export: Path) -> int:
    count = 0
    for path in sorted(export.glob("*.safetensors")):
        with safe_open(path, framework="np") as weights:
            count += sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
    return count


def _what(record: RunRecord, export: Path, parameters: int, trained: Work | None) -> str:
    config = record.config
    tokens = config.longest_context_tokens
    trained = trained or _steps_of(record)
    return (
        f"\n# {plain(record.name)}\n\n"
        f"A language model of DNA: a decoder of the {_architecture(config, export)} architecture "
        f"with {parameters:,} parameters{_size(config)}, which reads DNA in 6-mers and predicts "
        f"the next one. Its longest context is {tokens:,} tokens, {(tokens - 1) * K:,} bases "
        f"beside `<dna>`. {_begun(config)}It was trained with Carbon {__version__} on "
        f"{trained.tokens:,} tokens, in {trained.steps:,} of {Schedule(config).total_steps:,} "
        "planned steps.\n"
    )


def _architecture(config: TrainConfig, export: Path) -> str:
    """Return the architecture of an exported model, or that of its recipe."""
    has_config = (export / "config.json").is_file()
    name = read_config(export)["model_type"] if has_config else config.model.architecture
    return MODEL_SPECS[name].label


def _steps_of(record: RunRecord) -> Work:
    """Return the training that the lines of a run record, for a run without workers."""
    last = record.steps[-1] if record.steps else {"step": 0, "tokens": 0}
    return Work(last["tokens"], last["step"])


def _size(config: TrainConfig) -> str:
    return "" if config.model.start else f" (preset `{config.model.preset}`)"


def _begun(config: TrainConfig) -> str:
    return f"{plain(beginning(config))}. " if config.model.start else ""


def _recipe(record: RunRecord) -> str:
    header, *rows = recipe_rows(record)
    config, optimizer = record.config, record.config.optimizer
    skipped = sum("skipped" in line for line in record.steps)
    text = (
        f"\n## Training\n\nPhases follow one another with the optimizer's state kept. "
        f"{OPTIMIZERS[optimizer.name].label(optimizer)}; gradients clipped to a norm of "
        f"{optimizer.clip_norm:g}; "
        f"seed {config.seed}. {_objectives(config)}.\n\n"
    )
    if changes := objective_changes(record):
        text += f"{plain(' '.join(changes))}\n\n"
    of_worker = _of_worker(record)
    if skipped:
        text += (
            f"{skipped:,} steps{of_worker} were skipped for a loss or gradient that was not "
            "usable.\n\n"
        )
    if of_worker:  # the lines of a worker's folder cover only its steps
        rows = [row for row in rows if row[0] != "steps taken"]
    return text + table(rows, header)


def _of_worker(record: RunRecord) -> str:
    """Return the worker whose lines the folder has, or an empty string for a whole run."""
    workers = record.config.workers
    return f" of {plain(record.name)}" if workers.count > 1 or workers.store else ""


def _objectives(config: TrainConfig) -> str:
    """Describe the objectives of the phases."""
    names = dict.fromkeys(phase.objective for phase in config.phases)
    return ", ".join(
        f"`{name}` {'' if place else 'is '}{OBJECTIVES[name].meaning}"
        for place, name in enumerate(names)
    )


def _data(config: TrainConfig, manifest: Mapping[str, Any] | None) -> str:
    if manifest is None:
        names = sorted({source for phase in config.phases for source in phase.mixture})
        return (
            f"\n## Data\n\nSources: {plain(', '.join(names))}. The corpus came without a "
            "manifest, so what is in it, and whether anything is held out, is not known here.\n"
        )
    rows = []
    for source, splits in manifest["sources"].items():
        readers = [phase.name for phase in config.phases if source in phase.mixture]
        counts = [
            splits.get(split, {}).get(key, 0)
            for split in ("train", "test")
            for key in ("records", "bases")
        ]
        rows.append((source, *map(shown, counts), ", ".join(readers) or "none"))
    header = ("source", "records", "bases", "held-out records", "bases", "phases that read it")
    return f"\n## Data\n\n{table(rows, header)}{_held_out(manifest)}{_inputs(manifest)}"


def _held_out(manifest: Mapping[str, Any]) -> str:
    regions = _listed([str(region) for region in manifest["held_out"]]) or "no region"
    text = f"\nHeld out of the assemblies: {regions}.\n"
    if evaluations := manifest.get("evaluations"):
        names = [f"{Path(each['path']).name} ({each['sha256'][:12]})" for each in evaluations]
        text += f"\nKept clear of evaluations: {_listed(names)}.\n"
    return text


def _inputs(manifest: Mapping[str, Any]) -> str:
    """Return the files that went in, by name: their folders are nobody else's business."""
    rows = []
    for each in manifest.get("inputs", []):
        origin = [str(each["recipe"].get(key, "")) for key in ("organism", "accession", "licence")]
        for file in each["files"]:
            rows.append((*origin, Path(file["path"]).name, file["sha256"][:12]))
    if not rows:
        return ""
    more = f"\n{len(rows) - _MOST_LISTED:,} more files.\n" if len(rows) > _MOST_LISTED else ""
    header = ("organism", "accession", "licence", "file", "sha256")
    return f"\n{table(rows[:_MOST_LISTED], header)}{more}"


def _results(record: RunRecord, drawn: bool) -> str:
    rows = [(name, f"{value:.4f}", f"{step:,}") for name, step, value in results_of(record)]
    text = "\n## Results\n\n"
    if not rows:
        return f"{text}None: the run wrote down no step and no probe.\n"
    text += (
        f"The last values{_of_worker(record) or ' of the run'}. Those of training rows are "
        "of one batch. Nats per base by the chain are the likelihood of the sequence, by the "
        "marginals what FNS trains; 1.3863, the logarithm of 4, is a guess. Sequence recovery is "
        "the share of bases that the most likely continuation of 30 gets right.\n\n"
    )
    picture = "\n![nats per base by step](curves.png)\n" if drawn else ""
    return f"{text}{table(rows, ('measure', 'value', 'step'))}{picture}"


def _limits(record: RunRecord, manifest: Mapping[str, Any] | None) -> str:
    context = f"{record.config.longest_context_tokens:,}"
    limits = [
        "A score is a likelihood, or a difference of two, without training for any task. It is not "
        "clinical advice; nothing here was tested on patients or for a diagnosis.",
        "Nothing was tested but what stands under Results: no other species or kind of sequence, "
        f"no variants, no context beyond {context} tokens.",
        "Generated sequence follows the statistics of the data. Whether it does anything in a cell "
        "was not tested.",
    ]
    if not record.probes:
        limits.append("Nothing was measured on held-out records during training.")
    if manifest is not None:
        limits.append(
            "A region is held out of its own assembly; what is like it in part elsewhere in the "
            "data may have been trained on."
        )
    return "\n## Limits\n\n" + "".join(f"- {limit}\n" for limit in limits)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return plain(", ".join(names[:_MOST_LISTED])) + more
