"""What the tasks of `heldout` measure with: each part is read when a task first asks for it."""

import argparse
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from carbon.corpus import read_manifest, read_source
from carbon.errors import ConfigError
from carbon.genome import Interval, Reference
from carbon.inference import load
from eval.heldout.genes import CodingGene, HeldOutGenes
from eval.heldout.likelihood import Owners
from eval.heldout.markov import MAX_ORDER, Markov

_USUAL_SOURCE = "eukaryote"


class Material:
    """A model, what it was trained on and what was held out.

    Attributes:
        arguments: of the command line.
        model: what is measured.
        source: of the corpus.
        train: sequences of its train split.
        test: sequences of its test split.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Load the model and the corpus.

        Raises:
            ConfigError: nothing is held out.
        """
        self.arguments = arguments
        self.model = load(arguments.model)
        self.source = arguments.source or _usual_source(arguments.corpus)
        self.train = self._column("train", "sequence")
        self.test = self._column("test", "sequence")
        if not self.test:
            raise ConfigError(f"{arguments.corpus}: nothing is held out; build with a holdout")

    def all_train(self) -> Iterator[str]:
        """Yield the training sequences of every source of the corpus."""
        for name, splits in read_manifest(self.arguments.corpus)["sources"].items():
            if splits["train"]["records"]:
                yield from _sequences(self.arguments.corpus, name)

    def _column(self, split: Any, name: str) -> list[Any]:
        table = read_source(self.arguments.corpus, self.source, split, [name])
        values: list[Any] = table[name].to_pylist()
        return values

    @cached_property
    def genes(self) -> HeldOutGenes:
        """The annotated genome."""
        of = self.arguments
        files = (of.corpus, Reference(of.reference), of.annotation)
        return HeldOutGenes(*files, of.contigs, of.genetic_code)

    @cached_property
    def coding(self) -> list[CodingGene]:
        """The coding genes of the held-out regions."""
        return self.genes.coding()

    @cached_property
    def markov(self) -> Markov:
        """The Markov model of order 6."""
        return Markov(MAX_ORDER, self.train)

    def owners(self) -> list[Owners] | None:
        """Return the gene of every base of every test record, None if that cannot be told.

        It can of records that are stretches of the forward strand of the annotated genome.
        """
        if not (self.arguments.annotation and self.arguments.reference):
            return None
        names = ("record_id", "start", "end", "strand")
        rows = zip(*(self._column("test", name) for name in names), strict=True)
        found = []
        for (contig, start, end, strand), record in zip(rows, self.test, strict=True):
            known = contig in self.genes.reference.contig_lengths_bp
            if not known or strand != "+" or end - start != len(record):
                return None
            found.append(np.asarray(self.genes.owners(Interval(contig, start, end))))
        return found


def _sequences(corpus: str, source: str) -> Iterator[str]:
    column = read_source(corpus, source, "train", ["sequence"])["sequence"]
    for chunk in column.chunks:
        yield from chunk.to_pylist()


def _usual_source(corpus: str) -> str:
    """Return `eukaryote`, or the first other source of a corpus that holds records out."""
    sources = read_manifest(corpus)["sources"]
    held_out = [name for name, splits in sources.items() if splits["test"]["records"]]
    return _USUAL_SOURCE if _USUAL_SOURCE in held_out else next(iter(held_out), _USUAL_SOURCE)
