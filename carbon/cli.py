"""The `carbon` command: tokenize, score sequences and variants, generate, look at models.

Handlers are imported when chosen, so that `--help` does not import torch.
"""

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from carbon.__version__ import __version__
from carbon.console import natural, run_command

if TYPE_CHECKING:
    from carbon.inference import Carbon


def main(argv: list[str] | None = None) -> int:
    """Run one verb; return its exit code: 0 done, 1 failed, 2 the user's mistake."""
    arguments = _parser().parse_args(argv)
    return run_command(lambda: arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="carbon", description="Generative DNA language models, on any machine."
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser(
        "tokenize",
        help="FASTA to token ids, or back",
        description="Writes a line a piece: contig, start, end, ids, and the letters of 6-mers "
        "that are not six known bases. Memory does not grow with the genome.",
    )
    verb.add_argument("input", nargs="?", default="-", help="FASTA, or - (default) for stdin")
    verb.add_argument("--decode", action="store_true", help="read such lines and write FASTA")
    verb.add_argument("--vocabulary", choices=["native", "hybrid"], default="native")
    verb.add_argument("--tag", action="append", default=[], dest="tags", help="metadata tag")
    verb.add_argument("--piece-tokens", type=natural, default=8192, help="most ids of a line")
    verb.set_defaults(run=_tokenize)

    verb = verbs.add_parser("score", help="log-likelihood of each sequence of a FASTA, as TSV")
    _add_model(verb)
    verb.add_argument("fasta", help="plain, bgzip or gzip")
    verb.set_defaults(run=_score)

    verb = verbs.add_parser(
        "variants",
        help="score the variants of a VCF",
        description="Writes log-likelihood(ALT) - log-likelihood(REF) in nats: negative means that "
        "the model finds the variant less likely.",
    )
    _add_model(verb)
    verb.add_argument("--reference", required=True, help="FASTA that the VCF refers to")
    verb.add_argument("--vcf", required=True, help="sorted VCF, plain or bgzip")
    verb.add_argument("--output", required=True, help="a .vcf, .vcf.gz, .tsv or .parquet to write")
    verb.add_argument("--protocol", choices=["centered"], default="centered")
    verb.add_argument("--window", type=int, metavar="BP", help="default: 8192 or what fits")
    verb.add_argument("--strands", choices=["forward", "reverse", "both"], default="forward")
    verb.set_defaults(run=_variants)

    verb = verbs.add_parser("generate", help="continue DNA prompts, as FASTA")
    _add_model(verb)
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
    verb.set_defaults(run=_generate)

    verb = verbs.add_parser("info", help="what a model folder is")
    verb.add_argument("model")
    verb.set_defaults(run=_info)

    verb = verbs.add_parser("doctor", help="what this machine has, and whether Carbon runs on it")
    verb.set_defaults(run=_doctor)
    return parser


def _add_model(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--model", required=True, help="model folder, or a name on the Hub")
    verb.add_argument("--device", default="auto", help="cpu, cuda, or auto (default)")
    verb.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    verb.add_argument("--tag", action="append", default=[], dest="tags", help="metadata tag")


def _load(arguments: argparse.Namespace) -> "Carbon":
    from carbon.inference import load

    return load(arguments.model, device=arguments.device, dtype=arguments.dtype)


def _tokenize(arguments: argparse.Namespace) -> None:
    from carbon.console import progress
    from carbon.errors import UserError
    from carbon.genome import Piece, read_pieces
    from carbon.genome.streams import BROKEN_GZIP, open_text
    from carbon.tokenizer import HYBRID, NATIVE, K
    from carbon.tokenizer.lines import fasta_lines, token_lines

    vocabulary = HYBRID if arguments.vocabulary == "hybrid" else NATIVE
    shown_as = "standard input" if arguments.input == "-" else arguments.input
    if arguments.decode:
        try:
            with open_text(Path(arguments.input)) as lines:
                _write_lines(fasta_lines(lines, shown_as, vocabulary))
        except (*BROKEN_GZIP, UnicodeDecodeError) as error:
            raise UserError(f"{shown_as}: is broken ({error}); write it again") from None
        return

    def counted(pieces: Iterator[Piece]) -> Iterator[Piece]:
        with progress("bases", None) as advance:
            for piece in pieces:
                yield piece
                advance(len(piece.bases))

    tags = tuple(arguments.tags)
    num_kmers = arguments.piece_tokens - len(vocabulary.prefix(tags))
    if num_kmers < 1:
        raise UserError(f"--piece-tokens {arguments.piece_tokens}: leaves no room for a 6-mer")
    pieces = counted(read_pieces(arguments.input, num_kmers * K))
    _write_lines(token_lines(pieces, vocabulary, tags))


def _write_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _score(arguments: argparse.Namespace) -> None:
    from carbon.console import track
    from carbon.genome import read_sequences

    records = read_sequences(arguments.fasta)
    names: deque[str] = deque()  # of sequences that are read and not yet scored

    def sequences() -> Iterator[str]:
        for name, sequence in records:
            names.append(name)
            yield sequence

    model = _load(arguments)
    scores = model.score(sequences(), tags=arguments.tags)
    print("name", "bases", "known_bases", "log_likelihood", "nats_per_base", sep="\t")
    for score in track(scores, "sequences"):
        numbers = f"{score.log_likelihood:.4f}\t{score.nats_per_base:.6f}"
        print(names.popleft(), score.length_bp, score.num_known_bases, numbers, sep="\t")


def _variants(arguments: argparse.Namespace) -> None:
    from carbon.inference.variant_files import VariantJob, run_variant_job, writer_for

    writer_for(arguments.output)  # a wrong ending is known before anything is loaded
    job = VariantJob(
        reference=Path(arguments.reference),
        vcf=Path(arguments.vcf),
        output=Path(arguments.output),
        window_bp=arguments.window,
        strands=arguments.strands,
        tags=tuple(arguments.tags),
    )
    print(json.dumps(run_variant_job(_load(arguments), job, arguments.dtype)))


def _generate(arguments: argparse.Namespace) -> None:
    from carbon.genome import read_sequences

    prompts = [("generated", arguments.prompt)]
    if arguments.prompts:
        prompts = list(read_sequences(arguments.prompts))
    named = [
        (f"{name}_{n}", prompt) for name, prompt in prompts for n in range(arguments.num_samples)
    ]
    texts = _load(arguments).generate(
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


def _info(arguments: argparse.Namespace) -> None:
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


def _doctor(arguments: argparse.Namespace) -> int:
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    def installed(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    packages = ("torch", "transformers", "tokenizers", "numpy", "pyarrow", "pysam")
    optional = ("matplotlib", "scikit-learn", "flash-attn")
    facts = {
        "carbon": __version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "packages": {package: installed(package) for package in packages},
        "optional": {package: installed(package) for package in optional},
        "self_test": _self_test(),
    }
    print(json.dumps(facts, indent=1))
    return 0 if facts["self_test"] == "ok" else 1


def _self_test() -> str:
    """Score and sample with a small random network: everything but the weights is exercised."""
    import torch
    from transformers import LlamaForCausalLM

    from carbon.inference import Carbon
    from carbon.model import PRESETS, LoadedModel
    from carbon.tokenizer import NATIVE

    try:
        network = LlamaForCausalLM(PRESETS["tiny"]())
        model = Carbon(LoadedModel(network.train(False), NATIVE))
        (score,) = model.score(["ACGTN" * 20])
        (text,) = model.generate(["ACGTA"], 20)
        finite = torch.isfinite(torch.tensor(score.log_likelihood))
        return "ok" if finite and len(text) == 20 else "wrong numbers"
    except (RuntimeError, OSError, ImportError) as error:
        return f"failed: {str(error).splitlines()[0]}"


if __name__ == "__main__":
    raise SystemExit(main())
