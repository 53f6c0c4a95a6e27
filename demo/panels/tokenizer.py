"""Tokenizer: DNA or text as tokens, in both vocabularies, shifted and reversed."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

from carbon.tokenizer import HYBRID, NATIVE, K
from carbon.tokenizer.text import TokenizedText, tokenize_hybrid, tokenize_native
from carbon.tokenizer.tokenizers import HybridDNATokenizer
from demo.fields import Field, Values
from demo.markup import download, escape, facts, paragraph, table
from demo.panel import Command, Example, Panel, Progress, Result, View
from demo.token_readings import dna_of_text, fasta_of_ways, readings_of, text_reading, ways_to_read

_FASTA = "sequence.fa"
_NO_BYTE_PAIRS = (
    "Text outside of <dna> has hybrid ids only where the loaded model is hybrid and its folder "
    "holds the byte pairs of Qwen3 (tokenizer.json, or vocab.json and merges.txt); here it is "
    "left out of the hybrid reading."
)
_MOST_LETTERS = 1200
_OFFSETS = tuple("012345")


class Tokenizer(Panel):
    """Shows tokens."""

    sentence = (
        "How DNA becomes tokens of six bases: ids, which bases are known, and what a shift of the "
        "offset or the other strand changes."
    )
    run_label = "Tokenize"
    views: ClassVar[tuple[View, ...]] = (
        View("offsets", "html", "The six offsets"),
        View("facts", "html", "In numbers"),
        View("tokens", "html", "Tokens"),
        View("fasta", "html", "Download"),
    )
    more: ClassVar[tuple[Example, ...]] = (
        Example("Lower case and a tail", {"text": "acgtacgtacgtacg", "shift": "1"}),
        Example("Tags before DNA",
                {"text": "<fungi_species><protein_coding_region><dna>ATGGCCAAG</dna>"}),
        Example("Text and DNA", {"text": "The motif <dna>CCCCCCTATAAA</dna> of CCCCCC"}),
        Example("A word in both vocabularies", {"text": "CCCCCCGGGGGG", "shift": "3"}),
    )  # fmt: skip

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        return (
            Field("text", "DNA, or text with <dna> tags", "ATGGCCAAGTTTNCCGGATTACAGRTTGA", "lines",
                  most=_MOST_LETTERS, info="either case; N and IUPAC codes are unknown bases"),
            Field("shift", "Offset beside offset 0", "2", "choice", _OFFSETS,
                  info="bases passed over before the first token"),
        )  # fmt: skip

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the readings, each a list of tokens."""
        text = values["text"]
        bases, shift = dna_of_text(text), int(values["shift"])
        readings = readings_of(bases, shift)
        if "<" in text:
            readings = [
                text_reading("as written, native", text, tokenize_native(text), NATIVE),
                text_reading("as written, hybrid", text, self._hybrid(text), HYBRID),
                *readings,
            ]
        missing = _NO_BYTE_PAIRS if "<" in text and self._byte_pairs is None else ""
        yield {"bases": bases, "readings": readings, "missing": missing}

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return offsets, facts, tables and download."""
        bases = result["bases"]
        tables = "".join(f"<div>{_table(reading)}</div>" for reading in result["readings"])
        known = sum(letter in "ACGTacgt" for letter in bases)
        note = paragraph(result["missing"]) if result["missing"] else ""
        return {
            "offsets": _offsets(bases) if bases else "",
            "facts": facts([
                ("bases", f"{len(bases):,}"),
                ("known", f"{known:,}"),
                ("tokens at offset 0", f"{-(-len(bases) // K):,}"),
                ("native ids", f"{NATIVE.size:,}"),
                ("hybrid ids", f"{HYBRID.size:,}"),
            ]),
            "tokens": f'{note}<div class="readings tall">{tables}</div>',
            "fasta": download(_FASTA, fasta_of_ways(bases, int(values["shift"]))) if bases else "",
        }  # fmt: skip

    def python(self, values: Values) -> str:
        """Return the program."""
        bases, shift = dna_of_text(values["text"]), int(values["shift"])
        ways = [(offset, strand) for _, offset, strand in ways_to_read(shift, bases)]
        program = (
            "from carbon.tokenizer import HYBRID, NATIVE, encode\n\n"
            f"for offset, strand in {ways!r}:\n"
            "    for vocabulary in (NATIVE, HYBRID):\n"
            f"        tokens = encode({bases!r}, vocabulary, offset=offset, strand=strand)\n"
            "        print(tokens.ids.tolist(), tokens.known.tolist())\n"
        )
        if "<" not in values["text"]:
            return program
        return (
            "from carbon.tokenizer.text import tokenize_native\n\n"
            f"print(tokenize_native({values['text']!r}).ids.tolist())\n\n"
            f"{self._hybrid_program(values['text'])}\n{program}"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command lines."""
        words = ["carbon", "tokenize", _FASTA]
        hybrid = [*words, "--vocabulary", "hybrid"]
        return [f"# {_FASTA}: download it on this page", words, hybrid]

    @cached_property
    def _byte_pairs(self) -> HybridDNATokenizer | None:
        """Tokenizer of the loaded model; None unless the model reads text and so has text tags."""
        vocabulary = self.lab.model.model.vocabulary
        if vocabulary.name != HYBRID.name or not vocabulary.tags:
            return None
        return HybridDNATokenizer.from_pretrained(self.lab.model_name)

    def _hybrid(self, text: str) -> TokenizedText:
        if self._byte_pairs is not None:
            return self._byte_pairs.tokenize_text(text)
        return tokenize_hybrid(text, lambda _: ([], []))

    def _hybrid_program(self, text: str) -> str:
        if self._byte_pairs is None:
            return (
                "from carbon.tokenizer.text import tokenize_hybrid\n\n"
                f"print(tokenize_hybrid({text!r}, lambda _: ([], [])).ids.tolist())\n"
            )
        return (
            "import carbon\n\n"
            f"hybrid = carbon.HybridDNATokenizer.from_pretrained({self.lab.model_name!r})\n"
            f"print(hybrid.tokenize_text({text!r}).ids.tolist())\n"
        )


def _table(reading: Mapping[str, Any]) -> str:
    """Return the tokens as a table, without columns that are empty for this reading."""
    tokens = reading["tokens"]
    columns = {
        "bases": ["-".join(map(str, token["span"] or ())) for token in tokens],
        "token": [token["text"] for token in tokens],
        "known": [token["known"] for token in tokens],
        "native id": [_shown(token["native_id"]) for token in tokens],
        "hybrid id": [_shown(token["hybrid_id"]) for token in tokens],
    }
    kept = {name: cells for name, cells in columns.items() if any(cells)}
    return table(tuple(kept), zip(*kept.values(), strict=True), reading["name"])


def _shown(token_id: int | None) -> str:
    return "" if token_id is None else str(token_id)


def _offsets(bases: str) -> str:
    """Return the sequence once per offset, with tokens in two alternating colours."""
    lines = [_offset_line(bases, offset) for offset in range(min(K, len(bases)))]
    return f'<div class="scroll offsets" tabindex="0">{"<br>".join(lines)}</div>'


def _offset_line(bases: str, offset: int) -> str:
    parts = [f"offset {offset}  {escape(bases[:offset])}"]
    for number, start in enumerate(range(offset, len(bases), K)):
        letters = bases[start : start + K]
        shown = "".join(
            letter if letter in "ACGTacgt" else f'<span class="unknown">{escape(letter)}</span>'
            for letter in letters
        )
        parts.append(f'<span class="{("odd", "even")[number % 2]}">{shown}</span>')
    return "".join(parts)
