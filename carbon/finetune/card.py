"""The model card of a fine-tuned model: what it answers, how well, and what is not known of it."""

from pathlib import Path

from carbon import __version__
from carbon.finetune.config import WAYS
from carbon.finetune.data import PARTS
from carbon.finetune.findings import Findings, estimate_text, read_findings, spoken
from carbon.finetune.folder import ADAPTER
from carbon.finetune.report import REPORT, label_rows, setting_rows
from carbon.io.files import atomic_file
from carbon.reports.card import card_front, plain, table

CARD = "README.md"
_OF_ADAPTER = """
# A low-rank adapter of a DNA language model

Trained with Carbon, which reads the folder above this one: `carbon predict --model FOLDER`. Stock
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
_PIPELINES = {
    "binary": "text-classification",
    "classes": "text-classification",
    "labels": "text-classification",
    "numbers": "text-classification",  # the hub has no regression of sequences
    "bases": "token-classification",
}
_PREDICTED = {
    "binary": "one of two classes of a sequence; the prediction is the probability of the second",
    "classes": "one of many classes of a sequence; the prediction is the probability of each",
    "labels": "any of many labels of a sequence; the prediction is the probability of each",
    "numbers": "numbers of a sequence, in the unit of the table that was learned from",
    "bases": "a class of every base; the prediction is the probability of each class",
}
_NEEDS = {
    "probe": "It holds the head alone, and",
    "lora": "It holds an adapter that `peft` loads into the stock class `AutoModel` "
    "([adapter/](adapter/README.md)) and the head, and",
}


def write_card(folder: Path, name: str | None = None) -> Path:
    """Write `README.md` into the folder of a run, and one into its adapter; return the first path.

    Args:
        folder: that `carbon finetune` wrote.
        name: to call the model by; the folder's own, if none is given.

    Raises:
        ModelError: it is no such folder, or one of another version, or damaged.
    """
    findings = read_findings(folder, name)
    sections = (
        card_front("carbon-dna", _PIPELINES[findings.results["kind"]]),
        _what(findings),
        _use(findings),
        _data(findings),
        _training(findings),
        _results(findings),
        _limits(findings),
    )
    with atomic_file(folder / CARD) as temporary:
        temporary.write_text("".join(sections), encoding="utf-8")
    if findings.manifest.way == "lora" and (folder / ADAPTER).is_dir():
        text = card_front("peft", "feature-extraction") + _OF_ADAPTER
        (folder / ADAPTER / CARD).write_text(text, encoding="utf-8")
    return folder / CARD


def _what(findings: Findings) -> str:
    question, way = findings.manifest.question, findings.manifest.way
    names = ", ".join(f"`{plain(name)}`" for name in question.names[:_MOST_NAMES])
    more = len(question.names) - _MOST_NAMES
    needs = (
        f"{_NEEDS[way]} needs the base model beside it."
        if way in _NEEDS
        else "It holds all weights as a stock model (`model/`), and the head."
    )
    return (
        f"\n# {plain(findings.name)}\n\nPredicts {_PREDICTED[question.kind]}: "
        f"{names}{f' and {more:,} more' if more > 0 else ''}. It was fine-tuned from the DNA "
        f"language model `{plain(findings.base)}` by {WAYS[way]} (`{way}`), with Carbon "
        f"{__version__}. {needs}\n\n{plain(' '.join(findings.answer()))} [{REPORT}]({REPORT}) has "
        "curves and more.\n"
    )


def _use(findings: Findings) -> str:
    name = findings.name
    base = "" if findings.manifest.way == "full" else " --base FOLDER_OF_THE_BASE_MODEL"
    argument = "" if not base else ', base="FOLDER_OF_THE_BASE_MODEL"'
    told = (
        "\nThe base model is looked for where it lay; without `--base` and `base=` if it is there."
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
{told}
"""


def _data(findings: Findings) -> str:
    results, split = findings.results, findings.config.data.split
    files = [(each["role"], each["name"], each["sha256"]) for each in results["files"]]
    told = "".join(f"- {plain(line)}\n" for line in results["told"])
    return (
        f"\n## Data\n\n{table(label_rows(findings), ('', *PARTS))}\nSplit by `{split.by}`"
        f"{f' (`{plain(split.column)}`)' if split.column else ''}, seed {split.seed}; SHA-256 of "
        f"all sequences and their parts: `{results['split_sha256']}`. Of this data:\n\n{told}\n"
        + (table(files, ("role", "file", "SHA-256")) if files else "")
    )


def _training(findings: Findings) -> str:
    return f"\n## Training\n\n{table(setting_rows(findings), ('setting', 'value'))}"


def _results(findings: Findings) -> str:
    tested, against = findings.results["test"], findings.results["model_minus"]
    names = list(tested["model"])[:_MOST_SCORES]
    rows = [(spoken(n), *(estimate_text(of[n]) for of in tested.values())) for n in names]
    text = (
        "\n## Results\n\nOn the test part, which was measured once. Brackets are 95 % intervals by "
        f"bootstrap, {findings.results['drawn_together']} drawn whole.\n\n"
        + table(rows, ("score", *tested))
    )
    if against:
        rows = [(spoken(n), *(estimate_text(of[n]) for of in against.values())) for n in names]
        text += "\nThe model minus each baseline, on the same draws:\n\n"
        text += table(rows, ("score", *(f"minus {name}" for name in against)))
    return text


def _limits(findings: Findings) -> str:
    ends = sorted(set(findings.results["lengths_bp"].values()))
    limits = [
        "It was learned from and measured on the data above. Of other organisms, cells, "
        "laboratories or kinds of sequence nothing is known.",
        f"All sequences were {' to '.join(f'{bp:,}' for bp in ends)} bp long.",
        "It is not clinical advice; nothing here was tested on patients or for a diagnosis.",
    ]
    if findings.results["kind"] != "numbers":
        limits.append(
            "Probabilities are those of data with as many of each class as the train part; the "
            "report tells how far they hold on the test part."
        )
    if findings.manifest.question.loss.startswith("correlation"):
        limits.append("It was learned by a correlation, so predictions have no sure scale.")
    if findings.leaks_of_test():
        limits.append("Some test sequences stand in another part too, so the scores are too high.")
    return "\n## Limits\n\n" + "".join(f"- {limit}\n" for limit in limits)
