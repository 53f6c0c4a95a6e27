"""`carbon next`: the distribution of the 6-mer after a context."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from carbon.commands.shared import Device, Loading, Table, Tags, check_inputs
from carbon.io.tables import chosen_by_ending, write_tsv

COLUMNS = {"kmer": str, "probability": float, "cross_entropy_nats": float, "fns_nats": float}


def next_token(
    *,
    loading: Loading,
    device: Device = "auto",
    tags: Tags = (),
    prompt: str = "",
    fixed: str = "......",
    output: Table | None = None,
) -> None:
    """The 6-mers that may follow a context, best first.

    Writes a row a 6-mer with its probability, and the loss by cross-entropy and by FNS if it were
    the true one. The 6-mer begins right behind the context.

    Args:
        prompt: the context; none by default.
        fixed: bases of the 6-mer that are given, such as A..T..; probabilities are those among the
            6-mers with them, losses stay those of the model.
        output: where rows are written; TSV to standard output if it is not given.
    """
    from carbon.io.files import atomic_file

    writer = chosen_by_ending(output, "table") if output else write_tsv
    check_inputs(loading.model)

    from carbon.inference import kmer_index

    model = loading.load(device)
    token = model.next_token(prompt, tags=tags)
    given = token.given(fixed)
    settings: dict[str, Any] = {"model": loading.model, "yarn": model.yarn, "dtype": model.dtype}
    settings |= {"tags": tags, "context": given.context, "fixed": given.fixed}
    cross_entropy_nats, fns_nats = token.cross_entropy_nats, token.fns_nats
    with (
        atomic_file(output) if output else nullcontext(Path("-")) as path,
        writer(path, COLUMNS, settings) as write,
    ):
        for kmer, probability in given.ranked():
            index = kmer_index(kmer)
            losses = float(cross_entropy_nats[index]), float(fns_nats[index])
            write((kmer, probability, *losses))
