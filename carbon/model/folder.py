"""Find model folders, local, bundled or on the Hub, and check their files before loading."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from carbon.errors import ModelError, abridged
from carbon.io.structured import open_regular
from carbon.model.architectures import MODEL_SPECS
from carbon.model.stock import TOKENIZER_FILES, has_tokenizer, stock_config, stock_vocabulary
from carbon.pretrained import local_folder
from carbon.tokenizer import HYBRID, NATIVE, K, KmerVocabulary, Vocabulary, kmer_texts, six_mers
from carbon.tokenizer.byte_pairs import hybrid_vocabulary, read_dna_config, read_table

_SECONDS_TO_ANSWER = 5.0
_CONFIG = ("config.json", "dna_config.json", *TOKENIZER_FILES)
_FILES = (
    *_CONFIG,
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "background.json",
)


class Published(NamedTuple):
    """A model on the Hub.

    Attributes:
        name: `owner/name`.
        num_parameters: parameters of the network.
        gigabytes: size of the download, almost only weights in bfloat16.
    """

    name: str
    num_parameters: int
    gigabytes: float


# Sizes: the technical report's table 3 and the Hub's lists of files.
PUBLISHED = (
    Published("HuggingFaceBio/Carbon-500M", 511_894_528, 1.02),
    Published("HuggingFaceBio/Carbon-3B", 3_451_444_224, 6.90),
    Published("HuggingFaceBio/Carbon-8B", 8_255_705_088, 16.51),
)


def cached_folder(name: str) -> Path | None:
    """Return the cached folder with a model's config and weights, without contacting the Hub."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and any(folder.glob("model*.safetensors")) else None


@cache
def hub_folder(name: str, *, with_weights: bool) -> Path:
    """Return the cached folder with a model's config and tokenizer, or with all of its files.

    The Hub is checked for a newer version; if it is unreachable, the cached version is used.

    Raises:
        ModelError: the model does not exist, or the Hub is unreachable and the cache lacks it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = list(_FILES if with_weights else _CONFIG)
    reason_offline = why_unreachable()
    try:
        offline = reason_offline is not None
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=offline))
    except LocalEntryNotFoundError:
        raise ModelError(
            f"{name}: there is no such folder, and the Hub is unreachable: "
            f"{reason_offline or 'the connection broke'}; correct the path, or give a downloaded "
            "folder"
        ) from None
    except HfHubHTTPError as error:
        reason = (str(error).strip().splitlines() or ["no answer"])[-1]
        raise ModelError(
            f"{name}: there is no such folder, and the Hub has no such model for you ({reason})"
        ) from None


def why_unreachable() -> str | None:
    """Return why the Hub is unreachable, or None if it answers within some seconds.

    `snapshot_download` has no time limit: it waits for minutes for a proxy that does not answer.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_ANSWER)
    except Exception as error:  # the HTTP client differs between releases of the library
        if "Timeout" in type(error).__name__:
            return f"{host}: no answer within {_SECONDS_TO_ANSWER:g} s"
        return f"{host}: {str(error).rpartition('] ')[2].lower()}"
    return None


EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_CHUNK_BYTES = 1 << 24


class _Stored(NamedTuple):
    """A tensor of a safetensors file: dtype, shape and bytes, memory-mapped."""

    dtype: str
    shape: Sequence[int]
    values: NDArray[np.uint8]


def check_tying(folder: Path, config: Mapping[str, Any], files: Sequence[Path]) -> None:
    """Refuse a folder whose config ties the head to the embedding but whose weights differ.

    Libraries disagree about such a folder: transformers 5 uses the stored head, transformers 4 and
    vLLM the embedding.

    Args:
        folder: folder of the model.
        config: from `read_config`.
        files: complete weight files.

    Raises:
        ModelError: a tied head differs from the embedding.
    """
    if not config["tie_word_embeddings"]:
        return
    head, embedding = _stored(files, HEAD), _stored(files, EMBEDDING)
    if head is None or embedding is None or _are_equal(head, embedding):
        return
    raise ModelError(
        f"{folder}: config.json has tie_word_embeddings true, but {HEAD} differs from {EMBEDDING}; "
        "set it to false if the head was trained apart, or remove the head from the weights"
    )


def _stored(files: Sequence[Path], name: str) -> _Stored | None:
    for path in files:
        with path.open("rb") as file:
            num_bytes = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(num_bytes))
        if name in header:
            dtype, shape = header[name]["dtype"], header[name]["shape"]
            begin, end = header[name]["data_offsets"]
            values = np.memmap(path, np.uint8, "r", 8 + num_bytes + begin, (end - begin,))
            return _Stored(dtype, shape, values)
    return None


def _are_equal(one: _Stored, other: _Stored) -> bool:
    """Compare in chunks: heads of large models have gigabytes."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(
        np.array_equal(one.values[i : i + _CHUNK_BYTES], other.values[i : i + _CHUNK_BYTES])
        for i in range(0, len(one.values), _CHUNK_BYTES)
    )


# Key in config.json of the metadata tags that a native model was trained with; absent without tags.
TAGS_KEY = "carbon_tags"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_DTYPES = ("F64", "F32", "F16", "BF16")
# Older releases of transformers stored the causal mask of a GPT-2 with its weights.
_DTYPES_WITH_MASKS = (*_DTYPES, "BOOL", "U8")
_MOST = 2**31
_NUMBERS = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size",
            "num_attention_heads", "max_position_embeddings")  # fmt: skip

Shape = tuple[int, ...]


class ModelFolder(NamedTuple):
    """A folder whose config, weights and tokenizer are consistent.

    Attributes:
        path: the folder.
        config: content of config.json.
        shapes: shapes of its tensors, by name.
        vocabulary: the vocabulary of its rows, with the tags that a Carbon model was trained with.
    """

    path: Path
    config: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    vocabulary: KmerVocabulary

    @property
    def six_mers(self) -> Vocabulary:
        """The vocabulary of a model of Carbon's own; raises UserError for other models."""
        return six_mers(self.vocabulary, str(self.path))

    @property
    def num_parameters(self) -> int:
        """Parameters of the network; a head tied to the embedding counts once."""
        is_tied = self.config["tie_word_embeddings"]
        shapes = (s for name, s in self.shapes.items() if not (is_tied and name == HEAD))
        return sum(map(prod, shapes))


def model_folder(source: str | Path) -> ModelFolder:
    """Return the checked folder of a model: local, bundled, or on the Hub.

    A local folder takes precedence over a bundled model of that name, and both over the Hub. The
    model is Carbon's own, or a stock causal model of transformers whose tokens are k-mers.

    Raises:
        ModelError: the folder does not exist, is of no such model, or its files are inconsistent.
    """
    here = local_folder(source)
    name = "" if here else hub_name(source)
    folder = here or hub_folder(name, with_weights=False)
    of_kind = _stock_folder if is_stock(folder) else _carbon_folder
    return of_kind(folder, source, lambda: here or hub_folder(name, with_weights=True))


def carbon_folder(source: str | Path) -> ModelFolder:
    """Return the checked folder of a model of Carbon's own, as `model_folder` does.

    Raises:
        ModelError: as for `model_folder`.
        UserError: the model is not Carbon's own.
    """
    found = model_folder(source)
    six_mers(found.vocabulary, str(source))
    return found


Fetch = Callable[[], Path]
"""Returns a model's folder with all of its files."""


def is_stock(folder: Path) -> bool:
    """Return whether a folder has a tokenizer that is not Carbon's.

    Carbon's has `<dna>`, but a hybrid model may have Qwen3's alone. The number of rows decides only
    if the tokenizer lists no tokens: a padded vocabulary of 6-mers has as many rows as Carbon's.
    """
    path = folder / "config.json"
    if not path.is_file() or not has_tokenizer(folder):
        return False
    num_rows = read_table(path).get("vocab_size")
    if num_rows == HYBRID.size:
        return False
    tokens = _tokens_of(folder)
    return "<dna>" not in tokens if tokens else num_rows != NATIVE.size


def _tokens_of(folder: Path) -> set[str]:
    """Return the tokens that a folder's tokenizer lists."""
    one, table, lines = (folder / name for name in ("tokenizer.json", "vocab.json", "vocab.txt"))
    if one.is_file():
        return set(_token_ids(one))
    if table.is_file():
        return set(read_table(table))
    if lines.is_file():
        return set(lines.read_text(encoding="utf-8", errors="replace").split())
    return set()


def _stock_folder(folder: Path, source: str | Path, fetch: Fetch) -> ModelFolder:
    config = stock_config(folder, source)
    vocabulary = stock_vocabulary(folder, config, source)
    folder = fetch()
    check_tying(folder, config, weight_files(folder))
    return ModelFolder(folder, config, _shapes_of(folder, _DTYPES_WITH_MASKS), vocabulary)


def _carbon_folder(folder: Path, source: str | Path, fetch: Fetch) -> ModelFolder:
    config = read_config(folder)
    rows_vocabulary(config["vocab_size"], str(source))
    folder = fetch()
    vocabulary = _with_tags(folder, config, source)
    shapes = _shapes_of(folder)
    _check_shapes(folder, config, shapes)
    check_tying(folder, config, weight_files(folder))
    return ModelFolder(folder, config, shapes, vocabulary)


def hub_name(source: str | Path) -> str:
    """Return a possible name on the Hub: `owner/name`, without a local folder `owner`.

    Raises:
        ModelError: it cannot be a name on the Hub.
    """
    name = str(source)
    if Path(source).exists():
        raise ModelError(f"{source}: is not a folder; give the folder that config.json is in")
    if not _HUB_NAME.fullmatch(name) or Path(name).parent.is_dir():
        raise ModelError(f"{source}: no such model folder; `carbon models` lists names")
    return name


def read_config(folder: Path) -> dict[str, Any]:
    """Read a folder's config.json, and check that its numbers are possible.

    Raises:
        ModelError: it is missing, torn, of another type of model, or has impossible values.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder}: has no config.json; give the export/ folder of a run")
    config = read_table(path)
    if (kind := config.get("model_type")) not in MODEL_SPECS:
        known = " or ".join(map(repr, MODEL_SPECS))
        raise ModelError(
            f"{path}: model_type is {kind!r}, Carbon models are {known}; other models need their "
            "tokenizer files"
        )
    config["num_key_value_heads"] = config.get("num_key_value_heads") or config.get(
        "num_attention_heads"
    )
    for key in (*_NUMBERS, "num_key_value_heads"):
        value = config.get(key)
        if type(value) is not int or not 0 < value < _MOST:
            raise ModelError(f"{path}: {key} is {_short(value)}; it is a whole number above 0")
    is_tied = config.setdefault("tie_word_embeddings", False)
    if not isinstance(is_tied, bool):
        raise ModelError(
            f"{path}: tie_word_embeddings is {_short(is_tied)}; it is either true or false"
        )
    config["head_dim"] = config.get("head_dim") or (
        config["hidden_size"] // config["num_attention_heads"]
    )
    return config


def _short(value: Any) -> str:
    return abridged(repr(value))


def rows_vocabulary(num_rows: int, source: str) -> Vocabulary:
    """Return the native or the hybrid vocabulary, by the number of rows."""
    for vocabulary in (NATIVE, HYBRID):
        if num_rows == vocabulary.size:
            return vocabulary
    raise ModelError(
        f"{source}: {num_rows} rows fit neither the native vocabulary ({NATIVE.size}) "
        f"nor the hybrid one ({HYBRID.size}); other models need their tokenizer files"
    )


def _with_tags(folder: Path, config: Mapping[str, Any], source: str | Path) -> Vocabulary:
    """Return the vocabulary with the model's tags, checked against its tokenizer."""
    vocabulary = rows_vocabulary(config["vocab_size"], str(source))
    if vocabulary is HYBRID:
        if (folder / "dna_config.json").is_file():
            read_dna_config(folder / "dna_config.json")
        return hybrid_vocabulary(folder)
    _check_native_tokenizer(folder / "tokenizer.json")
    named = config.get(TAGS_KEY, [])
    names = named if isinstance(named, list) else [named]
    if strange := [name for name in names if name not in NATIVE.tags]:
        raise ModelError(
            f"{source}: {TAGS_KEY} in config.json has {_short(strange[0])}, which is none of "
            f"{', '.join(NATIVE.tags)}; is the model of a later version?"
        )
    return replace(vocabulary, tags=tuple(tag for tag in NATIVE.tags if tag in names))


def _check_native_tokenizer(path: Path) -> None:
    """Refuse a tokenizer.json with other ids of 6-mers.

    Scores would be wrong for weights trained with it, and stock transformers tokenizes DNA with it.
    """
    if not path.is_file():
        return
    ids = _token_ids(path)
    kmers = kmer_texts(K)
    ours = {"<dna>": NATIVE.begin, "<oov>": NATIVE.other}
    ours |= {kmer: NATIVE.first_kmer + index for index, kmer in enumerate(kmers)}
    if other := [token for token, number in ours.items() if ids.get(token) != number]:
        stored = ids.get(other[0], "missing")
        raise ModelError(
            f"{path}: is of another vocabulary ({other[0]} is {_short(stored)}, for Carbon "
            f"{ours[other[0]]}); put the model's own back, or remove the file if it is not the "
            "model's"
        )


def _token_ids(path: Path) -> dict[str, Any]:
    """Return the ids of a tokenizer.json by token, without its added tokens."""
    model = read_table(path).get("model")
    ids = model.get("vocab") if isinstance(model, dict) else None
    return ids if isinstance(ids, dict) else {}


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files that transformers reads: one, or all that an index names.

    Raises:
        ModelError: there are none, or the index is torn.
    """
    one, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if one.is_file():
        return [one]
    if not index.is_file():
        raise ModelError(f"{folder}: has no *.safetensors weights; export or copy the model again")
    named = read_table(index).get("weight_map")
    names = list(named.values()) if isinstance(named, dict) else []
    if not names or not all(isinstance(n, str) and re.fullmatch(r"[\w.-]+", n) for n in names):
        raise ModelError(f"{index}: weight_map is to name files of this folder; copy it again")
    files = [folder / name for name in sorted(set(names))]
    if absent := [file for file in files if not file.is_file()]:
        raise ModelError(f"{absent[0]}: no such file, but {index.name} names it; copy it again")
    return files


def _shapes_of(folder: Path, dtypes: Sequence[str] = _DTYPES) -> dict[str, Shape]:
    """Read the tensor shapes from the headers of the weight files."""
    shapes: dict[str, Shape] = {}
    for path in weight_files(folder):
        shapes |= tensor_shapes(path, dtypes)
    return shapes


def tensor_shapes(path: Path, dtypes: Sequence[str] = _DTYPES) -> dict[str, Shape]:
    """Return the shape of each tensor of a safetensors file from its header, without its values.

    Args:
        path: the file.
        dtypes: the dtypes of safetensors that it may have, by default floating-point numbers.

    Raises:
        ModelError: the file is absent, not a regular file, torn, or has tensors of another dtype.
    """
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, Shape] = {}
    try:
        open_regular(path, ModelError).close()
        with safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118
                tensor = file.get_slice(name)
                if tensor.get_dtype() not in dtypes:
                    raise ModelError(
                        f"{path}: {_short(name)} is {tensor.get_dtype()}; weights are one of "
                        f"{', '.join(_DTYPES)}"
                    )
                shapes[name] = tuple(tensor.get_shape())
    except (SafetensorError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{path}: the model cannot be loaded: {reason}") from None
    return shapes


def check_tensors(path: Path, expected: Mapping[str, Shape]) -> None:
    """Check that a safetensors file has exactly these tensors, before any is read.

    Raises:
        ModelError: the file is damaged, or the name or shape of a tensor differs.
    """
    shapes = tensor_shapes(path)
    for name in sorted({*shapes, *expected}):
        here, there = shapes.get(name, "absent"), expected.get(name, "none")
        if here != there:
            raise ModelError(f"{path}: {_short(name)} is {here}, expected {there}; copy it again")
    check_memory(4 * sum(map(prod, shapes.values())), path)


def check_memory(num_bytes: int, where: str | Path) -> None:
    """Refuse weights that are larger than the machine's memory, before any is allocated.

    Raises:
        ModelError: they are larger; the message begins with `where`.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > memory_bytes:
        raise ModelError(
            f"{where}: the weights take {num_bytes / 1e9:,.0f} GB, and this machine has "
            f"{memory_bytes / 1e9:,.0f} GB of memory; is it the right file?"
        )


def _check_shapes(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> None:
    """Raise ModelError unless the weights fit the network that the config describes."""
    layers = {int(match[1]) for name in shapes if (match := _LAYER.match(name))}
    if len(layers) != config["num_hidden_layers"]:
        raise ModelError(
            f"{folder}: config.json says {config['num_hidden_layers']} layers, the weights have "
            f"{len(layers)}; are they of one model?"
        )
    expected = dict(_expected(config))
    if missing := sorted(set(expected) - set(shapes)):
        raise ModelError(f"{folder}: the weights lack {len(missing)} tensors such as {missing[0]}")
    for name, shape in expected.items():
        if shapes[name] != shape:
            raise ModelError(
                f"{folder}: {name} is {shapes[name]}, by config.json it would be {shape}; are they "
                "of one model?"
            )
    known = {*expected, HEAD}
    for name in sorted(set(shapes) - known):
        if not name.endswith("rotary_emb.inv_freq"):  # written by older releases of transformers
            raise ModelError(
                f"{folder}: the weights have {_short(name)}, and the network of config.json does "
                "not; are they of one model?"
            )


def _expected(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    """Yield name and shape of every tensor of the network."""
    hidden, inner, rows = (
        config[key] for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    attention = {"q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden),
                 "o": (hidden, queries)}  # fmt: skip
    inside = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    yield "model.embed_tokens.weight", (rows, hidden)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield HEAD, (rows, hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
        for norm in MODEL_SPECS[config["model_type"]].head_norms:
            yield f"{at}.self_attn.{norm}.weight", (config["head_dim"],)
        for part, linears in (("self_attn", attention), ("mlp", inside)):
            bias = config.get("attention_bias" if part == "self_attn" else "mlp_bias")
            for name, shape in linears.items():
                yield f"{at}.{part}.{name}_proj.weight", shape
                if bias:
                    yield f"{at}.{part}.{name}_proj.bias", shape[:1]
