"""Codecs against loops over single numbers, sizes by hand, and what each must refuse."""

import json
import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from carbon.errors import UserError
from train.codecs import CODECS, decoded, encoded

SIZES = (0, 1, 2, 63, 64, 65, 129, 256, 257, 4095, 4096, 4097, 4161, 10_000)
# Of n numbers, in bytes, summed by hand for some n.
BYTES = {
    "fp32": {0: 0, 1: 4, 4097: 16388},
    "bf16": {0: 0, 1: 2, 4097: 8194},
    "int8": {0: 0, 1: 1 + 4, 256: 256 + 4, 257: 257 + 8, 10_000: 10_000 + 160},
    # Kept: 1, 1, 2, 64, 64 + 1, 64 + 2, 64 + 64 + 29; indices in pairs of 3 bytes, codes 4 a byte.
    "top2": {
        0: 0, 1: 3 + 1 + 8, 64: 3 + 1 + 8, 65: 3 + 1 + 8, 4096: 96 + 16 + 8,
        4097: 99 + 17 + 16, 4161: 99 + 17 + 16, 10_000: 237 + 40 + 24,
    },
}  # fmt: skip


def kept(size):
    return size // 4096 * 64 + math.ceil(size % 4096 / 64)


# dtypes and shapes of the parts of n numbers: two indices in 3 bytes, four codes in a byte.
LAYOUTS = {
    "fp32": lambda n: {"values": ("F32", (n,))},
    "bf16": lambda n: {"values": ("BF16", (n,))},
    "int8": lambda n: {"codes": ("I8", (n,)), "scales": ("F32", (math.ceil(n / 256),))},
    "top2": lambda n: {
        "indices": ("U8", (3 * math.ceil(kept(n) / 2),)),
        "codes": ("U8", (math.ceil(kept(n) / 4),)),
        "magnitudes": ("F32", (math.ceil(n / 4096), 2)),
    },
}


def normal(size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def heavy(size, seed=0):
    """Return numbers with ties, zeros and a few that are much larger, as pseudo-gradients have."""
    numbers = normal(size, seed) ** 3
    numbers[::7] = 0
    numbers[1::11] = 0.5
    numbers[2::13] = -0.5
    return numbers


def bits_of(octets, width, count):
    """Read numbers of `width` bits from bytes as one long number, low bits first."""
    whole = int.from_bytes(bytes(octets.tolist()), "little")
    return [whole >> width * i & (1 << width) - 1 for i in range(count)]


# Each codec against a loop


def slow_blocks(numbers, block, most):
    codes, scales = [], []
    for start in range(0, len(numbers), block):
        row = [np.float32(x) for x in numbers[start : start + block].tolist()]
        scale = max(map(abs, row)) / np.float32(most)
        scales.append(scale)
        codes += [int(np.rint(x / scale)) if scale > 0 else 0 for x in row]
    return codes, scales


@pytest.mark.parametrize("make", [heavy, torch.zeros])
def test_int8_is_what_a_loop_gives(make):
    for size in SIZES:
        numbers = make(size)
        parts = CODECS["int8"].encode(numbers)
        codes, scales = slow_blocks(numbers, 256, 127)
        assert parts["codes"].tolist() == codes
        assert parts["scales"].tolist() == scales
        values = [np.float32(code) * scales[i // 256] for i, code in enumerate(codes)]
        assert CODECS["int8"].decode(parts, (size,)).tolist() == values


def slow_top2(numbers):
    """Return by chunk: positions by magnitude and place, signs and magnitudes of two kinds."""
    indices, codes, magnitudes = [], [], []
    for start in range(0, len(numbers), 4096):
        chunk = numbers[start : start + 4096].tolist()
        kept = sorted(range(len(chunk)), key=lambda i: (-abs(chunk[i]), i))
        kept = kept[: max(1, math.ceil(len(chunk) / 64))]
        sizes = [abs(chunk[i]) for i in kept]
        mean = math.fsum(sizes) / len(sizes)
        groups = [[s for s in sizes if (s > mean) == high] for high in (False, True)]
        indices += kept
        codes += [2 * (abs(chunk[i]) > mean) + (chunk[i] < 0) for i in kept]
        magnitudes.append([float(np.float32(math.fsum(g) / max(len(g), 1))) for g in groups])
    return indices, codes, magnitudes


@pytest.mark.parametrize("make", [heavy, torch.zeros, torch.ones])
def test_top2_is_what_a_loop_gives(make):
    for size in SIZES:
        numbers = make(size)
        parts = CODECS["top2"].encode(numbers)
        indices, codes, magnitudes = slow_top2(numbers)
        assert bits_of(parts["indices"], 12, len(indices)) == indices
        assert bits_of(parts["codes"], 2, len(codes)) == codes
        assert parts["magnitudes"].tolist() == magnitudes
        expected = [0.0] * size
        for number, (index, code) in enumerate(zip(indices, codes, strict=True)):
            value = magnitudes[number // 64][code // 2]
            expected[number // 64 * 4096 + index] = -value if code % 2 else value
        assert CODECS["top2"].decode(parts, (size,)).tolist() == expected


def test_top2_keeps_the_first_of_equal_magnitudes():
    numbers = torch.full((4096,), -2.0)
    sent = CODECS["top2"].decode(CODECS["top2"].encode(numbers), (4096,))
    assert sent.nonzero().flatten().tolist() == list(range(64))
    assert sent[0] == -2


def test_floats_are_rounded_to_bf16_and_fp32_not_at_all():
    numbers = heavy(1000)
    bits = np.array([struct.unpack("<I", struct.pack("<f", x))[0] for x in numbers.tolist()])
    upper, lower = bits >> 16, bits & 0xFFFF  # round half to even of the upper 16 bits
    upper += (lower > 0x8000) | ((lower == 0x8000) & (upper % 2 == 1))
    rounded = [struct.unpack("<f", struct.pack("<I", int(u) << 16))[0] for u in upper]
    parts = {name: CODECS[name].encode(numbers) for name in ("bf16", "fp32")}
    assert CODECS["bf16"].decode(parts["bf16"], (1000,)).tolist() == rounded
    assert torch.equal(CODECS["fp32"].decode(parts["fp32"], (1000,)), numbers)
    assert parts["fp32"]["values"].data_ptr() != numbers.data_ptr()


FINITE = st.floats(width=32, allow_nan=False, min_value=-(2.0**100), max_value=2.0**100)


@given(numbers=st.lists(FINITE, min_size=1, max_size=70))
def test_int8_is_within_half_a_step(numbers):
    """Also of subnormal numbers, whose scale may be a large part of them."""
    given_ = torch.tensor(numbers)
    sent = CODECS["int8"].decode(CODECS["int8"].encode(given_), given_.shape)
    step = float(given_.double().abs().max()) / 127
    errors = (given_.double() - sent.double()).abs()
    assert float(errors.max()) <= step * (0.5 + 1e-4) + 127 * 2.0**-149


@pytest.mark.parametrize("sign", [1, -1])
def test_the_least_numbers_stay_within_the_codes(sign):
    """190 least steps of fp32: their scale, 190/127 of one, is rounded to one."""
    parts = CODECS["int8"].encode(torch.tensor([sign * 190 * 2.0**-149]))
    assert CODECS["int8"].decode(parts, (1,)).item() == sign * 127 * 2.0**-149


# Sizes


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("size", [0, 65, 4097, 10_000])
def test_bytes_are_those_of_a_file(name, size):
    codec, parts = CODECS[name], CODECS[name].encode(normal(size))
    file = save(parts)
    (header_bytes,) = struct.unpack("<Q", file[:8])
    assert len(file) - 8 - header_bytes == codec.num_bytes(size)
    header = json.loads(file[8 : 8 + header_bytes])
    layout = {part: (x["dtype"], tuple(x["shape"])) for part, x in header.items()}
    assert layout == LAYOUTS[name](size)
    assert codec.fits(load(file), (size,))
    back = codec.decode(load(file), (size,))
    assert torch.equal(back, codec.decode(parts, (size,)))


@pytest.mark.parametrize("name", CODECS)
def test_bytes_by_hand(name):
    assert {size: CODECS[name].num_bytes(size) for size in BYTES[name]} == BYTES[name]


# Error feedback


@pytest.mark.parametrize("name", CODECS)
def test_what_is_sent_and_what_is_kept_are_all(name):
    """In fp32, to the bit: the unsent rest decays, and sent values are subtracted."""
    codec, residuals = CODECS[name], {}
    kept = np.zeros(5000, np.float32)
    for step in range(3):
        gradient = {"w": heavy(5000, seed=step)}
        parts, sent = encoded(codec, gradient, residuals)
        assert torch.equal(decoded(codec, parts, {"w": (5000,)})["w"], sent["w"])
        if codec.feedback is None:
            assert residuals == {}
            assert torch.equal(sent["w"], codec.decode(codec.encode(gradient["w"]), (5000,)))
        else:
            whole = kept * np.float32(codec.feedback) + gradient["w"].numpy()
            kept = whole - sent["w"].numpy()
            assert np.array_equal(residuals["w"].numpy(), kept)


def test_error_feedback_by_hand():
    """Of two numbers one is sent: 1, 0.6 + 0.57, 1.95 (0.95 of the second 1, and the third)."""
    residuals, seen = {}, []
    for _ in range(3):
        gradient = {"w": torch.tensor([1.0, 0.6], dtype=torch.float64)}
        _, sent = encoded(CODECS["top2"], gradient, residuals)
        seen += sent["w"].tolist()
    assert seen == pytest.approx([1, 0, 0, 1.17, 1.95, 0])
    assert residuals["w"].tolist() == pytest.approx([0, 0.6], abs=1e-6)


# Shapes, names and refusals


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", CODECS)
def test_all_shapes_and_dtypes_come_back_as_fp32(name, dtype):
    gradients = {
        "layers.0:odd": torch.full((3, 4, 5), -0.75, dtype=dtype).transpose(0, 2),
        "empty": torch.zeros((0, 8), dtype=dtype),
        "scalar": torch.tensor(2.0, dtype=dtype),
        "zeros": torch.zeros(300, dtype=dtype),
    }
    parts, sent = encoded(CODECS[name], gradients, {})
    back = decoded(CODECS[name], parts, {n: x.shape for n, x in gradients.items()})
    assert {n: x.shape for n, x in back.items()} == {n: x.shape for n, x in gradients.items()}
    assert all(x.dtype == torch.float32 and torch.equal(x, sent[n]) for n, x in back.items())
    assert back["scalar"] == 2 and not back["zeros"].any()
    number = sum(x.numel() * x.element_size() for x in parts.values())
    assert number == sum(CODECS[name].num_bytes(x.numel()) for x in gradients.values())


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("wrong", [math.nan, -math.inf])
def test_what_is_not_finite_is_refused_by_name(name, wrong):
    gradients = {"good": torch.ones(5000), "model.bad": torch.ones(5000)}
    gradients["model.bad"][4999] = wrong
    with pytest.raises(FloatingPointError, match=r"pseudo-gradient of model\.bad is not finite"):
        encoded(CODECS[name], gradients, {})


def test_what_no_codec_can_write_is_refused():
    gradients = {"w": torch.tensor([1e39], dtype=torch.float64)}
    for codec in CODECS.values():
        with pytest.raises(FloatingPointError, match="too large to be sent"):
            encoded(codec, gradients, {})


@pytest.mark.parametrize("name", CODECS)
def test_parts_of_another_shape_are_refused(name):
    codec = CODECS[name]
    parts, sent = encoded(codec, {"w": torch.ones(100, 3)}, {})
    part = next(iter(parts))
    longer = {**parts, part: torch.cat([parts[part], parts[part]])}
    for wrong, shapes in [
        (parts, {"w": (4097,)}),
        (parts, {"w": (100, 3), "v": (1,)}),
        ({key: x for key, x in parts.items() if key != part}, {"w": (100, 3)}),
        ({**parts, "w:more": torch.zeros(1)}, {"w": (100, 3)}),
        ({**parts, part: parts[part].double()}, {"w": (100, 3)}),
        (longer, {"w": (100, 3)}),
    ]:
        with pytest.raises(UserError, match=rf"[wv]: is not what {name} writes of shape \("):
            decoded(codec, wrong, shapes)
    with pytest.raises(UserError, match=r"w:.*: there is no weight of this name here"):
        decoded(codec, parts, {})
    assert torch.equal(decoded(codec, parts, {"w": (100, 3)})["w"], sent["w"])


def test_numbers_of_a_stranger_that_are_not_finite_are_refused():
    parts, _ = encoded(CODECS["int8"], {"w": torch.ones(3)}, {})
    parts["w:scales"][0] = math.nan
    with pytest.raises(UserError, match="w: has numbers that are not finite"):
        decoded(CODECS["int8"], parts, {"w": (3,)})
