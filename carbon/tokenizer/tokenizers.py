"""The native and hybrid tokenizers as `transformers` tokenizers.

With `return_labels=True` a call also returns the columns for objectives over bases: `labels`, the
id of the true 6-mer (-100 if no base of it is known), and `known_bases`, six bits per token.
"""

import itertools
import json
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from tokenizers import Tokenizer
from transformers import BatchEncoding, PreTrainedTokenizer
from transformers.utils.generic import PaddingStrategy

from carbon.errors import ModelError, UserError
from carbon.pretrained import local_folder
from carbon.tokenizer.byte_pairs import DNA_CONFIG, read_byte_pairs, read_dna_config, read_table
from carbon.tokenizer.kmer import BASES, KMER_DIGITS, NUM_KMERS, K
from carbon.tokenizer.stock import save_stock_tokenizer
from carbon.tokenizer.text import (
    DNA_END,
    DNA_START,
    TokenizedText,
    tokenize_hybrid,
    tokenize_native,
    tokenize_region,
)
from carbon.tokenizer.vocabulary import HYBRID, NATIVE, Vocabulary, native_tokens

# Signatures of `transformers` are wider than DNA needs, and partly untyped.
# mypy: disable-error-code="override, misc, no-untyped-call"


IGNORED = -100  # label that transformers and torch ignore
_PADDING = {"labels": IGNORED, "known_bases": 0, "offset_mapping": (0, 0)}


class DNATokenizer(PreTrainedTokenizer):
    """Base class of `NativeDNATokenizer` and `HybridDNATokenizer`.

    No special tokens are added to a text, regardless of `add_special_tokens`. Offsets count
    characters of the text, which inside DNA are bases; they exclude the padding of a tail.
    """

    vocabulary: ClassVar[Vocabulary]
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

    def tokenize_text(self, text: str) -> TokenizedText:
        """Return ids, 6-mers, mask and offsets of a text, as numpy arrays."""
        raise NotImplementedError

    def _add_tokens(self, new_tokens: list[Any], special_tokens: bool = False) -> int:
        """Refuse tokens outside of the vocabulary, whose ids would belong to other tokens."""
        vocabulary = self.get_vocab()
        if fresh := [str(token) for token in new_tokens if str(token) not in vocabulary]:
            raise UserError(
                f"'{fresh[0]}' is not of the {self.vocabulary.name} vocabulary, whose rows are "
                "fixed; write it as text, or take a tag that is there"
            )
        added: int = super()._add_tokens(new_tokens, special_tokens)
        return added

    @property
    def vocab_size(self) -> int:
        """Number of rows of the embedding."""
        return self.vocabulary.size

    def __len__(self) -> int:
        """Return `vocab_size`, so that resizing a model's embedding to it has no effect."""
        return self.vocab_size

    def tokenize(self, text: str, pair: None = None, **kwargs: Any) -> list[str]:
        """Return the tokens of a text."""
        del pair, kwargs
        tokens: list[str] = self.convert_ids_to_tokens(self.tokenize_text(text).ids.tolist())
        return tokens

    def _encode_plus(  # called by `__call__` and `encode`
        self,
        text: str | Sequence[str],
        text_pair: None = None,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        truncation_strategy: Any = False,
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: str | None = None,
        return_attention_mask: bool | None = None,
        return_labels: bool = False,
        **kwargs: Any,
    ) -> BatchEncoding:
        texts = _checked_texts(text, text_pair, kwargs)
        cut = max_length if truncation_strategy not in (False, None, "do_not_truncate") else None
        rows = [
            self._columns(self._truncated(self.tokenize_text(one), cut), return_labels, kwargs)
            for one in texts
        ]
        if return_attention_mask is not False:
            for row in rows:
                row["attention_mask"] = [1] * len(row["input_ids"])
        columns = {name: [row[name] for row in rows] for name in (rows or [{"input_ids": []}])[0]}
        padded = self.pad(
            BatchEncoding(columns if not isinstance(text, str) else rows[0]),
            padding=padding_strategy,
            max_length=max_length,
            pad_to_multiple_of=pad_to_multiple_of,
            padding_side=padding_side,
            return_attention_mask=return_attention_mask,
            verbose=False,
        )
        return BatchEncoding(
            dict(padded), tensor_type=return_tensors, prepend_batch_axis=isinstance(text, str)
        )

    def _truncated(self, tokens: TokenizedText, max_length: int | None) -> TokenizedText:
        if max_length is None or len(tokens.ids) <= max_length:
            return tokens
        first = len(tokens.ids) - max_length if self.truncation_side == "left" else 0
        part = slice(first, first + max_length)
        ids, kmers, known, offsets = tokens
        return TokenizedText(ids[part], kmers[part], known[part], offsets[part])

    def _columns(
        self, tokens: TokenizedText, labels: bool, wanted: dict[str, Any]
    ) -> dict[str, Any]:
        columns: dict[str, Any] = {"input_ids": tokens.ids.tolist()}
        if wanted.get("return_token_type_ids"):
            columns["token_type_ids"] = [0] * len(tokens.ids)
        if wanted.get("return_special_tokens_mask"):
            columns["special_tokens_mask"] = np.isin(tokens.ids, self._special_ids()).tolist()
            columns["special_tokens_mask"] = [int(s) for s in columns["special_tokens_mask"]]
        if wanted.get("return_offsets_mapping"):
            columns["offset_mapping"] = [tuple(span) for span in tokens.offsets.tolist()]
        if wanted.get("return_length"):
            columns["length"] = len(tokens.ids)
        if labels:
            ids = tokens.kmers + self.vocabulary.first_kmer
            columns["labels"] = np.where(tokens.known > 0, ids, IGNORED).tolist()
            columns["known_bases"] = tokens.known.tolist()
        return columns

    def _pad(
        self,
        encoded_inputs: dict[str, Any],
        max_length: int | None = None,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
    ) -> dict[str, Any]:
        length = len(encoded_inputs["input_ids"])
        padded: dict[str, Any] = super()._pad(
            encoded_inputs,
            max_length,
            padding_strategy,
            pad_to_multiple_of,
            padding_side,
            return_attention_mask,
        )
        missing = len(padded["input_ids"]) - length
        for name in _PADDING.keys() & padded.keys():
            if not isinstance(padded[name], list):
                continue  # the label of a whole sequence
            padding = [_PADDING[name]] * missing
            left = (padding_side or self.padding_side) == "left"
            padded[name] = padding + padded[name] if left else padded[name] + padding
        return padded

    def _special_ids(self) -> list[int]:
        """Return the ids that `skip_special_tokens` skips."""
        raise NotImplementedError

    def _decode(
        self,
        token_ids: int | list[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
        **kwargs: Any,
    ) -> str:
        del clean_up_tokenization_spaces, kwargs
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self._join(ids, frozenset(self._special_ids() if skip_special_tokens else ()))

    def _join(self, ids: list[int], skipped: frozenset[int]) -> str:
        return "".join(self._convert_id_to_token(i) for i in ids if i not in skipped)

    def _convert_token_to_id(self, token: str) -> int:
        return self.get_vocab().get(token, self.vocabulary.other)

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Join tokens as `decode` joins their ids."""
        return self._join([self._convert_token_to_id(token) for token in tokens], frozenset())


def _checked_texts(text: str | Sequence[str], text_pair: None, wanted: dict[str, Any]) -> list[str]:
    for unknown in ("return_overflowing_tokens", "is_split_into_words", "stride"):
        if wanted.get(unknown):
            raise UserError(f"{unknown}: not for DNA; cut the sequence before it is tokenized")
    if text_pair is not None:
        raise UserError("text_pair: DNA has no pairs; join the two in one text")
    texts = [text] if isinstance(text, str) else list(text)
    if not all(isinstance(one, str) for one in texts):
        raise UserError("give a text or a list of texts to tokenize")
    return texts


# Signatures of `transformers` are wider than DNA needs, and partly untyped.
# mypy: disable-error-code="override, misc, no-untyped-call"


_KMERS = ["".join(BASES[d] for d in digits) for digits in KMER_DIGITS]
# Twelve letters in a row, or two blocks of ten as in GenBank; U for RNA.
_LOOKS_LIKE_DNA = re.compile(r"[ACGTUNacgtun]{12,}|\b[ACGTUNacgtun]{10}\s+[ACGTUNacgtun]{10}\b")


class NativeDNATokenizer(DNATokenizer):
    """DNA and metadata tags: `tokenizer("<fungi_species><dna>ACGTACGT</dna>")`.

    `save_pretrained` writes a `tokenizer.json` that stock `AutoTokenizer` loads without this
    package, with the same ids.
    """

    vocabulary = NATIVE

    def __init__(self, **kwargs: Any) -> None:
        """Create the tokenizer with settings of `transformers`, such as `padding_side`."""
        self._tokens = native_tokens() | {
            kmer: NATIVE.first_kmer + i for i, kmer in enumerate(_KMERS)
        }
        self._names = list(self._tokens)
        super().__init__(**(kwargs | {"pad_token": "<pad>", "unk_token": "<oov>"}))

    @classmethod
    def from_pretrained(cls, source: str | Path, *inputs: Any, **kwargs: Any) -> Self:
        """Load a local folder, a bundled model, or a repository of the Hugging Face Hub."""
        loaded: Self = super().from_pretrained(local_folder(source) or source, *inputs, **kwargs)
        return loaded

    def tokenize_text(self, text: str) -> TokenizedText:  # noqa: D102
        return tokenize_native(text)

    def get_vocab(self) -> dict[str, int]:
        """Return token to id."""
        return dict(self._tokens)

    def save_pretrained(  # noqa: D102
        self, save_directory: str | Path, **kwargs: Any
    ) -> tuple[str, ...]:
        del kwargs
        return save_stock_tokenizer(
            save_directory,
            padding_side=self.padding_side,
            truncation_side=self.truncation_side,
            model_max_length=self.model_max_length,
        )

    def _special_ids(self) -> list[int]:
        return list(range(NATIVE.first_kmer))

    def _convert_id_to_token(self, index: int) -> str:
        if not 0 <= index < NATIVE.size:
            raise UserError(f"id {index} is not of the native vocabulary: 0 to {NATIVE.size - 1}")
        return self._names[index]


class HybridDNATokenizer(DNATokenizer):
    """Tokenizer of the released models for text and DNA, from local files only.

    Text outside of `<dna>` ... `</dna>` becomes byte pairs of Qwen3, and text inside it 6-mers.
    `CCCCCC` is in both vocabularies, with different ids. Raises ModelError if the files are missing
    or belong to another vocabulary.
    """

    vocabulary = HYBRID
    vocab_files_names: ClassVar[dict[str, str]] = {
        "vocab_file": "vocab.json",
        "merges_file": "merges.txt",
        "dna_config_file": "dna_config.json",
    }

    def __init__(
        self,
        base_tokenizer_path: str | Path | None = None,
        k: int = K,
        auto_dna_tags: bool | None = None,
        vocab_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Read a folder with Qwen3's tokenizer files, and `dna_config.json` if present.

        Args:
            base_tokenizer_path: the folder; `from_pretrained(folder)` is equivalent.
            k: bases per token; only 6 is supported.
            auto_dna_tags: whether to read text without `<dna>` as one region of DNA.
            vocab_file: `vocab.json` in the Hub's cache, next to the other files.
            kwargs: settings of `transformers` tokenizers.
        """
        if base_tokenizer_path is None and vocab_file is None:
            raise ModelError(
                "HybridDNATokenizer: give base_tokenizer_path, a local folder with the tokenizer "
                "files of a Qwen3 model; nothing is downloaded"
            )
        folder = Path(base_tokenizer_path or Path(str(vocab_file)).parent)
        config_path = folder / "dna_config.json"
        config = read_dna_config(config_path) if config_path.is_file() else {}
        if k != K:
            raise ModelError(f"k = {k}: the released vocabulary is one of {K}-mers")
        self.auto_dna_tags = config.get("auto_dna_tags", False)
        if auto_dna_tags is not None:
            self.auto_dna_tags = auto_dna_tags
        self.byte_pairs: Tokenizer = read_byte_pairs(folder)
        self._vocab = _hybrid_vocab(self.byte_pairs)
        self._has_warned = False
        settings = {name: kwargs[name] for name in _SETTINGS if name in kwargs}
        special = {"pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<oov>"}
        super().__init__(**settings, **special)

    @classmethod
    def from_pretrained(cls, source: str | Path, *inputs: Any, **kwargs: Any) -> Self:
        """Load a local folder, or a repository of the Hugging Face Hub."""
        if not Path(source).is_dir():
            loaded: Self = super().from_pretrained(source, *inputs, **kwargs)
            return loaded
        path = Path(source) / "tokenizer_config.json"
        saved = read_table(path) if path.is_file() else {}
        settings = {name: saved[name] for name in _SETTINGS if name in saved}
        template = Path(source) / "chat_template.jinja"
        if template.is_file():
            settings["chat_template"] = template.read_text(encoding="utf-8")
        return cls(source, *inputs, **(settings | kwargs))

    def tokenize_text(self, text: str) -> TokenizedText:  # noqa: D102
        if DNA_START not in text and self.auto_dna_tags:
            return tokenize_region(text)
        return tokenize_hybrid(text, self._encode_byte_pairs)

    def _encode_byte_pairs(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        looks = None if self._has_warned else _LOOKS_LIKE_DNA.search(text)
        if looks:
            self._has_warned = True
            warnings.warn(
                f"'{looks[0][:24]}' looks like DNA but is read as text: write <dna> before it, or "
                "set auto_dna_tags=True (said once)",
                stacklevel=2,
            )
        encoding = self.byte_pairs.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def get_vocab(self) -> dict[str, int]:
        """Return token to id; `CCCCCC` has the id of its byte pair, as in the released one."""
        return dict(self._vocab)

    def save_vocabulary(
        self, save_directory: str, filename_prefix: str | None = None
    ) -> tuple[str, ...]:
        """Write the byte pairs and `dna_config.json`, in the layout of the released folders.

        No `tokenizer.json` is written, because stock `AutoTokenizer` would read DNA as text with
        it. Without the file it raises an error.
        """
        if filename_prefix:
            raise UserError("filename_prefix: the names of the files are fixed")
        folder = Path(save_directory)
        added = self.byte_pairs.get_added_tokens_decoder().items()
        tables = {
            "added_tokens.json": {token.content: i for i, token in added},
            "dna_config.json": DNA_CONFIG | {"auto_dna_tags": self.auto_dna_tags},
        }
        for name, table in tables.items():
            (folder / name).write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        files = self.byte_pairs.model.save(str(folder))
        return (*files, *(str(folder / name) for name in tables))

    def _special_ids(self) -> list[int]:
        added = self.byte_pairs.get_added_tokens_decoder()
        return [
            *(i for i, token in added.items() if token.special),
            *range(HYBRID.begin, _HYBRID_KMERS.start),
            *range(_HYBRID_KMERS.stop, HYBRID.size),
        ]

    def _convert_id_to_token(self, index: int) -> str:
        if not 0 <= index < HYBRID.size:
            raise UserError(f"id {index} is not of the hybrid vocabulary: 0 to {HYBRID.size - 1}")
        if index in _HYBRID_KMERS:
            return _KMERS[index - HYBRID.first_kmer]
        name = self.byte_pairs.id_to_token(index)
        return name or _DNA_TOKENS.get(index, f"<unused_{index}>")

    def _join(self, ids: list[int], skipped: frozenset[int]) -> str:
        """Join tokens; byte pairs inside a region are dropped, as in the released one."""
        parts: list[str] = []
        inside = False
        for is_text, run in itertools.groupby(ids, lambda i: i < HYBRID.begin):
            if is_text and not inside:
                shown = [i for i in run if i not in skipped]
                parts.append(self.byte_pairs.decode(shown, skip_special_tokens=False))
            elif not is_text:
                for i in run:
                    inside = i == HYBRID.begin or (inside and i != HYBRID.dna_end)
                    parts.append("" if i in skipped else self._convert_id_to_token(i))
        return "".join(parts)


_SETTINGS = ("padding_side", "truncation_side", "model_max_length", "chat_template")
_HYBRID_KMERS = range(HYBRID.first_kmer, HYBRID.first_kmer + NUM_KMERS)
_DNA_TOKENS = {HYBRID.begin: DNA_START, HYBRID.dna_end: DNA_END, HYBRID.other: "<oov>"}


def _hybrid_vocab(byte_pairs: Tokenizer) -> dict[str, int]:
    kmers = {kmer: HYBRID.first_kmer + i for i, kmer in enumerate(_KMERS)}
    tags = {name: i for i, name in _DNA_TOKENS.items()}
    known: dict[str, int] = byte_pairs.get_vocab()
    return tags | kmers | known
