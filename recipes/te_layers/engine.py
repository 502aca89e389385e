"""From a precision key to Transformer Engine's recipe class."""

from __future__ import annotations

from transformer_engine.common import recipe as te_recipe


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
