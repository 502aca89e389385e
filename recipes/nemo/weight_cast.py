"""How the optimizer casts weights to FP8 once a step, where Transformer Engine's way and its older way differ."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from recipes.runs import RunError


def cast_weights_rowwise() -> list[str]:
    """Let the optimizer cast weights to FP8 (current scaling) as Transformer Engine up to 2.6 does.

    From 2.7 to 2.20 (at least), `cast_master_weights_to_fp8` asks for a transpose of each weight's flat fragment, and
    throws it away: on Hopper that runs cast_transpose_general_kernel on a matrix of one row, about 70 ps a parameter.
    Returns what was changed, for the run's record. Raises RunError where Transformer Engine has no such function.
    """
    utils: Any = importlib.import_module("transformer_engine.pytorch.tensor.utils")
    name = "_cast_master_weights_to_fp8_current_scaling"
    if not hasattr(utils, name):
        raise RunError(f"this Transformer Engine has no {name}; run the experiment without -rowwise_cast")
    setattr(utils, name, _without_transpose(utils, getattr(utils, name)))
    return [f"{utils.__name__}.{name}"]


def _without_transpose(utils: Any, cast: Any) -> Any:
    stock = utils.Float8Quantizer

    @functools.wraps(cast)
    def rowwise(*args: Any, **kwargs: Any) -> Any:
        # for the time of the call: elsewhere the name must stay a class
        utils.Float8Quantizer = functools.partial(stock, columnwise=False)
        try:
            return cast(*args, **kwargs)
        finally:
            utils.Float8Quantizer = stock

    return rowwise
