"""`carbon models` and `carbon info`: models with names, and facts about a model folder."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from carbon.errors import UserError

if TYPE_CHECKING:
    from carbon.pretrained import Entry

_ABSENT = "not in this installation"
_NOT_FETCHED = "downloaded at first use"


def models(
    *,
    copy: Annotated[str | None, Parameter(metavar="NAME")] = None,
    output: Annotated[Path | None, Parameter(metavar="FOLDER")] = None,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """List the models that have names, and their folders.

    Lists bundled models, with the chromosome held out of each training and its genes, and the
    models that `--model` and `carbon.load` download from the Hub by name. This command downloads
    nothing. --copy writes the held-out chromosome of a bundled model, its genes and a few variants
    into a folder, to try commands on.

    Args:
        copy: a bundled model, such as yeast.
        output: folder for --copy; default: such as yeast_VIII.
        as_json: JSON instead of tables.
    """
    from carbon.pretrained import BUNDLED_MODELS

    if copy is not None:
        return _copy(copy, output)
    if output is not None:
        raise UserError("--output: give the model with --copy NAME")
    known = {"bundled": [_bundled(entry) for entry in BUNDLED_MODELS.values()], "hub": _on_hub()}
    if as_json:
        print(json.dumps(known, indent=1))
        return
    print(_bundled_text(known["bundled"]))
    print()
    print(_hub_text(known["hub"]))


def info(model: str, /) -> None:
    """Print facts about a model folder.

    Args:
        model: model folder, or the name of a bundled or Hub model.
    """
    from carbon.model import model_folder
    from carbon.tokenizer import Vocabulary

    folder = model_folder(model)  # reads the config and the headers of the weights, without torch
    config, vocabulary = folder.config, folder.vocabulary
    own = vocabulary if isinstance(vocabulary, Vocabulary) else None
    theta = config.get("rope_theta")
    older = {"rope_type": "default", "rope_theta": theta, **(config.get("rope_scaling") or {})}
    has_rope = own is not None or theta is not None
    facts = {
        "vocabulary": own.name if own else f"{vocabulary.k}-mers",
        "parameters": folder.num_parameters,
        "layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "context_tokens": config["max_position_embeddings"],
        "context_bp": (config["max_position_embeddings"] - len(vocabulary.prefix())) * vocabulary.k,
        "rope": config.get("rope_parameters") or (older if has_rope else None),
        "tied_embeddings": config["tie_word_embeddings"],
        "tags": list(own.tags) if own else [],
    }
    print(json.dumps(facts, indent=1))


def _copy(name: str, output: Path | None) -> None:
    """Copy the files bundled with a model, and print their paths and a command for them."""
    from carbon import pretrained
    from carbon.progress import say

    entry = pretrained.entry(name)
    folder = output or Path(f"{name}_{entry.held_out_contig}")
    genome, annotation, variants = entry.copy_to(folder)
    print(genome, annotation, variants, sep="\n")
    say(
        f"score them: carbon variants --model {name} --reference {genome} --vcf {variants} "
        f"--annotation {annotation} --output {folder / 'scored.tsv'}"
    )


def _bundled(entry: "Entry") -> dict[str, Any]:
    from carbon.model import model_folder

    facts: dict[str, Any] = {
        "name": entry.name,
        "what": entry.what,
        "organism": entry.organism,
        "assembly": entry.assembly,
        "held_out_contig": entry.held_out_contig,
        "training": entry.training,
        "is_there": entry.is_installed,
    }
    if entry.is_installed:
        facts |= {
            "parameters": model_folder(entry.folder).num_parameters,
            "heldout_nats_per_base": entry.heldout_nats_per_base,
            "bytes": sum(path.stat().st_size for path in entry.folder.iterdir()),
            "folder": str(entry.folder),
            "genome": str(entry.genome),
            "annotation": str(entry.annotation),
            "variants": str(entry.variants),
        }
    return facts


def _on_hub() -> list[dict[str, Any]]:
    from carbon.model.folder import PUBLISHED, cached_folder

    return [
        {
            "name": model.name,
            "parameters": model.num_parameters,
            "gigabytes": model.gigabytes,
            "folder": str(folder) if (folder := cached_folder(model.name)) else None,
        }
        for model in PUBLISHED
    ]


def _bundled_text(models: list[dict[str, Any]]) -> str:
    from carbon.progress import TableRow, text_table

    rows: list[TableRow] = [("bundled", "parameters", "organism", "held out", "nats/base", "MB")]
    for model in models:
        is_there = model["is_there"]
        rows.append(
            (
                model["name"],
                model["parameters"] if is_there else "",
                model["organism"],
                model["held_out_contig"],
                f"{model['heldout_nats_per_base']:.4f}" if is_there else "",
                model["bytes"] / 1e6 if is_there else "",
            )
        )
    return "\n\n".join([text_table(rows), *map(_places, models)])


def _places(model: dict[str, Any]) -> str:
    """Return a paragraph on a model: its description, and the paths to give to commands."""
    lines = [f"{model['name']}: {model['what']}; trained on {model['training']}"]
    if not model["is_there"]:
        return f"{lines[0]}\n  {_ABSENT}"
    places = ("folder", "genome", "annotation", "variants")
    lines += [f"  {what:<10}  {model[what]}" for what in places]
    return "\n".join(lines)


def _hub_text(models: list[dict[str, Any]]) -> str:
    from carbon.progress import TableRow, text_table

    rows: list[TableRow] = [("on the Hub", "parameters", "GB", "folder")]
    rows += [
        (model["name"], model["parameters"], model["gigabytes"], model["folder"] or _NOT_FETCHED)
        for model in models
    ]
    return text_table(rows)
