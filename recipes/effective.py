"""What built Transformer Engine modules really compute in, for every stack that trains with them.

A run labelled FP8 whose modules hold no such quantizer cannot pass. Imports Transformer Engine only when asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

# Quantizer class of Transformer Engine -> our precision key. NVFP4's two variants differ by a flag of the quantizer.
QUANTIZERS = {
    "Float8Quantizer": "fp8_delayed",
    "Float8CurrentScalingQuantizer": "fp8_current",
    "Float8BlockQuantizer": "fp8_block",
    "MXFP8Quantizer": "mxfp8",
    "NVFP4Quantizer": "nvfp4",
}


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
