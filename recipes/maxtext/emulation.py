"""Transformer Engine's JAX recipes on any JAX backend, through its own pure-JAX code, with three faults mended.

Its quantizers, Hadamard transform and stochastic rounding are Transformer Engine's; nothing here quantizes. What is
mended, in 2.20.2's `transformer_engine/jax/quantize/quantizer.py` (each is proved by a test):

e4m3_rounding: `reduce_precision(x, 4, 3)` of an E4M3 array rounds to IEEE's E4M3, whose largest value is 240, on XLA's
    CPU: NVFP4 block scales above it become NaN. The array is E4M3 already; a barrier keeps XLA from undoing its cast.
block_scale_rows: scales of 16 x 16 blocks are spread over rows by tiling, so that row r gets the scale of block
    r mod (rows / 16); it must be that of block r div 16.
key_words: stochastic rounding makes a key of two words, MaxText's default generator (unsafe_rbg) takes four: TypeError.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import warnings
from typing import Any

from recipes.maxtext.standin import NAME, StandIn
from recipes.runs import RunError

TRANSFORMER_ENGINE = "2.20.2"
# no search for the core library, no custom calls, no framework's extension
ENVIRONMENT = {"NVTE_PROJECT_BUILDING": "1", "NVTE_JAX_CUSTOM_CALLS": "false", "NVTE_FRAMEWORK": "none"}
E4M3_BITS = (4, 3)  # exponent, mantissa
KEY_WORDS = 2


class _Instead:
    """A module or namespace with some of its names replaced; everything else is its own."""

    def __init__(self, of: Any, **names: Any) -> None:
        self._of = of
        vars(self).update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def emulate() -> list[str]:
    """Make `transformer_engine.jax` importable and right without its compiled library; returns what was mended.

    To be called before anything imports Transformer Engine. Raises RunError for a version other than the one whose
    faults are known.
    """
    try:
        found = importlib.metadata.version("transformer_engine")
    except importlib.metadata.PackageNotFoundError:
        raise RunError("transformer_engine is not installed; install envs/maxtext") from None
    if found != TRANSFORMER_ENGINE:
        raise RunError(
            f"transformer_engine {found} found: its pure-JAX path was only mended and tested at {TRANSFORMER_ENGINE};"
            " install envs/maxtext"
        )
    if "transformer_engine.jax" in sys.modules:
        raise RunError("transformer_engine.jax was imported before emulation was set up")
    os.environ.update(ENVIRONMENT)
    sys.modules[NAME] = StandIn(NAME)
    warnings.filterwarnings("ignore", message="Detected a Jax installation")
    common: Any = importlib.import_module("transformer_engine.common")
    common.load_framework_extension = lambda _framework: None
    common.check_cudnn_version = lambda _version: None
    importlib.import_module("transformer_engine.jax")
    return mend(importlib.import_module("transformer_engine.jax.quantize.quantizer"))


def mend(quantizer: Any) -> list[str]:
    """Mend Transformer Engine's quantizer module in place; returns the names of the faults."""
    jax, numpy = quantizer.jax, quantizer.jnp

    def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
        if operand.dtype == numpy.float8_e4m3fn and (exponent_bits, mantissa_bits) == E4M3_BITS:
            return jax.lax.optimization_barrier(operand)
        return jax.lax.reduce_precision(operand, exponent_bits, mantissa_bits)

    def wrap_key_data(words: Any, *, impl: Any = None) -> Any:
        if impl is None and words.shape[-1] == KEY_WORDS:
            impl = "threefry2x32"
        return jax.random.wrap_key_data(words, impl=impl)

    def tile(blocks: Any, repeats: Any) -> Any:
        for axis, count in enumerate(repeats):
            blocks = numpy.repeat(blocks, count, axis=axis)
        return blocks

    quantizer.jax = _Instead(
        jax,
        lax=_Instead(jax.lax, reduce_precision=reduce_precision),
        random=_Instead(jax.random, wrap_key_data=wrap_key_data),
    )
    quantizer.jnp = _Instead(numpy, tile=tile)
    return ["e4m3_rounding", "block_scale_rows", "key_words"]
