"""The commands of the corpus builder: `carbon corpus build|inspect|download|...`.

Each command imports its modules when it runs.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from carbon.console import Parser, add_command, epilogue, natural, print_summary, run_command
from carbon.errors import UserError
from carbon.io.files import atomic_folder, behind_links, check_no_input
from carbon.io.locks import locked_folder
from carbon.progress import say

Add = Callable[..., argparse.Action]  # `add_argument` of a parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""

    def run() -> int | None:
        arguments = _parser().parse_args(argv)
        return arguments.run(arguments)  # type: ignore[no-any-return]

    return run_command(run)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="carbon corpus",
        description="Build, inspect and publish corpora.",
        epilog=epilogue("docs/corpus.md", *_COMMANDS["build"].examples),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        inner = add_command(commands, name, command.sentence, command.page, *command.examples)
        command.add_arguments(inner.add_argument)
        inner.set_defaults(run=command.run)
    return parser


def _add_build(add: Add) -> None:
    add("--config", help="TOML recipe; if not given, all keys come from --set")
    add(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change a key, such as assemblies.0.genome=genome.fa; may be repeated",
    )  # fmt: skip
    add("--dry-run", action="store_true", help="print the recipe and an estimate, and stop")


def _add_inspect(add: Add) -> None:
    add("corpus", help="folder or URL of a corpus")
    add("--source", help="source of the record to print")
    add("--split", default="train", choices=("train", "test"), help="split of the record")
    add("--row", type=natural, help="row of the record in its source and split, from 0")
    add("--name", help="name of the record, or of a rejected record")
    add("--genome", help="compare every base of the record with this FASTA or GenBank")
    add("--dropped", action="store_true", help="print rejected records with their reasons")
    add("--report", type=Path, metavar="HTML", help="write a page with pictures")
    add("--tokens", type=natural, default=1_000_000_000, help="training tokens that it plans for")


def _add_publish(add: Add) -> None:
    add("corpus", type=Path, help="folder of a corpus")
    add("--to", required=True, metavar="URL", help="s3://..., hf://datasets/...")


def _add_mixture(add: Add) -> None:
    add("corpus", help="folder or URL of a corpus")
    add(
        "--temperature", type=float, default=1.0,
        help="1 keeps the proportions of clades; a higher temperature evens them out",
    )  # fmt: skip
    add(
        "--weight", action="append", default=[], metavar="CLADE=W",
        help="weight of a clade; 1 if not given; may be repeated",
    )  # fmt: skip
    add(
        "--share", action="append", default=[], metavar="SOURCE=S",
        help="share of a source; if not given, of the published base mixture; may be repeated",
    )  # fmt: skip


def _add_download(add: Add) -> None:
    add("accessions", type=Path, help="accessions, one a line, and a species type after a tab")
    add("--output", type=Path, required=True, help="folder; the same command continues")
    add("--server", help="mirror of NCBI's public files")
    add("--keep-going", action="store_true", help="skip and report what cannot be downloaded")


def _add_simulate(add: Add) -> None:
    add("--output", type=Path, required=True, help="folder to create")
    add("--genome-bp", type=natural, default=2_400_000, help="length of the genome")
    add("--variants", type=natural, default=900, help="number of labelled variants")
    add("--seed", type=natural, default=0, help="random seed")


def _add_variants(add: Add) -> None:
    add("--genome", required=True, help="FASTA")
    add("--annotation", required=True, help="GFF3, GTF or BED with CDS")
    add(
        "--contigs", metavar="TABLE|chr",
        help="if annotation or regions use other contig names than the genome: a table, or chr",
    )  # fmt: skip
    add(
        "--genetic-code", metavar="N|CONTIG=N",
        help="NCBI translation table if the annotation states none; if not given, 1, and none for "
        "mitochondria, which are left out",
    )  # fmt: skip
    add(
        "--region", action="append", default=[],
        help="contig or contig:first-last; if not given, the whole genome; may be repeated",
    )  # fmt: skip
    add("--corpus", help="use the regions that this corpus holds out")
    add("--output", type=Path, required=True, help="VCF to write")
    add("--variants", type=natural, default=900, help="number of labelled variants")
    add("--seed", type=natural, default=0, help="random seed")


def _build(arguments: argparse.Namespace) -> None:
    from carbon.io.config import with_overrides
    from data_pipeline.build import build
    from data_pipeline.recipe import BuildConfig

    if arguments.config:
        config = BuildConfig.load(arguments.config, arguments.overrides)
    else:
        config = BuildConfig.from_table(with_overrides({}, arguments.overrides), "--set")
    if arguments.dry_run:
        from data_pipeline.estimate import estimated
        from data_pipeline.inputs.remote import with_public_urls

        # Logs keep stdout, so secrets are left out; the path of the cache may be printed.
        sys.stdout.write(with_public_urls(config).replace(cache=config.cache).to_toml())
        for line in estimated(config):
            print(f"# {line}")
        return
    manifest = build(config)
    if manifest:
        _say_what_is_not_there(manifest)
        print_summary({"held_out": manifest["held_out"], **manifest["sources"]})


def _say_what_is_not_there(manifest: dict[str, Any]) -> None:
    """Report records that were left out, and sources without training records."""
    reasons: Counter[str] = Counter()
    for name, times in manifest["dropped"].items():
        reasons[name.rpartition(":")[2]] += times
    if reasons:
        told = ", ".join(f"{reason} {times:,}" for reason, times in reasons.most_common(4))
        say(f"left out: {told}{' ...' if len(reasons) > 4 else ''}; dropped.tsv lists all")
    for source, splits in manifest["sources"].items():
        if not splits["train"]["records"]:
            say(
                f"warning: source '{source}' has no record to train on: is there what it is cut "
                "from (transcripts with CDS for mrna), and is not all of it held out?"
            )


def _download(arguments: argparse.Namespace) -> int:
    from data_pipeline.inputs.ncbi import NCBI, RECIPE, download, read_accessions

    server, output = arguments.server or NCBI, arguments.output
    with locked_folder(output):
        accessions = read_accessions(arguments.accessions)
        downloaded = download(accessions, output, server, arguments.keep_going)
    print(behind_links(output) / RECIPE)
    return 1 if downloaded.skipped else 0  # with --keep-going


def _inspect(arguments: argparse.Namespace) -> int:
    from data_pipeline.inspect.record import inspect_dropped, inspect_record
    from data_pipeline.inspect.report import inspect_summary, write_report

    if arguments.report:
        write_report(arguments.corpus, arguments.report, arguments.tokens)
    elif arguments.dropped:
        inspect_dropped(arguments.corpus, arguments.name)
    elif arguments.source:
        which = arguments.name if arguments.row is None else arguments.row
        if which is None:
            raise UserError("--source: give --row or --name of the record to show")
        place = (arguments.corpus, arguments.source, arguments.split)
        return inspect_record(*place, which, arguments.genome)
    else:
        inspect_summary(arguments.corpus)
    return 0


def _publish(arguments: argparse.Namespace) -> None:
    from data_pipeline.publish import publish_to

    publish_to(arguments.corpus, arguments.to)


def _mixture(arguments: argparse.Namespace) -> None:
    from carbon.corpus import check_corpus, read_manifest
    from data_pipeline.inspect.clades import mixture_by_clade, whole_sources
    from data_pipeline.inspect.report import BASE_MIXTURE

    manifest = read_manifest(arguments.corpus)
    check_corpus(arguments.corpus)
    wholes = whole_sources(manifest)
    there = {name: share for name, share in BASE_MIXTURE.items() if name in wholes}
    shares = _numbers(arguments.share) or there or dict.fromkeys(wholes, 1.0)
    weights = _numbers(arguments.weight)
    found = mixture_by_clade(manifest, shares, arguments.temperature, weights)
    print(f"mixture = {{ {', '.join(f'{json.dumps(k)} = {v}' for k, v in found.items())} }}")


def _numbers(given: list[str]) -> dict[str, float]:
    """Read `name=number`s.

    Raises:
        UserError: one is written otherwise.
    """
    try:
        pairs = (each.rpartition("=") for each in given)
        return {name: float(number) for name, _, number in pairs}
    except ValueError:
        raise UserError(f"{' '.join(given)}: write each as NAME=NUMBER") from None


def _simulate(arguments: argparse.Namespace) -> None:
    from data_pipeline.simulate import simulate

    with atomic_folder(arguments.output) as output:
        say(f"simulating {arguments.genome_bp:,} bp")
        simulate(output, arguments.genome_bp, arguments.seed, arguments.variants)


def _variants(arguments: argparse.Namespace) -> None:
    from carbon.corpus import held_out_of
    from carbon.genome import Reference, contig_names, read_gene_file, region_by_name
    from carbon.genome.contig_names import names_table
    from data_pipeline.variants import write_labelled_variants

    table = names_table(arguments.contigs)
    check_no_input(arguments.output, arguments.genome, arguments.annotation, table)
    with Reference(arguments.genome) as reference:
        lengths_bp = reference.contig_lengths_bp
        contigs = contig_names(arguments.contigs, lengths_bp)
        annotation = read_gene_file(
            arguments.annotation, reference, contigs, arguments.genetic_code
        )
        names = arguments.region
        if arguments.corpus:
            names = names + held_out_of(arguments.corpus, reference.path, lengths_bp)
        regions = [region_by_name(name, lengths_bp, contigs) for name in names or lengths_bp]
        of_effect = write_labelled_variants(
            arguments.output, reference, annotation, regions, arguments.variants, arguments.seed
        )
    effects = ", ".join(f"{count:,} {effect}" for effect, count in sorted(of_effect.items()))
    say(f"{of_effect.total():,} variants (--variants {arguments.variants}): {effects}")


class _Command(NamedTuple):
    sentence: str
    examples: tuple[str, str]
    add_arguments: Callable[[Add], None]
    run: Callable[[argparse.Namespace], int | None]
    page: str = "docs/corpus.md"


_ONE_GENOME = (
    "--set assemblies.0.genome=genome.fa --set assemblies.0.annotation=genes.gff3 "
    "--set output=corpus"
)
_COMMANDS = {
    "build": _Command(
        "Build a corpus from genomes, annotations, sequences or reads",
        (f"carbon corpus build {_ONE_GENOME} --dry-run", f"carbon corpus build {_ONE_GENOME}"),
        _add_build,
        _build,
    ),
    "inspect": _Command(
        "Print the contents of a corpus or one record, or write a report",
        (
            "carbon corpus inspect corpus --source mrna --row 0 --genome genome.fa",
            "carbon corpus inspect corpus --report corpus.html",
        ),
        _add_inspect,
        _inspect,
    ),
    "publish": _Command(
        "Copy a corpus to a bucket, or to the Hub as a dataset",
        (
            "carbon corpus publish corpus --to s3://lab/corpus",
            "carbon corpus publish corpus --to hf://datasets/ME/corpus",
        ),
        _add_publish,
        _publish,
    ),
    "mixture": _Command(
        "Print the mixture of a training phase, by clade",
        (
            "carbon corpus mixture corpus",
            "carbon corpus mixture corpus --temperature 3 --share mrna=0.2",
        ),
        _add_mixture,
        _mixture,
    ),
    "download": _Command(
        "Download assemblies from NCBI by accession",
        (
            "carbon corpus download accessions.txt --output genomes",
            "carbon corpus download accessions.txt --output genomes --keep-going",
        ),
        _add_download,
        _download,
    ),
    "simulate": _Command(
        "Write a small annotated genome with labelled variants",
        (
            "carbon corpus simulate --output simulated",
            "carbon corpus simulate --output simulated --genome-bp 1000000 --seed 1",
        ),
        _add_simulate,
        _simulate,
        "docs/simulation.md",
    ),
    "variants": _Command(
        "Write variants of known effect for any annotated genome",
        (
            "carbon corpus variants --genome genome.fa --annotation genes.gff3 --output some.vcf",
            "carbon corpus variants --genome genome.fa --annotation genes.gff3 --corpus corpus "
            "--output held_out.vcf",
        ),
        _add_variants,
        _variants,
    ),
}


if __name__ == "__main__":
    raise SystemExit(main())
