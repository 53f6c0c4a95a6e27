"""`carbon info`: what a model folder is."""

import argparse
import json

from carbon.verbs.common import Verbs


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser("info", help="what a model folder is")
    verb.add_argument("model")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb: the config and the headers of the weights say it all, without torch."""
    from math import prod

    from carbon.model import model_folder

    _, config, shapes, vocabulary = model_folder(arguments.model)
    is_tied = bool(config.get("tie_word_embeddings"))
    counted = [shape for name, shape in shapes.items() if not (is_tied and "lm_head" in name)]
    older = {"rope_theta": config.get("rope_theta"), **(config.get("rope_scaling") or {})}
    facts = {
        "vocabulary": vocabulary.name,
        "parameters": sum(map(prod, counted)),
        "layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "context_tokens": config["max_position_embeddings"],
        "context_bp": (config["max_position_embeddings"] - 1) * 6,
        "rope": config.get("rope_parameters") or {"rope_type": "default", **older},
        "tied_embeddings": is_tied,
        "tags": list(vocabulary.tags),
    }
    print(json.dumps(facts, indent=1))
