"""The one place that touches Transformer Engine's recipe classes: from a precision key to a recipe, and back.

"Back" matters most: `effective_precision` reads the quantizers that the built modules really hold, so that a run
labelled FP8 whose modules hold none cannot pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from transformer_engine.common import recipe as te_recipe

# Quantizer class of Transformer Engine -> our precision key. NVFP4's two variants differ by a flag of the quantizer.
QUANTIZERS = {
    "Float8Quantizer": "fp8_delayed",
    "Float8CurrentScalingQuantizer": "fp8_current",
    "Float8BlockQuantizer": "fp8_block",
    "MXFP8Quantizer": "mxfp8",
    "NVFP4Quantizer": "nvfp4",
}


def make_recipe(precision: str) -> te_recipe.Recipe | None:
    """Transformer Engine's recipe for a precision key; None for BF16.

    Settings are those of NeMo 25.04 (hybrid formats, amax history 1024) and otherwise the library's defaults.
    """
    hybrid = te_recipe.Format.HYBRID
    return {
        "bf16": lambda: None,
        "fp8_delayed": lambda: te_recipe.DelayedScaling(
            fp8_format=hybrid, amax_history_len=1024, amax_compute_algo="max"
        ),
        "fp8_current": lambda: te_recipe.Float8CurrentScaling(fp8_format=hybrid),
        "fp8_block": lambda: te_recipe.Float8BlockScaling(),
        "mxfp8": lambda: te_recipe.MXFP8BlockScaling(),
        "nvfp4": lambda: te_recipe.NVFP4BlockScaling(),
        "nvfp4_no_rht": lambda: te_recipe.NVFP4BlockScaling(disable_rht=True),
    }[precision]()


def _key(quantizer: Any) -> str:
    name = type(quantizer).__name__
    if name == "NVFP4Quantizer" and not getattr(quantizer, "with_rht", True):
        return "nvfp4_no_rht"
    return QUANTIZERS.get(name, name)


# Holds quantizers under every recipe, but computes in BF16 unless FP8 attention is asked for (we never do).
ATTENTION = "DotProductAttention"


def effective_precision(modules: Iterable[Any]) -> dict[str, Any]:
    """What the modules that run GEMMs hold after a pass: `precision`, and the quantizers counted by kind and dtype.

    `precision` is our key when every such module agrees, else the list of what was found: one layer left in BF16 shows.
    NVFP4 counts as `nvfp4` when any of its quantizers applies the Hadamard transform (only some of them do).
    """
    found: Counter[str] = Counter()
    keys: set[str] = set()
    for module in modules:
        if not hasattr(module, "quantizers") or type(module).__name__ == ATTENTION:
            continue
        if not getattr(module, "fp8", False):
            keys.add("bf16")
            continue
        for quantizers in module.quantizers.values():
            for quantizer in quantizers if isinstance(quantizers, list | tuple) else []:
                if quantizer is not None:
                    keys.add(_key(quantizer))
                    found[f"{type(quantizer).__name__} {getattr(quantizer, 'dtype', '')}".strip()] += 1
    if "nvfp4" in keys:
        keys.discard("nvfp4_no_rht")
    precision: Any = "bf16" if not keys else keys.pop() if len(keys) == 1 else sorted(keys)
    return {"precision": precision, "quantizers": dict(sorted(found.items()))}


def attention_backend() -> str:
    """The attention kernel that Transformer Engine chose last: `flash`, `fused <n>`, `unfused`, or `unknown`."""
    from transformer_engine.pytorch.attention.dot_product_attention import _attention_backends as chosen

    if chosen.get("use_flash_attention"):
        return f"flash {chosen.get('flash_attention_backend')}"
    if chosen.get("use_fused_attention"):
        return f"fused {chosen.get('fused_attention_backend')}"
    return "unfused" if chosen.get("use_unfused_attention") else "unknown"
