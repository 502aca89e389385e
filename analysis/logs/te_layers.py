"""The lines of te_layers' metrics.jsonl: timed passes, bare operations, numerics, memory."""

from __future__ import annotations

from typing import Any

from analysis.logs.run import Op, Run, Step
from analysis.logs.values import integer, number


def take(run: Run, record: Any) -> None:
    """Add one object of metrics.jsonl to a run. Raises ValueError, TypeError or KeyError for what does not fit."""
    kind = record["record"]
    if kind == "step":
        time_s = number(record["step_time_s"])
        run.steps.append(Step(integer(record["step"]), bool(record["timed"]), time_s, integer(record["tokens"])))
    elif kind == "op":
        flops = 2 * integer(record["m"]) * integer(record["n"]) * integer(record["k"])
        op, gemm = str(record["op"]), str(record["gemm"])
        run.ops.append(Op(gemm, op, integer(record["step"]), number(record["time_s"]), flops))
    elif kind == "numerics":
        run.numerics.append({key: value for key, value in record.items() if key != "record"})
    elif kind == "memory":
        run.peak_memory_bytes = integer(record["peak_allocated_bytes"])
    else:
        raise ValueError(f"unknown record {str(kind)[:40]!r}")
