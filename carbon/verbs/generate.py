"""`carbon generate`: DNA from prompts."""

import argparse
import sys

from carbon.console import natural
from carbon.verbs.common import Verbs, add_model, load


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser("generate", help="continue DNA prompts, as FASTA")
    add_model(verb)
    source = verb.add_mutually_exclusive_group()
    source.add_argument("--prompt", default="", help="DNA of any length; none by default")
    source.add_argument("--prompts", metavar="FASTA", help="one prompt a record")
    verb.add_argument("--length", type=int, required=True, metavar="BP", help="bases to add")
    verb.add_argument("-n", type=int, default=1, dest="num_samples", help="samples a prompt")
    verb.add_argument("--temperature", type=float, default=1.0, help="0 takes the most likely")
    verb.add_argument("--top-k", type=int)
    verb.add_argument("--top-p", type=float)
    verb.add_argument("--seed", type=natural, default=0)
    verb.add_argument("--mode", choices=["token", "base"], default="token")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.genome import read_sequences

    prompts = [("generated", arguments.prompt)]
    if arguments.prompts:
        prompts = list(read_sequences(arguments.prompts))
    named = [
        (f"{name}_{n}", prompt) for name, prompt in prompts for n in range(arguments.num_samples)
    ]
    texts = load(arguments).generate(
        [prompt for _, prompt in named],
        arguments.length,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
        mode=arguments.mode,
        tags=arguments.tags,
    )
    for (name, prompt), text in zip(named, texts, strict=True):
        sys.stdout.write(f">{name} prompt_bp={len(prompt)}\n")
        sys.stdout.writelines(f"{text[i : i + 60]}\n" for i in range(0, len(text), 60))
