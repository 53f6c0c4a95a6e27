"""Pseudo-gradients as they travel: each codec writes a tensor as few small ones, and reads it back.

Encoded and decoded values are the same on every machine: sums, where there are any, go
in pairs, so that no library chooses their order.

    fp32  values
    bf16  values
    int8  codes from -127 to 127, and the scale of a block: its largest magnitude / 127
    top2  positions in a chunk of its largest magnitudes (equal ones in their order), from the
          largest on; a code each, 1 for a minus and 2 for the higher of the chunk's two magnitudes;
          the two magnitudes are the means above and below the mean of all kept values
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from carbon.errors import UserError

Tensors = dict[str, Tensor]

_INT8_BLOCK = 256
_TOP_CHUNK = 4096
"""Numbers that an index of `_TOP_INDEX_BITS` finds one of."""
_TOP_KEPT = 64
"""Of a whole chunk; of the rest of a tensor, the same share."""
_TOP_INDEX_BITS = 12
_TOP_CODE_BITS = 2
_MINUS, _HIGH = 1, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Codec:
    """A way to write a tensor of fp32.

    Attributes:
        name: in a recipe and in the record of a round.
        write: from flat fp32 numbers to parts.
        read: from parts and the number of numbers to flat fp32 numbers.
        feedback: share of the unsent rest that is added to the next one (error feedback); None
            if nothing is kept.
    """

    name: str
    write: Callable[[Tensor], Tensors]
    read: Callable[[Mapping[str, Tensor], int], Tensor]
    feedback: float | None = None

    def num_bytes(self, numel: int) -> int:
        """Return the bytes of all parts of a tensor."""
        return sum(part.nbytes for part in _empty_parts(self, numel).values())

    def encode(self, tensor: Tensor) -> Tensors:
        """Return the parts of a tensor of finite numbers of any shape, as they are stored."""
        return self.write(tensor.detach().float().flatten())

    def decode(self, parts: Mapping[str, Tensor], shape: Sequence[int]) -> Tensor:
        """Decode parts to fp32 in the original shape."""
        return self.read(parts, math.prod(shape)).view(tuple(shape))

    def fits(self, parts: Mapping[str, Tensor], shape: Sequence[int]) -> bool:
        """Return whether parts have the names, dtypes and shapes for a tensor of `shape`."""
        written = _empty_parts(self, math.prod(shape))
        wanted, found = ({n: (x.dtype, x.shape) for n, x in p.items()} for p in (written, parts))
        return wanted == found


@cache
def _empty_parts(codec: Codec, numel: int) -> Tensors:
    """Return the parts that a codec writes of a tensor, without memory."""
    return codec.write(torch.empty(numel, device="meta"))


def encoded(codec: Codec, gradients: Tensors, residuals: Tensors) -> tuple[Tensors, Tensors]:
    """Encode pseudo-gradients, with the unsent rest of earlier ones.

    Args:
        codec: what writes them.
        gradients: pseudo-gradients by name.
        residuals: unsent rest of earlier ones; changed in place. Absent names are zero; it stays
            empty if the codec keeps nothing.

    Returns:
        The parts by "name:part", and the values that others will decode, fp32.

    Raises:
        FloatingPointError: a number is not finite, or too large for the codec; `residuals` has been
            changed for the names before it.
    """
    parts: Tensors = {}
    sent: Tensors = {}
    for name, gradient in gradients.items():
        if codec.feedback is not None and name in residuals:
            gradient = residuals[name] * codec.feedback + gradient
        _check_finite(name, gradient)
        written = codec.encode(gradient)
        sent[name] = codec.decode(written, gradient.shape)
        _check_finite(name, sent[name])
        if codec.feedback is not None:
            residuals[name] = gradient - sent[name]
        parts |= {f"{name}:{part}": tensor for part, tensor in written.items()}
    return parts, sent


def decoded(
    codec: Codec, parts: Mapping[str, Tensor], shapes: Mapping[str, Sequence[int]]
) -> Tensors:
    """Decode pseudo-gradients of these names and shapes, fp32.

    Raises:
        UserError: parts are absent, too many, or of another layout than these shapes give, or a
            number is not finite.
    """
    by_name: dict[str, Tensors] = {name: {} for name in shapes}
    for key, tensor in parts.items():
        name, _, part = key.rpartition(":")
        if name not in by_name:
            raise UserError(f"{key}: there is no weight of this name here")
        by_name[name][part] = tensor
    found = {}
    for name, shape in shapes.items():
        if not codec.fits(by_name[name], shape):
            raise UserError(f"{name}: is not what {codec.name} writes of shape {tuple(shape)}")
        found[name] = codec.decode(by_name[name], shape)
        if not found[name].isfinite().all():
            raise UserError(f"{name}: has numbers that are not finite")
    return found


def _check_finite(name: str, tensor: Tensor) -> None:
    if not tensor.isfinite().all():
        raise FloatingPointError(
            f"the pseudo-gradient of {name} is not finite, or too large to be sent"
        )


def _write_values(dtype: torch.dtype) -> Callable[[Tensor], Tensors]:
    return lambda numbers: {"values": numbers.to(dtype, copy=True)}


def _read_values(parts: Mapping[str, Tensor], numel: int) -> Tensor:
    return parts["values"].to(torch.float32, copy=True)


def _write_int8(numbers: Tensor) -> Tensors:
    blocks = _in_rows(numbers, _INT8_BLOCK)
    scales = blocks.abs().amax(1) / 127 if len(blocks) else blocks.new_zeros(0)
    # A magnitude may be too small for its scale to be above 0, or to be exact.
    divisors = scales.where(scales > 0, scales.new_ones(()))
    codes = (blocks / divisors[:, None]).round().clamp(-127, 127)
    return {"codes": codes.flatten()[: len(numbers)].to(torch.int8), "scales": scales}


def _read_int8(parts: Mapping[str, Tensor], numel: int) -> Tensor:
    blocks = _in_rows(parts["codes"].float(), _INT8_BLOCK) * parts["scales"][:, None]
    return blocks.flatten()[:numel]


def _write_top2(numbers: Tensor) -> Tensors:
    """Padding is 0 and comes last, so none of it is kept."""
    kept = _top_kept(len(numbers))
    chunks = _in_rows(numbers, _TOP_CHUNK)
    sizes, indices = chunks.abs().sort(dim=1, descending=True, stable=True)
    sizes, indices = sizes[:, :_TOP_KEPT], indices[:, :_TOP_KEPT]
    is_kept = (torch.arange(sizes.numel(), device=sizes.device) < kept).view_as(sizes)
    is_high = is_kept & (sizes.double() > _means(sizes, is_kept)[:, None])
    magnitudes = torch.stack([_means(sizes, is_kept & ~is_high), _means(sizes, is_high)], 1)
    is_minus = chunks.gather(1, indices) < 0
    codes = _MINUS * is_minus.int() + _HIGH * is_high.int()
    return {
        "indices": _packed(indices.flatten()[:kept].int(), _TOP_INDEX_BITS),
        "codes": _packed(codes.flatten()[:kept], _TOP_CODE_BITS),
        "magnitudes": magnitudes.float(),
    }


def _read_top2(parts: Mapping[str, Tensor], numel: int) -> Tensor:
    kept, magnitudes = _top_kept(numel), parts["magnitudes"]
    chunk = torch.arange(kept) // _TOP_KEPT
    codes = _unpacked(parts["codes"], _TOP_CODE_BITS, kept)
    values = magnitudes[chunk, codes // _HIGH]
    values = values.where(codes % _HIGH != _MINUS, -values)
    numbers = torch.zeros(len(magnitudes) * _TOP_CHUNK)
    numbers[chunk * _TOP_CHUNK + _unpacked(parts["indices"], _TOP_INDEX_BITS, kept)] = values
    return numbers[:numel]


def _top_kept(numel: int) -> int:
    """Return how many numbers of a tensor are sent: of the rest of a chunk, one at least."""
    whole, rest = divmod(numel, _TOP_CHUNK)
    return whole * _TOP_KEPT + math.ceil(rest * _TOP_KEPT / _TOP_CHUNK)


def _means(numbers: Tensor, mask: Tensor) -> Tensor:
    """Return the means of rows where a mask is, fp64; 0 where it is nowhere. In a fixed order."""
    sums = numbers.double() * mask
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return sums[:, 0] / mask.sum(1).clamp(min=1)


def _in_rows(numbers: Tensor, width: int) -> Tensor:
    """Return numbers in rows of `width`, the last one filled up with 0."""
    return pad(numbers, (0, -len(numbers) % width)).view(-1, width)


def _packed(numbers: Tensor, bits: int) -> Tensor:
    """Pack non-negative numbers of a width in bits; low bits and first numbers first.

    Numbers go in groups that fill whole bytes, the last one filled up with 0.
    """
    group_bits = math.lcm(bits, 8)
    groups = _in_rows(numbers, group_bits // bits)
    words = torch.zeros(len(groups), dtype=torch.int32, device=groups.device)
    for place, column in enumerate(groups.unbind(1)):
        words |= column << bits * place
    octets = [words >> 8 * place & 255 for place in range(group_bits // 8)]
    return torch.stack(octets, 1).flatten().to(torch.uint8)


def _unpacked(octets: Tensor, bits: int, count: int) -> Tensor:
    """Return the first `count` numbers of what `_packed` gave, int32."""
    group_bits = math.lcm(bits, 8)
    words = torch.zeros(len(octets) * 8 // group_bits, dtype=torch.int32)
    for place, column in enumerate(octets.view(-1, group_bits // 8).int().unbind(1)):
        words |= column << 8 * place
    numbers = [words >> bits * place & 2**bits - 1 for place in range(group_bits // bits)]
    return torch.stack(numbers, 1).flatten()[:count]


CODECS = {
    codec.name: codec
    for codec in (
        Codec(name="fp32", write=_write_values(torch.float32), read=_read_values),
        Codec(name="bf16", write=_write_values(torch.bfloat16), read=_read_values),
        Codec(name="int8", write=_write_int8, read=_read_int8),
        Codec(name="top2", write=_write_top2, read=_read_top2, feedback=0.95),
    )
}
