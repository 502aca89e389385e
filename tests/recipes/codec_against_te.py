"""Counts where the reference codec, ml_dtypes and the emulation differ; run in MaxText's environment."""

from __future__ import annotations

import json
from typing import Any

from recipes.maxtext.emulation import emulate

MENDED = emulate()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from transformer_engine.jax.quantize import QuantizeLayout, QuantizerFactory, ScalingMode  # noqa: E402
from transformer_engine.jax.quantize import quantizer as te_quantizer  # noqa: E402

from recipes import codec  # noqa: E402

TYPES = {
    "e4m3": ("float8_e4m3fn", codec.E4M3),
    "e5m2": ("float8_e5m2", codec.E5M2),
    "e2m1": ("float4_e2m1fn", codec.E2M1),
}


def codes() -> dict[str, int]:
    """Every code of every format: decoded alike? And values between and on them: rounded alike?"""
    found = {}
    for name, (theirs, form) in TYPES.items():
        kind = np.dtype(getattr(ml_dtypes, theirs))
        every = np.arange(form.codes, dtype=np.uint8)
        mine, other = codec.decoded(every, form), every.view(kind).astype(np.float32)
        found[f"{name} codes"] = len(every)
        found[f"{name} decoded otherwise"] = int((~((mine == other) | (np.isnan(mine) & np.isnan(other)))).sum())
        finite = np.unique(other[np.isfinite(other)])
        points = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, np.random.default_rng(0).normal(0, 3, 4096)])
        points = points.astype(np.float32)
        inside = points[np.abs(points) <= form.largest]
        found[f"{name} rounded otherwise"] = int(
            (codec.rounded(inside, form) != inside.astype(kind).astype(np.float32)).sum()
        )
    every = np.arange(256, dtype=np.uint8)
    mine, other = codec.decoded_e8m0(every), every.view(ml_dtypes.float8_e8m0fnu).astype(np.float64)
    found["e8m0 codes"] = 256
    found["e8m0 decoded otherwise"] = int((~((mine == other) | (np.isnan(mine) & np.isnan(other)))).sum())
    return found


def quantized(mode: Any, kind: Any, values: Any, jitted: bool) -> Any:
    """Data and scales of Transformer Engine's own quantizer, by rows."""
    quantizer = QuantizerFactory.create(
        n_quantizers=1, scaling_mode=mode, q_dtype=kind, q_layout=QuantizeLayout.ROWWISE
    )
    call = jax.jit(quantizer.quantize) if jitted else quantizer.quantize
    out = call(jnp.asarray(values))
    return np.asarray(out.data.astype(jnp.float32)), np.asarray(out.scale_inv.astype(jnp.float32))


def tensors() -> dict[str, int]:
    """256 x 256 values of wide range through each recipe: data and scales that are not the codec's."""
    random = np.random.default_rng(1)
    values = (random.normal(size=(256, 256)) * np.exp(random.normal(size=(256, 1)) * 2)).astype(np.float32)
    cases = {
        "fp8": (ScalingMode.CURRENT_TENSOR_SCALING, jnp.float8_e4m3fn, codec.per_tensor(values)),
        "fp8 gradient": (ScalingMode.CURRENT_TENSOR_SCALING, jnp.float8_e5m2, codec.per_tensor(values, codec.E5M2)),
        "mxfp8": (ScalingMode.MXFP8_1D_SCALING, jnp.float8_e4m3fn, codec.mxfp8(values)),
        "nvfp4 1d": (ScalingMode.NVFP4_1D_SCALING, jnp.float4_e2m1fn, codec.nvfp4(values)),
        "nvfp4 2d": (ScalingMode.NVFP4_2D_SCALING, jnp.float4_e2m1fn, codec.nvfp4(values, square=True)),
    }
    found = {}
    for name, (mode, kind, mine) in cases.items():
        scales = np.repeat(mine.scales, 16, axis=0) if name == "nvfp4 2d" else mine.scales
        for jitted in (False, True):
            data, inverse = quantized(mode, kind, values, jitted)
            how = "jit" if jitted else "eager"
            found[f"{name} {how} values"] = data.size
            found[f"{name} {how} data otherwise"] = int((data != mine.data).sum())
            found[f"{name} {how} scales otherwise"] = int((inverse.reshape(scales.shape) != scales).sum())
    return found


def stochastic() -> Any:
    """A gradient's NVFP4 with stochastic rounding, 64 times the same 16 x 16 values; the mean of what comes back."""
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")  # MaxText's choice
    values = np.random.default_rng(2).normal(size=(16, 16)).astype(np.float32)
    total = np.zeros_like(values)
    for number in range(64):
        state = jnp.asarray([[number, 1, 2, 3]], dtype=jnp.uint32)
        quantizer = QuantizerFactory.create(
            n_quantizers=1,
            scaling_mode=ScalingMode.NVFP4_1D_SCALING,
            q_dtype=jnp.float4_e2m1fn,
            q_layout=QuantizeLayout.ROWWISE,
            stochastic_rounding_rng_state=state,
        )
        out = quantizer.quantize(jnp.asarray(values))
        total += np.asarray(out.dequantize(), dtype=np.float32)
    return values, total / 64


def faults() -> dict[str, Any]:
    """What each fault does when it is not mended, and that rounding is unbiased when it is."""
    values, mean = stochastic()
    nearest = codec.nvfp4(values).dequantized
    found: dict[str, Any] = {
        "stochastic mean error": float(np.abs(mean - values).mean()),
        "nearest error": float(np.abs(nearest - values).mean()),
    }
    mended = te_quantizer.jnp.tile, te_quantizer.jax.lax.reduce_precision, te_quantizer.jax.random.wrap_key_data
    te_quantizer.jnp.tile = jnp.tile
    found["without block_scale_rows"] = tensors()["nvfp4 2d jit scales otherwise"]
    te_quantizer.jnp.tile = mended[0]
    te_quantizer.jax.lax.reduce_precision = jax.lax.reduce_precision
    found["without e4m3_rounding"] = tensors()["nvfp4 1d jit data otherwise"]
    te_quantizer.jax.lax.reduce_precision = mended[1]
    te_quantizer.jax.random.wrap_key_data = jax.random.wrap_key_data
    try:
        stochastic()
        found["without key_words"] = "no error"
    except TypeError as error:
        found["without key_words"] = f"TypeError: {error}"
    te_quantizer.jax.random.wrap_key_data = mended[2]
    return found


print(json.dumps({"mended": MENDED, **codes(), **tensors(), **faults()}))
