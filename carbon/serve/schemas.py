"""What the endpoints take. A field that is not here is refused, and not ignored.

`Completion` and `Embedding` have the fields of OpenAI's API
(https://platform.openai.com/docs/api-reference/completions/create); those that make no sense of
DNA are taken with the value that changes nothing.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from carbon.genome import IUPAC_DNA
from carbon.inference import SamplingOptions
from carbon.inference.options import By, Mode, Pool, ProtocolName, Strands
from carbon.tokenizer import K


def _dna(text: str) -> str:
    wrong = sorted(set(text.upper()) - set(IUPAC_DNA))
    if wrong:
        raise ValueError(f"'{wrong[0]}' is no letter of DNA")
    return text


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


Dna = Annotated[str, AfterValidator(_dna)]
OneOrMore = Annotated[list[Dna], BeforeValidator(_listed), Field(min_length=1)]
Zero = Annotated[float, Field(ge=0, le=0)]


class Question(BaseModel):
    """What all endpoints take.

    Attributes:
        items_field: the field of which requests that are alike otherwise are read together.
        model: the name of the model that is served, or none.
        tags: metadata tags to condition on.
    """

    model_config = ConfigDict(extra="forbid")
    items_field: ClassVar[str]

    model: str | None = None
    tags: list[str] = []

    @property
    def settings(self) -> str:
        """All fields but the items, as text."""
        return self.model_dump_json(exclude={self.items_field})

    @property
    def size_bp(self) -> int:
        """Bases that are given, and asked for."""
        return sum(map(len, getattr(self, self.items_field)))


class Completion(Question):
    """Continue DNA: OpenAI's `/v1/completions`, a token being a 6-mer.

    Attributes:
        prompt: one or several; any length, none too.
        max_tokens: 6-mers to add; six bases each. 0 with `echo` scores the prompt.
        length_bp: bases to add, in the place of `max_tokens`.
        n: samples of each prompt.
        echo: give the prompt back before its continuation.
        logprobs: the log-probability of every token, and the so many most likely ones.
        seed: of the random numbers; drawn where none is given, and told.
        mode, temperature, top_k, top_p, min_p: as of `carbon.generate`.
    """

    items_field = "prompt"

    prompt: OneOrMore
    max_tokens: int = Field(16, ge=0)
    length_bp: int | None = Field(None, ge=0)
    n: int = Field(1, ge=1)
    echo: bool = False
    logprobs: int | None = Field(None, ge=0, le=20)
    seed: int | None = Field(None, ge=0, lt=2**64)
    mode: Mode = "token"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    best_of: Literal[1] | None = None
    frequency_penalty: Zero = 0
    presence_penalty: Zero = 0
    logit_bias: None = None
    stop: None = None
    stream: Literal[False] = False
    suffix: None = None
    user: str | None = None

    @property
    def added_bp(self) -> int:
        """Bases to add to each prompt."""
        return K * self.max_tokens if self.length_bp is None else self.length_bp

    @property
    def size_bp(self) -> int:
        """Bases that are given, and asked for."""
        return sum(len(prompt) + self.added_bp for prompt in self.prompt) * self.n

    @property
    def sampling(self) -> SamplingOptions:
        """How a 6-mer is drawn."""
        return {
            "mode": self.mode,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
        }


class Embedding(Question):
    """One vector a sequence: OpenAI's `/v1/embeddings`.

    Attributes:
        input: one or several sequences.
        encoding_format: a list of numbers, or base64 of float32, little-endian.
        pool, layer: as of `carbon.embed`.
    """

    items_field = "input"

    input: OneOrMore
    encoding_format: Literal["float", "base64"] = "float"
    pool: Pool = "mean"
    layer: int | None = None
    dimensions: None = None
    user: str | None = None


class Scoring(Question):
    """Log-likelihoods of sequences.

    Attributes:
        sequences: one or several.
        by, strands: as of `carbon.score`.
        bases: tell that of every base too.
    """

    items_field = "sequences"

    sequences: OneOrMore
    by: By = "chain"
    strands: Strands = "forward"
    bases: bool = False


class VariantScoring(Question):
    """Deltas of variants of the server's reference.

    Attributes:
        variants: such as `VIII:451500 A>G` or `VIII-451500-A-G`, the position from 1. An ALT
            without bases, such as `<DEL>`, gets a reason and no delta.
        protocol, window_bp, by, strands, offsets: as of `carbon.score_variants`.
    """

    items_field = "variants"

    variants: Annotated[list[str], BeforeValidator(_listed), Field(min_length=1)]
    protocol: ProtocolName = "centered"
    window_bp: int | None = None
    by: By = "chain"
    strands: Strands = "both"
    offsets: list[int] = [0]
