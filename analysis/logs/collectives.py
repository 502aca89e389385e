"""The lines of collectives' metrics.jsonl: one object a timed call."""

from __future__ import annotations

from typing import Any

from analysis.logs.run import Run, Transfer
from analysis.logs.values import integer, number

STACK = "collectives"


def take(run: Run, record: Any) -> None:
    """Add one call to a run. Raises ValueError, TypeError or KeyError for what does not fit."""
    if record["record"] != "transfer":
        raise ValueError(f"unknown record {str(record['record'])[:40]!r}")
    run.transfers.append(
        Transfer(
            operation=str(record["operation"]),
            payload=str(record["payload"]),
            size=integer(record["bytes"]),
            step=integer(record["step"]),
            time_s=number(record["time_s"]),
        )
    )
