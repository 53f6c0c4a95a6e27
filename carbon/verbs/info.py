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
    """Run the verb."""
    from carbon.model import load_model

    network, vocabulary = load_model(arguments.model)
    config = network.config
    facts = {
        "vocabulary": vocabulary.name,
        "parameters": sum(p.numel() for p in network.parameters()),
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "context_tokens": config.max_position_embeddings,
        "context_bp": (config.max_position_embeddings - 1) * 6,
        "rope": config.rope_parameters,
        "tied_embeddings": config.tie_word_embeddings,
        "tags": list(vocabulary.tags),
    }
    print(json.dumps(facts, indent=1))
