"""`carbon score`: the log-likelihood of sequences."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.commands.shared import WORKERS, File, Loading, Table, Tags, Workers, check_inputs
from carbon.commands.workers import scorer
from carbon.inference.options import By, Strands
from carbon.inference.sequence_job import Rows, SequenceJob, run_sequence_job
from carbon.io.tables import chosen_by_ending, write_tsv

if TYPE_CHECKING:
    from carbon.inference.score import SequenceScore


def score(
    sequences: File,
    /,
    *,
    loading: Loading,
    tags: Tags = (),
    output: Table | None = None,
    per_base: bool = False,
    by: By = "chain",
    strands: Strands = "forward",
    workers: Workers = WORKERS,
) -> None:
    """Compute the log-likelihood of each sequence of a FASTA or FASTQ.

    Writes a row for each sequence, or with --per-base for each base (position from 1). Keeps a few
    million bases in memory.

    Args:
        sequences: FASTA or FASTQ, plain, bgzip or gzip; - for standard input.
        output: table to write; default: TSV to standard output.
        per_base: write a row for each base.
        by: likelihoods by the chain rule or by marginals.
        strands: to read.
    """
    from carbon.genome import read_sequences
    from carbon.io.files import atomic_file, check_no_input, output_path

    writer = chosen_by_ending(output, "table") if output else write_tsv
    if output:
        output_path(output)
        check_no_input(output, sequences)
    records = read_sequences(sequences)
    check_inputs(loading.model)
    from carbon.inference.score import PER_BASE, PER_SEQUENCE, packing_of

    table = PER_BASE if per_base else PER_SEQUENCE

    def write(settings: dict[str, Any], scores: "Rows[SequenceScore]") -> None:
        with (
            atomic_file(output) if output else nullcontext(Path("-")) as path,
            writer(path, table.columns, settings) as write_row,
        ):
            for name, bases, score in scores:
                for row in table.rows(name, bases, score):
                    write_row(row)

    method = {"by": by, "strands": strands, "tags": tags}
    keywords = loading.worker_keywords(workers)
    job = SequenceJob(
        source=sequences,
        output=output,
        make=partial(scorer, loading.model, keywords, sequences, method, per_base),
        unpack=packing_of(per_base=per_base)[1],
        inputs={"per_base": per_base},
        resume=workers.resume,
    )
    run_sequence_job(workers, job, records, write)
