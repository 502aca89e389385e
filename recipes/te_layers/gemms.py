"""The bare GEMMs of one layer, and the quantization passes that feed them, each timed by itself on the device.

For each linear layer: quantize input, weight and output gradient (each into the layouts that training uses), then the
three GEMMs (forward, input gradient, weight gradient) on operands quantized beforehand. Times "with quantization" are
sums of these, made later by the reader; nothing is summed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from transformer_engine.pytorch.cpp_extensions import general_gemm
from transformer_engine.pytorch.quantization import RecipeState

from recipes.effective import effective_precision
from recipes.runs import RunFolder
from recipes.te_layers.engine import make_recipe
from recipes.te_layers.experiments import Experiment, Gemm, gemms

# The device spins this many cycles before a batch (about 10 ms), so that launches queue up and the host's own speed
# stays out of the times.
_HEAD_START_CYCLES = 20_000_000


class _Quantizers:
    """Quantizers of one linear layer, made by Transformer Engine's own recipe state. `effective_precision` reads it."""

    def __init__(self, recipe: Any) -> None:
        forward = RecipeState.create(recipe, mode="forward", num_quantizers=3)
        backward = RecipeState.create(recipe, mode="backward", num_quantizers=2)
        self.states = (forward, backward)  # delayed scaling's buffers live there
        self.input, self.weight = forward.make_quantizers()[:2]
        self.gradient = backward.make_quantizers()[0]
        for quantizer in (self.input, self.weight, self.gradient):
            quantizer.set_usage(rowwise=True, columnwise=True)
        self.fp8 = True
        self.quantizers = {"forward": [self.input, self.weight], "backward": [self.gradient]}


def measure(which: Experiment, folder: RunFolder, baseline: dict[str, Any]) -> None:
    """Time every operation of the four linear layers into `folder`, as `op` records (`time_s` of one call).

    One `numerics` record for each GEMM states the relative error of its result against BF16 on the same inputs.
    """
    recipe = make_recipe(which.precision)
    folder.record["timed_start"] = time.time()
    torch.cuda.reset_peak_memory_stats()
    holders = [_measure_linear(which, gemm, recipe, folder) for gemm in gemms(which.dimensions, which.tokens)]
    folder.record["timed_end"] = time.time()
    folder.metric(record="memory", peak_allocated_bytes=torch.cuda.max_memory_allocated())
    found = effective_precision([holder for holder in holders if holder is not None])
    folder.record["effective_precision"] = found["precision"]
    folder.record["effective_evidence"] = {"quantizers": found["quantizers"], "recipe": str(recipe)}
    if found["precision"] != which.precision:
        raise RuntimeError(f"asked for {which.precision}, but the quantizers are {found['precision']}")


@torch.no_grad()
def _measure_linear(which: Experiment, gemm: Gemm, recipe: Any, folder: RunFolder) -> _Quantizers | None:
    generator = torch.Generator("cuda").manual_seed(which.seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    x, w, dy = random(gemm.m, gemm.k), random(gemm.n, gemm.k), random(gemm.m, gemm.n)
    quantizers = _Quantizers(recipe) if recipe is not None else None
    qx, qw, qdy = x, w, dy
    if quantizers:
        qx, qw, qdy = quantizers.input(x), quantizers.weight(w), quantizers.gradient(dy)
        for name, quantizer, tensor in (
            ("quantize_input", quantizers.input, x),
            ("quantize_weight", quantizers.weight, w),
            ("quantize_gradient", quantizers.gradient, dy),
        ):
            _time(which, gemm, name, lambda q=quantizer, t=tensor: q(t), folder)

    # Split accumulation as Transformer Engine's modules choose it: off forward, on backward, for per-tensor recipes.
    forward_split = bool(recipe is not None and _split(recipe, "fp8_gemm_fprop", False))
    backward_split = bool(recipe is not None and _split(recipe, "fp8_gemm_dgrad", True))
    operations: dict[str, Callable[[Any, Any, Any], Any]] = {
        "fprop": lambda a, b, _: general_gemm(
            b, a, out_dtype=torch.bfloat16, layout="TN", use_split_accumulator=forward_split
        )[0],
        "dgrad": lambda _, b, g: general_gemm(
            b, g, out_dtype=torch.bfloat16, layout="NN", grad=True, use_split_accumulator=backward_split
        )[0],
        "wgrad": lambda a, _, g: general_gemm(
            a, g, out_dtype=torch.bfloat16, layout="NT", grad=True, use_split_accumulator=backward_split
        )[0],
    }
    for name, operation in operations.items():
        _time(which, gemm, name, lambda run=operation: run(qx, qw, qdy), folder)
        reference = operation(x, w, dy).float()
        error = ((operation(qx, qw, qdy).float() - reference).norm() / reference.norm()).item()
        folder.metric(record="numerics", gemm=gemm.name, op=name, relative_error_to_bf16=error)
    return quantizers


def _split(recipe: Any, gemm: str, default: bool) -> bool:
    parameters = getattr(recipe, gemm, None)
    return default if parameters is None else parameters.use_split_accumulator


def _time(which: Experiment, gemm: Gemm, name: str, call: Callable[[], Any], folder: RunFolder) -> None:
    for _ in range(which.warmup):
        call()
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(which.iterations)
    ]
    torch.cuda.synchronize()
    torch.cuda._sleep(_HEAD_START_CYCLES)
    for start, end in events:
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    for number, (start, end) in enumerate(events):
        folder.metric(
            record="op",
            gemm=gemm.name,
            op=name,
            m=gemm.m,
            n=gemm.n,
            k=gemm.k,
            step=number,
            time_s=start.elapsed_time(end) / 1000,
        )
    folder.log(f"{gemm.name} {name} m {gemm.m} n {gemm.n} k {gemm.k}: {len(events)} times recorded")
