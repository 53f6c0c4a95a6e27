"""The card of a bundled model: its use, what was measured, and what a run says of itself."""

from collections.abc import Iterator, Mapping
from typing import Any

from carbon.pretrained import Entry
from carbon.progress import Cell
from carbon.reports.card import card_front
from carbon.tokenizer import K
from eval.heldout.overlap import overlap_clause
from train.config import TrainConfig

_OF_THE_RUN = ("Training", "Data", "Results")
_HEADLINES = {
    "heldout heldout_likelihood": ("nats_per_base", "Nats per held-out base"),
    "heldout sequence_recovery": ("accuracy", "Recovery of the next 30 bases"),
    "heldout consequence_auroc by_kind stop_gained": ("roc_auc", "AUROC of new stop codons"),
}
"""What the metadata of a card says of the results."""


def card(
    entry: Entry,
    config: TrainConfig,
    parameters: int,
    results: Mapping[str, Any],
    run_card: str,
) -> str:
    """Return the card, in Markdown.

    Args:
        entry: of the bundled model.
        config: of the run.
        parameters: of the network.
        results: by evaluation, then by task, as `python -m eval` writes them.
        run_card: the card that the training wrote, whose sections on the run are taken over.
    """
    sections = dict(_sections(run_card))
    return "\n".join(
        (
            front(entry, results),
            _what(entry, config, parameters, results),
            _use(entry),
            _measured(entry, results),
            *(f"## {name}\n{sections[name]}" for name in _OF_THE_RUN),
            _limits(entry, config),
        )
    )


def front(entry: Entry, results: Mapping[str, Any]) -> str:
    """Return the metadata of the card, with the headline numbers where the Hub looks for them."""
    dataset = f"chromosome {entry.held_out_contig} of {entry.organism}, {entry.assembly}"
    found = {
        " ".join(map(str, names)): estimate["value"] for names, estimate in _estimates(results)
    }
    metrics = "".join(
        f"    - type: {kind}\n      name: {name}\n      value: {found[measure]:.4f}\n"
        for measure, (kind, name) in _HEADLINES.items()
        if measure in found
    )
    measured = (
        f"model-index:\n- name: {entry.name}\n  results:\n"
        f"  - task:\n      type: text-generation\n"
        f"    dataset:\n      type: held-out-chromosome\n      name: {dataset}\n"
        f"    metrics:\n{metrics}"
    )
    return card_front("transformers", "text-generation", "apache-2.0", measured if metrics else "")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each section of a card."""
    for section in text.split("\n## ")[1:]:
        name, _, body = section.partition("\n")
        yield name, body


def _what(entry: Entry, config: TrainConfig, parameters: int, results: Mapping[str, Any]) -> str:
    tokens = config.longest_context_tokens
    return (
        f"# {entry.name}\n\n"
        f"A language model of the genome of *{entry.organism}* ({entry.assembly}): a decoder of "
        f"the Llama architecture with {parameters:,} parameters in bfloat16, which reads DNA in "
        f"{K}-mers and predicts the next one. Its context is {tokens:,} tokens, "
        f"{(tokens - 1) * K:,} bases beside `<dna>`. It comes with Carbon and was trained on "
        f"{entry.training}. Chromosome {entry.held_out_contig} was held out of training: "
        f"{overlap_clause(results['heldout'].get('overlap_with_train'))}. It lies beside the "
        f"model: `{entry.genome_file}`, and its genes, `{entry.annotation_file}`.\n"
    )


def _use(entry: Entry) -> str:
    return f"""## Use

```python
import carbon

model = carbon.load("{entry.name}")
entry = carbon.pretrained.entry("{entry.name}")
with carbon.Reference(entry.genome) as genome:
    piece = genome.fetch(carbon.Interval("{entry.held_out_contig}", 100_000, 100_600))
(score,) = model.score([piece])
print(score.nats_per_base)
```

Stock `transformers` loads the folder too. `recipe.toml` is the training recipe, `corpus.json` the
manifest of the corpus, `results.json` the evaluation; `scripts/bundled_model` of the repository
makes all of them again.
"""


def _measured(entry: Entry, results: Mapping[str, Any]) -> str:
    """Return a table of every estimate in the results, with its interval."""
    lines = [
        f"## Measured on chromosome {entry.held_out_contig}\n",
        "Of these weights, by `python -m eval`. Likelihood is in nats per base, recovery a share "
        "of bases; the intervals are those of a bootstrap. `markov` numbers the orders.\n",
        "| measure | value | low | high |",
        "|---|---:|---:|---:|",
    ]
    for names, estimate in _estimates(results):
        numbers = " | ".join(
            f"{estimate[key]:.4f}" if key in estimate else "" for key in ("value", "low", "high")
        )
        lines.append(f"| {', '.join(map(str, names))} | {numbers} |")
    return "\n".join(lines) + "\n"


def _estimates(value: Any, names: tuple[Cell, ...] = ()) -> Iterator[tuple[tuple[Cell, ...], Any]]:
    """Yield what has a value, with the names that lead there; lists count from 0."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return
    if isinstance(value.get("value"), float):
        yield names, value
    for name in value:
        yield from _estimates(value[name], (*names, name))


def _limits(entry: Entry, config: TrainConfig) -> str:
    return (
        "## Limits\n\n"
        "- A score is a likelihood, or a difference of two, without training for any task. It is "
        "not clinical advice; nothing here was tested on patients or for a diagnosis.\n"
        f"- It knows one genome. Nothing was tested of another organism, or beyond "
        f"{config.longest_context_tokens:,} tokens of context.\n"
        "- What stands under Measured is all that was measured, on one chromosome.\n"
        f"- It was trained on one laboratory strain of *{entry.organism}*; variation in "
        "populations is not in it.\n"
        f"- Stretches of chromosome {entry.held_out_contig} that have copies elsewhere in the "
        "genome were trained on there, so its numbers are in part those of memory.\n"
        "- Generated sequence follows the statistics of the data. Whether it does anything in a "
        "cell was not tested; it is not for use in or on living things without review.\n"
    )
