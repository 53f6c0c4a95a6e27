"""Scanning methods of regions, from `carbon.inference.options.ScanOptions`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from carbon.errors import UserError
from carbon.inference.checks import check_window, checked_names, checked_offsets
from carbon.inference.options import (
    COMBINATIONS,
    SIDES,
    STRANDS_READ,
    AllOffsets,
    Combine,
    ScanOptions,
    Strands,
    VariantOptions,
    check_choice,
)
from carbon.inference.variants.windows import Method, TileGrid, method_for

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

_DEFAULT_WINDOW_BP = 48_000  # half of it is the context of `right_end`
_OF_TILES = ("window_bp", "downstream_bp", "least_context_bp", "offsets", "tags", "k")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanMethod(ScanOptions):
    """How a region is scanned: `ScanOptions` that fit a model.

    Attributes:
        window_bp: bases of a window, whole k-mers; or of a tile, for both sides.
        downstream_bp: for both sides; otherwise None.
        least_context_bp: context bases at the start of a window that are not scored, whole k-mers;
            none at the start of the contig.
        offsets: sorted and distinct.
        strands: score the forward strand, the reverse strand, or the mean of both.
        tags: metadata tags to condition on.
        k: bases of a token of the model.
    """

    window_bp: int
    least_context_bp: int
    offsets: tuple[int, ...]
    strands: Strands
    tags: tuple[str, ...]
    k: int

    @property
    def grid(self) -> TileGrid:
        """The grid of the tiles that both sides read."""
        return self.tiled(0).grid

    def tiled(self, offset: int) -> Method:
        """Return the method of `tiled` variants that reads the same tiles at one offset."""
        return Method(
            protocol="tiled",
            window_bp=self.window_bp,
            downstream_bp=self.downstream_bp,
            least_context_bp=self.least_context_bp,
            strands=self.strands,
            offsets=(offset,),
            tags=self.tags,
            k=self.k,
        )

    def settings(self) -> dict[str, Any]:
        """Return the options as JSON, without those of both sides if only the left is read."""
        values = asdict(self)
        of_both = {"sides": values.pop("sides"), "downstream_bp": values.pop("downstream_bp")}
        return of_both | values if self.sides == "both" else values


def scan_method_for(runner: "ModelRunner", options: ScanOptions) -> ScanMethod:
    """Return a method whose windows fit into the model's context.

    Raises:
        UserError: a choice, window, context, offset or tag is invalid.
    """
    check_choice("sides", options.sides, SIDES)
    check_choice("combine", options.combine, COMBINATIONS)
    strands = options.strands or SIDES[options.sides].default_strands
    check_choice("strands", strands, STRANDS_READ)
    checked = _CHECKS[options.sides](runner, options)
    return ScanMethod(**asdict(options) | checked | {"strands": strands})


def _of_windows(runner: "ModelRunner", options: ScanOptions) -> dict[str, Any]:
    """Return the options of a scan from the left, whose windows are whole k-mers."""
    if options.downstream_bp is not None:
        raise UserError("downstream: only a scan of both sides compares bases there")
    k = runner.vocabulary.k
    offsets = _offsets(options.offsets, options.combine, k)
    tags = checked_names("tags", options.tags)
    window_bp = _window_bp(runner, tags, options.window_bp)
    return {
        "window_bp": window_bp,
        "least_context_bp": _least_context_bp(options.least_context_bp, window_bp, k),
        "offsets": offsets,
        "tags": tags,
        "k": k,
    }


def _of_tiles(runner: "ModelRunner", options: ScanOptions) -> dict[str, Any]:
    """Return the options of a scan from both sides: those of `tiled` variants."""
    if COMBINATIONS[options.combine].own_offset:
        raise UserError(f"{options.combine}: a scan of both sides takes the mean over offsets")
    tiled = method_for(
        runner,
        VariantOptions(
            protocol="tiled",
            window_bp=options.window_bp,
            downstream_bp=options.downstream_bp,
            least_context_bp=options.least_context_bp,
            offsets=(0,) if options.offsets is None else options.offsets,
            tags=options.tags,
        ),
    )
    return {name: getattr(tiled, name) for name in _OF_TILES}


_CHECKS = {"left": _of_windows, "both": _of_tiles}


def _offsets(
    offsets: Sequence[int] | AllOffsets | None, combine: Combine, k: int
) -> tuple[int, ...]:
    if offsets is None:
        offsets = COMBINATIONS[combine].default_offsets
    checked = checked_offsets(offsets, k)
    if COMBINATIONS[combine].own_offset and checked != tuple(range(k)):
        raise UserError(
            f"{combine} reads each base at its own offset: leave the offsets at all, 0 to {k - 1}"
        )
    return checked


def _window_bp(runner: "ModelRunner", tags: tuple[str, ...], window_bp: int | None) -> int:
    """Return a window of whole k-mers that fits into the model's context."""
    # The last k-mer of a window is only predicted.
    k = runner.vocabulary.k
    most_bp = (runner.context_tokens - len(runner.vocabulary.prefix(tags)) + 1) * k
    if window_bp is None:
        window_bp = runner.vocabulary.default_window_bp(_DEFAULT_WINDOW_BP, most_bp)
    check_window(window_bp, most_bp, k)
    return window_bp - window_bp % k


def _least_context_bp(least_context_bp: int | None, window_bp: int, k: int) -> int:
    """Return the least context in whole k-mers, by default half of the window."""
    if least_context_bp is None:
        least_context_bp = window_bp // 2
    if not 0 <= least_context_bp <= window_bp - k:
        raise UserError(
            f"a least context of {least_context_bp} bp leaves nothing to score of a window of "
            f"{window_bp} bp: give 0 to {window_bp - k}"
        )
    return least_context_bp + -least_context_bp % k
