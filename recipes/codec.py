"""Narrow number formats and their block scaling in NumPy: the reference that emulation is held against.

Formats: E4M3, E5M2 and E8M0 as in OCP's OFP8 and MX specifications 1.0, E2M1 as in the latter. Scaling as Transformer
Engine 2.20.2 does it (transformer_engine/jax/quantize/quantizer.py), deterministic rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
MX_BLOCK, NV_BLOCK = 32, 16
_E8M0_BIAS, _E8M0_NAN = 127, 255


@dataclass(frozen=True)
class Format:
    """A sign bit, exponent and mantissa; `largest` is what a value saturates at."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: float

    @property
    def codes(self) -> int:
        """How many codes there are."""
        return int(2 ** (1 + self.exponent_bits + self.mantissa_bits))


E4M3 = Format(4, 3, 7, 448.0)
E5M2 = Format(5, 2, 15, 57344.0)
E2M1 = Format(2, 1, 1, 6.0)


def decoded(codes: npt.NDArray[np.uint8], form: Format) -> Floats:
    """The values of codes. What is above `largest` is NaN (E4M3) or infinity and NaN (E5M2), as the format has it."""
    wide = codes.astype(np.int64)
    mantissa = wide % 2**form.mantissa_bits
    exponent = (wide >> form.mantissa_bits) % 2**form.exponent_bits
    sign = np.where(wide >> (form.exponent_bits + form.mantissa_bits), -1.0, 1.0)
    fraction = mantissa / 2**form.mantissa_bits
    normal = np.ldexp(1 + fraction, (exponent - form.bias).astype(np.int32))
    value = np.where(exponent == 0, np.ldexp(fraction, 1 - form.bias), normal)
    top = exponent == 2**form.exponent_bits - 1
    value = np.where(value > form.largest, np.nan, value)
    if form == E5M2:
        value = np.where(top & (mantissa == 0), np.inf, value)
    return np.asarray(sign * value, dtype=np.float32)


def decoded_e8m0(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """The values of E8M0 codes, powers of two; 255 is NaN."""
    value = np.ldexp(1.0, codes.astype(np.int32) - _E8M0_BIAS)
    return np.asarray(np.where(codes == _E8M0_NAN, np.nan, value))


def rounded(values: Floats, form: Format) -> Floats:
    """Values rounded to a format: to nearest, ties to even, saturating."""
    wide = np.clip(values.astype(np.float64), -form.largest, form.largest)
    _, exponent = np.frexp(wide)  # |wide| = m * 2**exponent with m in [0.5, 1)
    step = np.ldexp(1.0, np.maximum(exponent - 1, 1 - form.bias) - form.mantissa_bits)
    return np.asarray(np.rint(wide / step) * step, dtype=np.float32)


@dataclass(frozen=True)
class Quantized:
    """Values of a format, the scale of each block (in values' units), and what both give back.

    `data` and `dequantized` have the input's shape (rows, columns); `scales` a value a block.
    """

    data: Floats
    scales: Floats
    dequantized: Floats


def mxfp8(values: Floats, form: Format = E4M3) -> Quantized:
    """MXFP8 of a matrix: blocks of 32 along a row share a power of two, rounded up so that nothing saturates."""
    rows, columns = values.shape
    blocks = values.reshape(rows, columns // MX_BLOCK, MX_BLOCK)
    wanted = np.abs(blocks).max(axis=-1) / np.float32(form.largest)
    bits = wanted.astype(np.float32).view(np.uint32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    up = (mantissa > 0) & (exponent != 0xFE) & ~((exponent == 0) & (mantissa <= 0x400000))
    scales = decoded_e8m0((exponent + up).astype(np.uint8)).astype(np.float32)
    data = rounded(blocks / scales[..., None], form)
    return Quantized(data.reshape(values.shape), scales, (data * scales[..., None]).reshape(values.shape))


def _to_largest(wanted: float, largest: np.float32) -> np.float32:
    """The FP32 factor that takes `largest` to `wanted`; 1 for zeros, and FP32's largest where it would be infinite."""
    if not largest:
        return np.float32(1)
    with np.errstate(over="ignore"):
        return np.float32(min(np.float32(wanted) / largest, np.finfo(np.float32).max))


def nvfp4(values: Floats, square: bool = False) -> Quantized:
    """NVFP4 of a matrix: an E4M3 scale a block, and one FP32 scale for all.

    Blocks are 16 along a row, or 16 x 16 (`square`, for weights). `scales` is of the blocks as they lie.
    """
    rows, columns = values.shape
    high = NV_BLOCK if square else 1
    blocks = values.reshape(rows // high, high, columns // NV_BLOCK, NV_BLOCK)
    largest = np.abs(values).max()
    tensor = _to_largest(E2M1.largest * E4M3.largest, largest)
    inverse = np.float32(1) / tensor
    wanted = np.abs(blocks).max(axis=(1, 3)) / np.float32(E2M1.largest) * tensor
    scales = rounded(wanted.astype(np.float32), E4M3)
    with np.errstate(divide="ignore"):
        factor = np.minimum(np.float32(1) / (scales * inverse), np.finfo(np.float32).max)
    data = rounded(blocks * factor[:, None, :, None], E2M1)
    back = data * (scales * inverse)[:, None, :, None]
    return Quantized(data.reshape(values.shape), scales, back.astype(np.float32).reshape(values.shape))


def per_tensor(values: Floats, form: Format = E4M3) -> Quantized:
    """FP8 current scaling: one FP32 scale that takes the largest value to the format's."""
    largest = np.abs(values).max()
    scale = _to_largest(form.largest, largest)
    data, inverse = rounded(values * scale, form), np.float32(1) / scale
    return Quantized(data, np.full((), inverse, dtype=np.float32), np.asarray(data / scale, dtype=np.float32))
