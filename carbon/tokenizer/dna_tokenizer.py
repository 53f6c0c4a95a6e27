"""What both vocabularies share as `transformers` tokenizers: calls, padding, and the mask of bases.

Beside the usual columns, `return_labels=True` gives what objectives over bases need: `labels`, the
id of the true 6-mer (-100 where none of its bases is known), and `known_bases`, six bits a token.
"""

# Signatures of `transformers` are wider than what DNA needs, and partly untyped.
# mypy: disable-error-code="override, misc, no-untyped-call"

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizer
from transformers.utils.generic import PaddingStrategy

from carbon.errors import UserError
from carbon.tokenizer.text import TokenizedText
from carbon.tokenizer.vocabulary import Vocabulary

IGNORED = -100  # the label that transformers and torch leave out
_PADDING = {"labels": IGNORED, "known_bases": 0, "offset_mapping": (0, 0)}


class DNATokenizer(PreTrainedTokenizer):
    """What both share; use `NativeDNATokenizer` or `HybridDNATokenizer`.

    Nothing is ever added to a text, whatever `add_special_tokens` says. Offsets count characters of
    the text, so that inside DNA they count bases; the padding of a tail is not among them.
    """

    vocabulary: ClassVar[Vocabulary]
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

    def tokenize_text(self, text: str) -> TokenizedText:
        """Return ids, 6-mers, mask and offsets of a text as numpy arrays."""
        raise NotImplementedError

    def _add_tokens(self, new_tokens: list[Any], special_tokens: bool = False) -> int:
        """Refuse a token that is not of the vocabulary: its id would be that of another one."""
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
        """Rows of the embedding that the vocabulary is made for."""
        return self.vocabulary.size

    def __len__(self) -> int:
        """Return `vocab_size`, so that resizing a model's embedding to it changes nothing."""
        return self.vocab_size

    def tokenize(self, text: str, pair: None = None, **kwargs: Any) -> list[str]:
        """Return the tokens of a text."""
        del pair, kwargs
        tokens: list[str] = self.convert_ids_to_tokens(self.tokenize_text(text).ids.tolist())
        return tokens

    def _encode_plus(  # the one method behind `__call__` and `encode`
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
        kept = slice(first, first + max_length)
        return TokenizedText(
            tokens.ids[kept], tokens.kmers[kept], tokens.known[kept], tokens.offsets[kept]
        )

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
        return self.get_vocab().get(token, self.vocabulary.oov)

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
