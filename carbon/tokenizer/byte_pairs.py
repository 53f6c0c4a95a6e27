"""Qwen3's byte-level BPE, with which the released models read text, loaded from a local folder."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as splitters
from typing_extensions import TypedDict

from carbon.errors import ModelError
from carbon.io.structured import JSON_OBJECT, read_json
from carbon.tokenizer.kmer import K
from carbon.tokenizer.text import DNA_END, DNA_START
from carbon.tokenizer.vocabulary import HYBRID, TAGS, Vocabulary

NUM_BYTE_PAIRS = 151_643
FIRST_DNA_ID = HYBRID.begin
# Qwen2 and Qwen3 split text before the merges into contractions, words, single digits, punctuation
# and white space (the `pre_tokenizer` of their tokenizer.json).
_PARTS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PROBE = "CCCCCC"  # the only word of the vocabulary that is also a 6-mer
_PROBE_ID = 91_443
# The added tokens of Qwen3, from id 151,643 on.
_ADDED = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    *("<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>"),
    *("<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
    *("<tool_response>", "</tool_response>", "<think>", "</think>"),
)
_LAST_SPECIAL = 151_656  # the added tokens after it, such as <think>, count as text


# Tags with which the released models were trained.
_RELEASED_TAGS = tuple(tag.text for tag in TAGS if tag.released)


def hybrid_vocabulary(folder: str | Path) -> Vocabulary:
    """Return the hybrid vocabulary, with its tags if the folder has byte pairs to encode them.

    Raises:
        ModelError: the files are damaged, or belong to another vocabulary than Qwen3's.
    """
    if not any((Path(folder) / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        return HYBRID
    return replace(HYBRID, tags=_RELEASED_TAGS, tag_ids=partial(_tag_ids, read_byte_pairs(folder)))


def _tag_ids(byte_pairs: Tokenizer, tags: tuple[str, ...]) -> list[int]:
    ids: list[int] = byte_pairs.encode("".join(tags), add_special_tokens=False).ids
    return ids


def read_byte_pairs(folder: str | Path) -> Tokenizer:
    """Read a folder's `tokenizer.json`, or its `vocab.json` and `merges.txt`.

    Raises:
        ModelError: the files are missing or damaged, or belong to another vocabulary than Qwen3's.
    """
    folder = Path(folder)
    names = ("tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json")
    one, vocab, merges, added = (folder / name for name in names)
    try:
        if one.is_file():
            tokenizer = _as_qwen3(Tokenizer.from_file(str(one)))
            tokenizer.no_truncation()
            tokenizer.no_padding()
        elif vocab.is_file() and merges.is_file():
            tokenizer = _from_vocab_and_merges(vocab, merges)
            tokenizer.add_tokens(_added_tokens(added))
        else:
            raise ModelError(
                f"{folder}: has no byte-pair vocabulary; give a folder with tokenizer.json, or "
                "vocab.json and merges.txt, of a Qwen3 model"
            )
    except ModelError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for any fault in a file
        reason = str(error).splitlines()[0]
        raise ModelError(f"{folder}: the byte-pair vocabulary cannot be read: {reason}") from None
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    if size != NUM_BYTE_PAIRS or tokenizer.token_to_id(_PROBE) != _PROBE_ID:
        raise ModelError(
            f"{folder}: a vocabulary of {size} byte pairs is not Qwen3's ({NUM_BYTE_PAIRS}); give "
            "the tokenizer files of a Qwen3 model"
        )
    if tokenizer.token_to_id("<|endoftext|>") != HYBRID.pad:
        raise ModelError(f"{folder}: <|endoftext|> is not token {HYBRID.pad} as in Qwen3")
    taken = [
        t.content for i, t in tokenizer.get_added_tokens_decoder().items() if i >= FIRST_DNA_ID
    ]
    if strange := [name for name in taken if name not in ("<dna>", "</dna>", "<oov>")]:
        raise ModelError(
            f"{folder}: the added token '{strange[0]}' has an id of the DNA vocabulary; take the "
            "tokenizer files of a Qwen3 model as they are published"
        )
    return tokenizer


def _from_vocab_and_merges(vocab: Path, merges: Path) -> Tokenizer:
    return _as_qwen3(Tokenizer(models.BPE.from_file(str(vocab), str(merges))))


def _as_qwen3(tokenizer: Tokenizer) -> Tokenizer:
    """Set how Qwen3 splits text; a pattern from a file is not executed, it can take for ever."""
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = splitters.Sequence(
        [
            splitters.Split(Regex(_PARTS), behavior="isolated"),
            splitters.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


class _AddedToken(TypedDict):
    id: int
    content: str


_AddedTokens: Any = dict[str, int] | list[_AddedToken]


def _added_tokens(path: Path) -> list[AddedToken]:
    """Read `added_tokens.json`, a table of ids or a list of objects, in the order of the ids.

    Without the file, return the added tokens of Qwen3.
    """
    if not path.is_file():
        names = dict(enumerate(_ADDED, start=NUM_BYTE_PAIRS))
    else:
        entries = read_json(path, _AddedTokens, error=ModelError, remedy="copy it again")
        if isinstance(entries, dict):
            entries = [{"id": i, "content": name} for name, i in entries.items()]
        names = {entry["id"]: entry["content"] for entry in entries if entry["id"] < FIRST_DNA_ID}
    return [
        AddedToken(names[i], normalized=False, special=i <= _LAST_SPECIAL) for i in sorted(names)
    ]


DNA_CONFIG: dict[str, Any] = {
    "k": K,
    "dna_start_id": HYBRID.begin,
    "dna_vocab_size": HYBRID.size - HYBRID.begin,
    "dna_special_tokens": [DNA_START, DNA_END, "<oov>"],
    "auto_dna_tags": False,
}


def read_dna_config(path: Path) -> dict[str, Any]:
    """Read `dna_config.json`; raises ModelError if it differs from the released vocabulary."""
    config = read_table(path)
    for key in ("k", "dna_start_id", "dna_special_tokens"):
        if config.get(key, DNA_CONFIG[key]) != DNA_CONFIG[key]:
            raise ModelError(
                f"{path}: {key} is {config[key]!r}, the released tokenizer has "
                f"{DNA_CONFIG[key]!r}; its ids would not fit"
            )
    return config


def read_table(path: Path) -> dict[str, Any]:
    """Read a JSON object of a model folder.

    Raises:
        ModelError: the file is too large or not valid JSON.
    """
    return read_json(path, JSON_OBJECT, error=ModelError, remedy="copy it again")
