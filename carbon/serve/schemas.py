"""Requests of the endpoints. Unknown fields are refused, and numbers that are not finite.

`Completion` and `Embedding` have the fields of OpenAI's API
(https://platform.openai.com/docs/api-reference/completions/create). Fields without a meaning for
DNA accept only the value without an effect.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from carbon.genome.alphabet import checked_sequence
from carbon.inference import SamplingKeywords
from carbon.inference.options import By, Mode, Pool, ProtocolName, ScoreName, Strands
from carbon.tokenizer import K


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Dna = Annotated[str, AfterValidator(checked_sequence)]
OneOrMore = Annotated[list[Dna], FailFast(), BeforeValidator(_as_list), Field(min_length=1)]
Zero = Annotated[float, Field(ge=0, le=0)]


class ModelRequest(BaseModel):
    """Fields of all requests.

    Attributes:
        items_field: name of the field with the items; requests with equal other fields are batched.
        refused_fields: fields that accept only the value without an effect.
        model: name of the served model, or None.
        stream: send each result as a server-sent event as soon as it is there.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    items_field: ClassVar[str]
    refused_fields: ClassVar[tuple[str, ...]] = ()

    model: str | None = None
    stream: bool = False

    @property
    def settings(self) -> str:
        """All fields that results depend on but the items, as JSON."""
        return self.model_dump_json(exclude={self.items_field, "stream", "stream_options"})

    @property
    def num_items(self) -> int:
        """Number of results."""
        return len(getattr(self, self.items_field))


class TaggedRequest(ModelRequest):
    """Fields of requests for the language model.

    Attributes:
        tags: metadata tags to condition on.
    """

    tags: Annotated[list[str], FailFast()] = []


class Completion(TaggedRequest):
    """Continue DNA: OpenAI's `/v1/completions`, a token being a 6-mer.

    Attributes:
        prompt: one or several, of any length, also empty.
        max_tokens: 6-mers to add, of six bases each. 0 with `echo` scores the prompt.
        length_bp: bases to add, instead of `max_tokens`.
        n: samples of each prompt.
        echo: return the prompt before its continuation.
        logprobs: return the log-probability of every token, and this many most likely ones.
        seed: of the random numbers; drawn if not given, and returned.
        mode, temperature, top_k, top_p, min_p: as for `Model.generate`.
        stream_options: with `include_usage`, the number of tokens comes before the end of a stream.
    """

    items_field = "prompt"
    refused_fields = (
        "best_of",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "stop",
        "suffix",
    )

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
    stream_options: dict[Literal["include_usage"], bool] | None = None

    best_of: Literal[1] | None = None
    frequency_penalty: Zero = 0
    presence_penalty: Zero = 0
    logit_bias: None = None
    stop: None = None
    suffix: None = None
    user: str | None = None

    @property
    def has_total(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return (self.stream_options or {}).get("include_usage", False)

    @property
    def added_bp(self) -> int:
        """Bases to add to each prompt."""
        return K * self.max_tokens if self.length_bp is None else self.length_bp

    @property
    def num_items(self) -> int:
        """Number of samples."""
        return len(self.prompt) * self.n

    @property
    def prompts(self) -> list[str]:
        """The prompt of each sample."""
        return [prompt for prompt in self.prompt for _ in range(self.n)]

    @property
    def sampling(self) -> SamplingKeywords:
        """How a 6-mer is drawn."""
        return {
            "mode": self.mode,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
        }


class Embedding(TaggedRequest):
    """One vector for each sequence: OpenAI's `/v1/embeddings`.

    Attributes:
        input: one or several sequences.
        encoding_format: a list of numbers, or base64 of float32, little-endian.
        pool, layer: as for `Model.embed`.
    """

    items_field = "input"

    input: OneOrMore
    encoding_format: Literal["float", "base64"] = "float"
    pool: Pool = "mean"
    layer: int | None = None
    dimensions: None = None
    user: str | None = None


class Scoring(TaggedRequest):
    """Log-likelihoods of sequences.

    Attributes:
        sequences: one or several.
        by, strands: as for `Model.score`.
        bases: also return the log-likelihood of every base; null for an unknown one.
    """

    items_field = "sequences"

    sequences: OneOrMore
    by: By = "chain"
    strands: Strands = "forward"
    bases: bool = False


class VariantScoring(TaggedRequest):
    """Deltas of variants on the server's reference.

    Attributes:
        variants: such as `VIII:451500 A>G` or `VIII-451500-A-G`, position from 1. An ALT
            without bases, such as `<DEL>`, gets a reason instead of a delta.
        scores: besides the delta; `calibrated_delta` if the server has a calibration.
        protocol, window_bp, downstream_bp, least_context_bp, by, strands, offsets: as for
            `Model.score_variants`.
    """

    items_field = "variants"

    variants: Annotated[list[str], FailFast(), BeforeValidator(_as_list), Field(min_length=1)]
    scores: Annotated[list[ScoreName], FailFast()] = ["delta"]
    protocol: ProtocolName = "tiled"
    window_bp: int | None = None
    downstream_bp: int | None = None
    least_context_bp: int | None = None
    by: By = "chain"
    strands: Strands = "both"
    offsets: Annotated[list[int], FailFast()] = [0]


class Prediction(ModelRequest):
    """Labels of sequences by a fine-tuned model.

    Attributes:
        model: name of a fine-tuned model; may be left out if there is one.
        sequences: one or several.
        strands, too_long: as for `carbon predict`; the recipe's setting if not given.
    """

    items_field = "sequences"

    sequences: OneOrMore
    strands: Strands | None = None
    too_long: Literal["refuse", "truncate", "tile"] | None = None
