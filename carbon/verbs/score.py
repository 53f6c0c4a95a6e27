"""`carbon score`: the log-likelihood of sequences."""

import argparse
from collections import deque
from collections.abc import Iterator

from carbon.verbs.common import Verbs, add_model, load


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser("score", help="log-likelihood of each sequence of a FASTA, as TSV")
    add_model(verb)
    verb.add_argument("fasta", help="plain, bgzip or gzip")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.console import track
    from carbon.genome import read_sequences

    records = read_sequences(arguments.fasta)
    names: deque[str] = deque()  # of sequences that are read and not yet scored

    def sequences() -> Iterator[str]:
        for name, sequence in records:
            names.append(name)
            yield sequence

    model = load(arguments)
    scores = model.score(sequences(), tags=arguments.tags)
    print("name", "bases", "known_bases", "log_likelihood", "nats_per_base", sep="\t")
    for score in track(scores, "sequences"):
        numbers = f"{score.log_likelihood:.4f}\t{score.nats_per_base:.6f}"
        print(names.popleft(), score.length_bp, score.num_known_bases, numbers, sep="\t")
