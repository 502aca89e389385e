"""How the effective precision is read off built modules. The modules here are stand-ins with Transformer Engine's names
and attributes; that its real ones have them was seen on a GPU, not here."""

from __future__ import annotations

from typing import Any

import pytest

from recipes import effective as engine


def module(name: str, quantizer: str | None, **attributes: Any) -> Any:
    """A stand-in: a GEMM module (`Linear`, `LayerNormMLP`, ...) that holds two quantizers of a kind, or none."""
    made = type(name, (), {})()
    one = None
    if quantizer:
        one = type(quantizer, (), {})()
        one.dtype = 7
        one.__dict__.update(attributes)
    made.fp8 = quantizer is not None
    made.quantizers = {"scaling_fwd": [one, None], "scaling_bwd": [one] if one else []}
    return made


@pytest.mark.parametrize(
    ("quantizer", "precision"),
    [
        (None, "bf16"),
        ("Float8Quantizer", "fp8_delayed"),
        ("Float8CurrentScalingQuantizer", "fp8_current"),
        ("Float8BlockQuantizer", "fp8_block"),
        ("MXFP8Quantizer", "mxfp8"),
        ("NVFP4Quantizer", "nvfp4"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_each_recipe_is_known_by_its_quantizers(quantizer: str | None, precision: str) -> None:
    modules = [module("LayerNormLinear", quantizer), module("Linear", quantizer), module("LayerNormMLP", quantizer)]
    found = engine.effective_precision([*modules, object()])
    assert found["precision"] == precision
    assert sum(found["quantizers"].values()) == (6 if quantizer else 0)


def test_one_module_left_in_bf16_shows() -> None:
    modules = [module("Linear", "Float8Quantizer"), module("Linear", None)]
    assert engine.effective_precision(modules)["precision"] == ["bf16", "fp8_delayed"]


def test_attention_proves_nothing() -> None:
    """Its quantizers exist under every recipe and are not used."""
    modules = [module("Linear", None), module("DotProductAttention", "Float8Quantizer")]
    assert engine.effective_precision(modules) == {"precision": "bf16", "quantizers": {}}


def test_the_hadamard_transform_tells_the_two_nvfp4_apart() -> None:
    plain = [module("Linear", "NVFP4Quantizer", with_rht=False)]
    assert engine.effective_precision(plain)["precision"] == "nvfp4_no_rht"
    mixed = [*plain, module("Linear", "NVFP4Quantizer", with_rht=True)]
    assert engine.effective_precision(mixed)["precision"] == "nvfp4"
