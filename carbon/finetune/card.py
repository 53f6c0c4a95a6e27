"""The model card of a fine-tuned model: task, data, training, results and limits."""

from pathlib import Path

from carbon import __version__
from carbon.finetune.config import METHODS
from carbon.finetune.data import SPLITS
from carbon.finetune.findings import MOST_SCORES, TASK_TEXTS, Findings
from carbon.finetune.folder import ADAPTER
from carbon.finetune.report import REPORT
from carbon.io.files import atomic_file
from carbon.reports.card import card_front, plain, table

CARD = "README.md"
_OF_ADAPTER = """
# A low-rank adapter of a DNA language model

Trained with Carbon, which loads the folder above this one: `carbon predict --model FOLDER`. Stock
`peft` loads the adapter into the decoder without its head, which is the class `AutoModel`:

```python
from peft import PeftModel
from transformers import AutoModel

base = AutoModel.from_pretrained("FOLDER_OF_THE_BASE_MODEL")
model = PeftModel.from_pretrained(base, "adapter")
```

Do not load it into `AutoModelForCausalLM`: the names of its modules differ, and `peft` then leaves
the adapter without effect, with a warning only. The trained head that turns states into predictions
is `head.safetensors`, next to this folder.
"""
_MOST_NAMES, _MOST_SCORES = 20, 20
_NEEDS = {
    "probe": "It has only the head, and",
    "lora": "It has an adapter that `peft` loads into the stock class `AutoModel` "
    "([adapter/](adapter/README.md)) and the head, and",
}


def write_card(folder: Path, findings: Findings) -> Path:
    """Write `README.md` into the folder of a run and its adapter; return the first path."""
    sections = (
        card_front("carbon-dna", TASK_TEXTS[findings.manifest.task.type].pipeline),
        _what(findings),
        _use(findings),
        _data(findings),
        _training(findings),
        _results(findings),
        _limits(findings),
    )
    with atomic_file(folder / CARD) as temporary:
        temporary.write_text("".join(sections), encoding="utf-8")
    if findings.manifest.method == "lora" and (folder / ADAPTER).is_dir():
        text = card_front("peft", "feature-extraction") + _OF_ADAPTER
        (folder / ADAPTER / CARD).write_text(text, encoding="utf-8")
    return folder / CARD


def _what(findings: Findings) -> str:
    task, method = findings.manifest.task, findings.manifest.method
    names = ", ".join(f"`{plain(name)}`" for name in task.names[:_MOST_NAMES])
    more = len(task.names) - _MOST_NAMES
    needs = (
        f"{_NEEDS[method]} needs the base model."
        if method in _NEEDS
        else "It has all weights as a stock model (`model/`), and the head."
    )
    return (
        f"\n# {plain(findings.name)}\n\nPredicts {TASK_TEXTS[task.type].prediction}: "
        f"{names}{f' and {more:,} more' if more > 0 else ''}. It was fine-tuned from the DNA "
        f"language model `{plain(findings.base)}` by {METHODS[method]} (`{method}`), with Carbon "
        f"{__version__}. {needs}\n\n{plain(' '.join(findings.answer()))} [{REPORT}]({REPORT}) has "
        "curves and more.\n"
    )


def _use(findings: Findings) -> str:
    name = findings.name
    base = "" if findings.manifest.method == "full" else " --base FOLDER_OF_THE_BASE_MODEL"
    argument = "" if not base else ', base="FOLDER_OF_THE_BASE_MODEL"'
    note = (
        "\nWithout `--base` and `base=` the base model is loaded from its path during training."
        if base
        else ""
    )
    return f"""
## Use

```bash
carbon predict --model {name}{base} new.fa --output new.tsv
carbon predict --model {name}{base} calls.vcf --reference genome.fa --output calls.tsv
```

```python
import carbon

model = carbon.load_finetuned("{name}"{argument})
for prediction in model.predict(["ACGT" * 50]):
    print(dict(zip(model.output_names, prediction)))
```
{note}
"""


def _data(findings: Findings) -> str:
    results, split = findings.results, findings.config.data.split
    files = findings.file_rows()
    notes = "".join(f"- {plain(line)}\n" for line in results["notes"])
    return (
        f"\n## Data\n\n{table(findings.label_rows(MOST_SCORES), ('', *SPLITS))}\n"
        f"Split by `{split.by}`"
        f"{f' (`{plain(split.column)}`)' if split.column else ''}, seed {split.seed}; SHA-256 of "
        f"all sequences and their splits: `{results['split_sha256']}`. Notes:\n\n{notes}\n"
        + (table(files, ("role", "file", "SHA-256")) if files else "")
    )


def _training(findings: Findings) -> str:
    return f"\n## Training\n\n{table(findings.setting_rows(), ('setting', 'value'))}"


def _results(findings: Findings) -> str:
    against = findings.results["model_minus"]
    text = (
        "\n## Results\n\nOn the test split, which was measured once. Brackets are 95 % intervals "
        f"by bootstrap, {findings.results['drawn_together']} drawn whole.\n\n"
        + table(findings.score_rows("test", _MOST_SCORES), ("score", *findings.results["test"]))
    )
    if against:
        text += "\nThe model minus each baseline, on the same draws:\n\n"
        rows = findings.score_rows("model_minus", _MOST_SCORES)
        text += table(rows, ("score", *(f"minus {name}" for name in against)))
    return text


def _limits(findings: Findings) -> str:
    ends = sorted(set(findings.results["lengths_bp"].values()))
    limits = [
        "It was trained and measured on the data above. Its performance on other organisms, cells, "
        "laboratories or types of sequence is unknown.",
        f"All sequences were {' to '.join(f'{bp:,}' for bp in ends)} bp long.",
        "It does not give clinical advice; it was not tested on patients or for a diagnosis.",
    ]
    if not findings.manifest.task.task_type.is_number:
        limits.append(
            "Probabilities assume the class frequencies of the train split; the report shows their "
            "calibration on the test split."
        )
    if findings.manifest.task.loss.startswith("correlation"):
        limits.append(
            "It was trained with a correlation, so the scale of predictions is arbitrary."
        )
    if findings.leaks_of_test():
        limits.append("Some test sequences also occur in another split: the scores are too high.")
    return "\n## Limits\n\n" + "".join(f"- {limit}\n" for limit in limits)
