"""Which precision a compiled step really has, read from its StableHLO text and the names of its state. No JAX here."""

from __future__ import annotations

import re
from collections.abc import Iterable

# StableHLO's names of element types -> ours
NARROW = {"f4E2M1FN": "e2m1", "f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "f8E8M0FNU": "e8m0"}
_TYPE = re.compile(rf"x({'|'.join(NARROW)})>")
# The random Hadamard transform multiplies by a matrix of 16 x 16; nothing else in a step has that shape. Compiled
# Transformer Engine does so inside its quantization (seen in the step lowered for an H200, which cannot run it).
_HADAMARD = re.compile(r"dot_general.*tensor<16x16x(?:bf16|f32)>|custom_call @te_\w*quantize\w*\(.*use_rht = true")
# attention as one call: Transformer Engine's, or JAX's door to cuDNN's
_FUSED_ATTENTION = re.compile(r"custom_call @(?:te_fused_attn_\w+|__cudnn\$fmha\w+)")
AMAX_HISTORY = "amax_history"  # what delayed scaling keeps in the state


def narrow_types(text: str) -> dict[str, int]:
    """Lines of a StableHLO module that hold each narrow type, by our names of the types; absent ones are left out."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        for kind in set(_TYPE.findall(line)):
            found[NARROW[kind]] = found.get(NARROW[kind], 0) + 1
    return dict(sorted(found.items()))


def hadamard_products(text: str) -> int:
    """Random Hadamard transforms: products with a matrix of 16 x 16, or quantizations that hold one."""
    return sum(bool(_HADAMARD.search(line)) for line in text.splitlines())


def fused_attentions(text: str) -> int:
    """Calls of a fused attention kernel, forward and backward."""
    return len(_FUSED_ATTENTION.findall(text))


def proved_precision(types: dict[str, int], hadamards: int, state: Iterable[str]) -> str:
    """The precision that the types of a training step amount to, or `mixed: ...` where they fit none.

    `state`: names of what the step carries over, where delayed scaling keeps its histories.
    """
    kinds = set(types)
    if not kinds:
        return "bf16"
    if kinds == {"e2m1", "e4m3"}:
        return "nvfp4" if hadamards else "nvfp4_no_rht"
    if kinds == {"e4m3", "e8m0"}:
        return "mxfp8"
    if kinds == {"e4m3", "e5m2"}:
        return "fp8_delayed" if any(AMAX_HISTORY in name for name in state) else "fp8_current"
    return f"mixed: {', '.join(sorted(kinds))}"


# a collective of compiled HLO: its result's types and shapes, then its name
_COLLECTIVE = re.compile(
    r"= \(?([^=]*?)\)? (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
)
_ARRAY = re.compile(r"([a-z]+\d+)(?:[a-z0-9]*)\[([\d,]*)\]")


def collectives(text: str) -> dict[str, dict[str, int]]:
    """Collectives of a compiled HLO module by kind: how many, and bytes of their results on one device.

    Those in a loop's body count once.
    """
    found: dict[str, dict[str, int]] = {}
    for result, kind in _COLLECTIVE.findall(text):
        one = found.setdefault(kind, {"count": 0, "bytes": 0})
        one["count"] += 1
        for name, shape in _ARRAY.findall(result):
            bits = int(re.sub(r"\D", "", name))
            size = 1
            for extent in filter(None, shape.split(",")):
                size *= int(extent)
            one["bytes"] += size * bits // 8
    return dict(sorted(found.items()))
