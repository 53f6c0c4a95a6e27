"""How variants are scored: the method that `carbon.options.VariantOptions` make."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

from carbon.arguments import checked_names
from carbon.inference.reading.checks import check_window, checked_frames
from carbon.options import PROTOCOLS, STRANDS_READ, By, ProtocolName, Strands, check_choice
from carbon.tokenizer import K

if TYPE_CHECKING:
    from carbon.inference.reading.reader import Reader


class Method(NamedTuple):
    """How variants are scored.

    Attributes:
        protocol: `centered` compares the second half of a window around the variant, `right_end`
            the alleles, up to at least the first base that differs, behind a window that ends
            where they begin.
        window_bp: of the whole window; for `right_end` what is read before the variant.
        by: likelihoods by the chain or by marginals.
        strands: read the forward strand, the reverse strand, or the mean of both.
        frames: how many bases at the window's start are left out for REF, which shifts the 6-mers;
            `centered` leaves out as many more for an ALT as it is longer, modulo six. The score is
            the mean over the frames.
        tags: metadata tags to condition on.
    """

    protocol: ProtocolName
    window_bp: int
    by: By
    strands: Strands
    frames: tuple[int, ...]
    tags: tuple[str, ...]


def method_for(
    reader: "Reader",
    *,
    protocol: ProtocolName = "centered",
    window_bp: int | None = None,
    by: By = "chain",
    strands: Strands = "both",
    frames: Sequence[int] = (0,),
    tags: Sequence[str] = (),
) -> Method:
    """Return a method whose window fits into the model's context.

    Raises:
        UserError: a choice, the window or a frame is not possible, or the vocabulary has no such
            tag.
    """
    check_choice("protocol", protocol, PROTOCOLS)
    check_choice("by", by, get_args(By))
    check_choice("strands", strands, STRANDS_READ)
    found_frames, found_tags = checked_frames(frames), checked_names("tags", tags)
    most_bp = room_bp(reader, found_tags)
    if window_bp is None:
        known = PROTOCOLS[protocol]
        window_bp = min(known.default_window_bp, most_bp - min(known.spare_bp, most_bp // 4))
    check_window(window_bp, most_bp)
    return Method(protocol, window_bp, by, strands, found_frames, found_tags)


def room_bp(reader: "Reader", tags: tuple[str, ...]) -> int:
    """Return how many bases fit into one pass beside `<dna>` and tags."""
    return (reader.context_tokens - len(reader.vocabulary.prefix(tags))) * K
