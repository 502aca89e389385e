"""The lines of a training stack's metrics.jsonl: one object a step, with its loss."""

from __future__ import annotations

from typing import Any

from analysis.logs.run import Run, Step, Trained
from analysis.logs.values import integer, number

STACKS = ("nemo", "maxtext")
# The first step compiles and fills caches, FP8's second still allocates (seen: 6.8 s where 5.4 s follow).
WARMUP_STEPS = 3


def take(run: Run, record: Any) -> None:
    """Add one step to a run. Raises ValueError, TypeError or KeyError for what does not fit.

    Timed are the steps after the first three of the process, without profiled ones; tokens come from run.json.
    """
    step = integer(record["step"])
    samples, sequence = (
        run.get("configuration", "layout", "global_batch_samples"),
        run.get("configuration", "dimensions", "sequence"),
    )
    tokens = integer(samples) * integer(sequence)
    timed = len(run.steps) >= WARMUP_STEPS and not record.get("profiled", False)
    run.steps.append(Step(step, timed, number(record["step_time_s"]), tokens))
    grad_norm = record["grad_norm"]
    run.trained.append(
        Trained(
            step=step,
            loss=number(record["loss"]),
            grad_norm=None if grad_norm is None else number(grad_norm),
            consumed_samples=integer(record["consumed_samples"]),
            time_unix_s=number(record["time_unix_s"]),
            profiled=bool(record.get("profiled", False)),
        )
    )
    if record["memory_peak_bytes"] is not None:
        run.peak_memory_bytes = max(run.peak_memory_bytes or 0, integer(record["memory_peak_bytes"]))
