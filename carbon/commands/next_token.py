"""`carbon next`: the distribution of the next 6-mer."""

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
    """List the possible next 6-mers of a context, most probable first.

    Writes a row for each 6-mer with its probability, and with the cross-entropy and FNS losses if
    it were the true one. The 6-mer begins directly after the context.

    Args:
        prompt: the context; default: empty.
        fixed: known bases of the 6-mer, such as A..T..; probabilities are conditioned on them,
            losses are not.
        output: table to write; default: TSV to standard output.
    """
    from carbon.io.files import atomic_file

    writer = chosen_by_ending(output, "table") if output else write_tsv
    check_inputs(loading.model, carbon_only=True)

    from carbon.inference import kmer_index

    model = loading.load(device)
    token = model.next_token(prompt, tags=tags)
    conditioned = token.given(fixed)
    settings: dict[str, Any] = {"model": loading.model, "yarn": model.yarn, "dtype": model.dtype}
    settings |= {"tags": tags, "context": conditioned.context}
    settings |= {"fixed": conditioned.fixed}
    cross_entropy_nats, fns_nats = token.cross_entropy_nats, token.fns_nats
    with (
        atomic_file(output) if output else nullcontext(Path("-")) as path,
        writer(path, COLUMNS, settings) as write,
    ):
        for kmer, probability in conditioned.ranked():
            index = kmer_index(kmer)
            losses = float(cross_entropy_nats[index]), float(fns_nats[index])
            write((kmer, probability, *losses))
