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
    from carbon.model import model_folder

    found = model_folder(arguments.model)
    config, vocabulary = found.config, found.vocabulary
    older = {"rope_theta": config.get("rope_theta"), **(config.get("rope_scaling") or {})}
    facts = {
        "vocabulary": vocabulary.name,
        "parameters": found.num_parameters,
        "layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "context_tokens": config["max_position_embeddings"],
        "context_bp": (config["max_position_embeddings"] - 1) * 6,
        "rope": config.get("rope_parameters") or {"rope_type": "default", **older},
        "tied_embeddings": config["tie_word_embeddings"],
        "tags": list(vocabulary.tags),
    }
    print(json.dumps(facts, indent=1))
