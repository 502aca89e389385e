"""Writes MaxText run folders as the launcher would, with invented times: for tests only, never under results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recipes.maxtext.experiments import experiment
from recipes.runs import RunFolder


def make_maxtext_run(
    root: Path,
    name: str,
    *,
    step_time_s: float = 0.8,
    loss: float = 10.9,
    run_id: str = "20260101T000000Z-0000-r1",
    facts: dict[str, Any] | None = None,
    **record: Any,
) -> Path:
    """A sealed, complete run of the experiment; `record` replaces entries of run.json. Returns the folder.

    The loss falls by a hundredth of itself a step.
    """
    which = experiment(name)
    hardware = {"gpus": 0} if which.tier == "cpu" else {"gpus": 1, "gpu_name": "NVIDIA H200", "gpu_uuid": "GPU-0"}
    content = {
        "kind": "emulated" if which.emulated and which.precision != "bf16" else "measured",
        "configuration": which.model_dump(mode="json"),
        "release": which.release,
        "requested_precision": which.precision,
        "effective_precision": which.precision,
        "hardware": hardware,
        "versions": {"maxtext": "0.2.5"},
        "environment": {"lock_sha256": "0", "variables": {}},
        "git": {"commit": "0" * 40, "dirty": False},
        "session": {"id": run_id, "repeat": 1},
        "seed": which.seed,
        "data": "invented",
        "maxtext": {"narrow_types": {}, "hadamard_products": 0, "mended": [], **(facts or {})},
        **record,
    }
    batch, clock = which.layout.global_batch_samples, 1767225600.0
    with RunFolder(root, "maxtext", name, run_id, content) as folder:
        for step in range(which.steps):
            time_s = step_time_s * (2.0 if step < 2 else 1.0 + 0.001 * (step % 3))
            clock += time_s
            value = loss * 0.99**step
            folder.metric(
                step=step,
                loss=value,
                grad_norm=1.5,
                lr=1e-6 * (step + 1),
                step_time_s=time_s,
                consumed_samples=(step + 1) * batch,
                memory_peak_bytes=None if which.tier == "cpu" else 50 << 30,
                time_unix_s=clock,
            )
            tokens = batch * which.dimensions.sequence / time_s
            folder.log(
                f"I0101 00:00:00.000000 1 metric_logger.py:265] completed step: {step}, seconds: {time_s:.3f},"
                f" TFLOP/s/device: {400 / time_s:.3f}, Tokens/s/device: {tokens:.3f},"
                f" total_weights: 32764, loss: {value:.3f}, lm_loss: {value:.3f}, perplexity: 1.0"
            )
        folder.finish("completed")
    return folder.path
