"""Write a `tokenizer.json` that stock `AutoTokenizer` loads without this package or remote code.

It is a WordLevel model over the 6-mers. Tails need no vocabulary entries: the normalizer appends
five A to every region of DNA, and the pre-tokenizer keeps whole 6-mers and drops the rest. So a
tail of one to five bases is padded with A, and a multiple of six bases is not padded.
"""

import json
from pathlib import Path
from typing import Any

from carbon.tokenizer.kmer import BASES, K, kmer_texts
from carbon.tokenizer.vocabulary import NATIVE, native_tokens


def save_stock_tokenizer(folder: str | Path, **settings: Any) -> tuple[str, ...]:
    """Write `tokenizer.json` and `tokenizer_config.json` of the native vocabulary into a folder.

    Args:
        folder: folder, created if it does not exist.
        settings: settings of a `transformers` tokenizer, such as `padding_side`.

    Returns:
        Names of the files.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
    from tokenizers import pre_tokenizers as splitters
    from transformers import PreTrainedTokenizerFast

    specials = native_tokens()
    vocabulary = specials | {kmer: NATIVE.first_kmer + i for i, kmer in enumerate(kmer_texts(K))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<oov>"))
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in specials])
    upper = [normalizers.Replace(base.lower(), base) for base in BASES]
    pad_tail = normalizers.Replace(Regex(r"\z"), "A" * (K - 1))
    tokenizer.normalizer = normalizers.Sequence([*upper, pad_tail])
    tokenizer.pre_tokenizer = splitters.Split(
        Regex(rf"[\s\S]{{{K}}}"), behavior="removed", invert=True
    )
    tokenizer.decoder = decoders.Fuse()
    stock = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<oov>",
        clean_up_tokenization_spaces=False,
        **({"padding_side": "right"} | settings),
    )
    files: tuple[str, ...] = stock.save_pretrained(folder)
    _name_class_for_older_readers(Path(folder) / "tokenizer_config.json")
    return files


def _name_class_for_older_readers(config_path: Path) -> None:
    """Write a class name that transformers 4 has, too; versions 4 and 5 load the file with it."""
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config_path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
