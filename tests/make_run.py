"""Writes te_layers run folders as the launcher would, with invented times: for tests only, never under results/."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from recipes.power import COLUMNS
from recipes.runs import POWER, RunFolder
from recipes.te_layers.experiments import Experiment, experiment, gemms

GPU = "NVIDIA H200"
HARDWARE = {
    "gpus": 1,
    "gpu_name": GPU,
    "gpu_uuid": "GPU-0",
    "compute_capability": [9, 0],
    "cuda": "13.0",
    "driver": "580",
}


def make_run(
    root: Path,
    precision: str = "bf16",
    *,
    kind: str = "layers",
    model: str = "llama3_8b",
    repeat: int = 1,
    session: str = "s1",
    scale: float = 1.0,
    iterations: int = 12,
    change: Any = None,
) -> Path:
    """One sealed, VALID run folder. `scale` multiplies every time; `change(record)` alters run.json before sealing."""
    which = experiment(kind, model, precision, iterations)  # type: ignore[arg-type]
    record = {
        "configuration": which.model_dump(mode="json"),
        "release": "2.20",
        "requested_precision": precision,
        "effective_precision": precision,
        "effective_evidence": {"attention": "fused 1"},
        "hardware": HARDWARE,
        "versions": {"torch": "2.11.0"},
        "environment": {"lock_sha256": "0", "variables": {}},
        "git": {"commit": "0" * 40, "dirty": False},
        "seed": which.seed,
        "data": "invented",
        "session": {"id": session, "repeat": repeat},
    }
    folder = RunFolder(root, "te_layers", which.name, f"{session}-r{repeat}", record)
    with folder:
        write = _layers if kind == "layers" else _gemms
        write(which, folder, scale)
        folder.metric(record="memory", peak_allocated_bytes=10**10)
        folder.metric(record="numerics", output_l2=1.0, input_grad_l2=1.0)
        (folder.path / POWER).write_text(",".join(COLUMNS) + "\n")
        folder.finish("completed")
        if change:
            change(folder.record)
    return folder.path


def _layers(which: Experiment, folder: RunFolder, scale: float) -> None:
    total = 0.0
    for number in range(which.warmup + which.iterations):
        step_time_s = 0.09 * scale * (1 + 0.01 * (number % 3))
        timed = number >= which.warmup
        total += step_time_s if timed else 0
        folder.metric(record="step", step=number, timed=timed, step_time_s=step_time_s, tokens=which.tokens)
        folder.log(f"step {number} {'timed' if timed else 'warmup'} step_time_s {step_time_s:.6f}")
    end = time.time()
    folder.record |= {"timed_start": end - total, "timed_end": end}


def _gemms(which: Experiment, folder: RunFolder, scale: float) -> None:
    operations = ["fprop", "dgrad", "wgrad"]
    if which.precision != "bf16":
        operations += ["quantize_input", "quantize_weight", "quantize_gradient"]
    for gemm in gemms(which.dimensions, which.tokens):
        for operation in operations:
            time_s = gemm.flops / 7e14 * scale if operation in ("fprop", "dgrad", "wgrad") else 1e-4
            for number in range(which.iterations):
                shape = {"m": gemm.m, "n": gemm.n, "k": gemm.k}
                folder.metric(record="op", gemm=gemm.name, op=operation, step=number, time_s=time_s, **shape)
