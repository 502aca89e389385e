"""What invented training runs of every stack share: run.json's content, and the steps as a worker writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recipes.runs import RunFolder
from recipes.training import TrainingExperiment

START = 1767225600.0  # 2026-01-01


def content(which: TrainingExperiment, run_id: str, record: dict[str, Any]) -> dict[str, Any]:
    """The content of run.json for an experiment on one H200, or on CPU; `record` adds entries or replaces them."""
    hardware = {"gpus": 0} if which.hardware == "cpu" else {"gpus": 1, "gpu_name": "NVIDIA H200", "gpu_uuid": "GPU-0"}
    return {
        "configuration": which.model_dump(mode="json"),
        "release": which.release,
        "requested_precision": which.precision,
        "effective_precision": which.precision,
        "hardware": hardware,
        "environment": {"lock_sha256": "0", "variables": {}},
        "git": {"commit": "0" * 40, "dirty": False},
        "session": {"id": run_id, "repeat": 1},
        "seed": which.seed,
        "data": "invented",
        **record,
    }


def steps(
    folder: RunFolder, which: TrainingExperiment, losses: list[float], batch: int, step_time_s: float, peak_gib: int
) -> Iterator[tuple[int, float, float]]:
    """Write metrics.jsonl; yields step, loss and time in seconds. The first two steps take twice as long."""
    clock = START
    for step, loss in enumerate(losses):
        time_s = step_time_s * (2.0 if step < 2 else 1.0 + 0.001 * (step % 3))
        clock += time_s
        folder.metric(
            step=step,
            loss=loss,
            grad_norm=1.5,
            lr=1e-6 * (step + 1),
            step_time_s=time_s,
            consumed_samples=(step + 1) * batch,
            memory_peak_bytes=None if which.hardware == "cpu" else peak_gib << 30,
            time_unix_s=clock,
        )
        yield step, loss, time_s
