"""A stack of Transformer Engine layers at one model's true width: forward + backward, timed by device events.

Needs torch and Transformer Engine. Random BF16 input and output gradient, no optimizer, no dropout, no communication.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import transformer_engine.pytorch as te

from recipes.effective import attention_backend, effective_precision
from recipes.runs import RunFolder
from recipes.te_layers.engine import make_recipe
from recipes.te_layers.experiments import Experiment

TE_ACTIVATIONS = {"swiglu": "swiglu", "squared_relu": "srelu"}
TE_NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}


def build(which: Experiment) -> torch.nn.ModuleList:
    """The layers on the GPU in BF16; the same seed gives the same weights for every precision.

    Nemotron's LayerNorm is zero-centred (NeMo's layernorm1p). Llama and Nemotron have no biases in their matrices.
    """
    torch.manual_seed(which.seed)
    model = which.dimensions
    return torch.nn.ModuleList(
        te.TransformerLayer(
            model.hidden,
            model.ffn,
            model.heads,
            num_gqa_groups=model.kv_groups,
            bias=False,
            normalization=TE_NORMS[model.norm],
            zero_centered_gamma=model.norm == "layernorm",
            activation=TE_ACTIVATIONS[model.activation],
            hidden_dropout=0.0,
            attention_dropout=0.0,
            fuse_qkv_params=True,
            params_dtype=torch.bfloat16,
            attn_input_format="sbhd",
            self_attn_mask_type="causal",
            layer_number=number + 1,
            device="cuda",
        )
        for number in range(which.layers)
    )


def measure(which: Experiment, folder: RunFolder, baseline: dict[str, Any]) -> None:
    """Time `warmup` + `iterations` passes into `folder`.

    Writes one `step` record an iteration (`step_time_s` of the whole stack), one of `memory`, one of `numerics`.
    `baseline` carries BF16's output from run to run, so that each narrow run states how far its output is from it.
    Raises RuntimeError when the modules do not hold the precision that was asked for.
    """
    layers = build(which)
    recipe = make_recipe(which.precision)
    model = which.dimensions
    shape = (which.sequence, which.micro_batch_size, model.hidden)
    generator = torch.Generator("cuda").manual_seed(which.seed)
    x = torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16).requires_grad_()
    dy = torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)
    rope = te.RotaryPositionEmbedding(model.head_dim, rotary_percent=model.rotary_fraction)(which.sequence).cuda()

    def iterate() -> torch.Tensor:
        with te.autocast(enabled=recipe is not None, recipe=recipe):
            y = x
            for layer in layers:
                y = layer(y, rotary_pos_emb=rope)
        y.backward(dy)
        return y

    def drop_gradients() -> None:
        for parameter in layers.parameters():
            parameter.grad = None

    total = which.warmup + which.iterations
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(total)]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    for number, (start, end) in enumerate(events):
        if number == which.warmup:
            torch.cuda.synchronize()  # warm-up is over: the timed iterations start on an idle device
            folder.record["timed_start"] = time.time()
        x.grad = None
        start.record()
        y = iterate()
        drop_gradients()
        end.record()
    torch.cuda.synchronize()
    folder.record["timed_end"] = time.time()

    for number, (start, end) in enumerate(events):
        step_time_s = start.elapsed_time(end) / 1000
        timed = number >= which.warmup
        folder.metric(record="step", step=number, timed=timed, step_time_s=step_time_s, tokens=which.tokens)
        folder.log(f"step {number} {'timed' if timed else 'warmup'} step_time_s {step_time_s:.6f}")
    folder.metric(
        record="memory",
        peak_allocated_bytes=torch.cuda.max_memory_allocated(),
        allocated_before_bytes=before,
        peak_reserved_bytes=torch.cuda.max_memory_reserved(),
    )
    found = effective_precision(layers.modules())
    folder.record["effective_precision"] = found["precision"]
    folder.record["effective_evidence"] = {
        "quantizers": found["quantizers"],
        "recipe": str(recipe),
        "attention": attention_backend(),
    }
    output = y.detach().float()
    folder.metric(record="numerics", **_numerics(which.precision, output, x.grad, baseline))
    if found["precision"] != which.precision:
        raise RuntimeError(f"asked for {which.precision}, but the modules hold {found['precision']}")


def _numerics(
    precision: str, output: torch.Tensor, gradient: torch.Tensor | None, baseline: dict[str, Any]
) -> dict[str, float | None]:
    if precision == "bf16":
        baseline["output"] = output.cpu()
    reference = baseline.get("output")
    error = None
    if reference is not None and precision != "bf16":
        reference = reference.to(output.device)
        error = ((output - reference).norm() / reference.norm()).item()
    return {
        "output_l2": output.norm().item(),
        "input_grad_l2": gradient.float().norm().item() if gradient is not None else None,
        "output_relative_error_to_bf16": error,
    }
