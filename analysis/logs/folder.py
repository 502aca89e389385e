"""Reads a run folder of any stack: run.json, metrics.jsonl, power.csv. What does not fit becomes a reason."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from analysis.logs import collectives, te_layers, training
from analysis.logs.run import PowerSample, Reason, Run
from recipes.power import COLUMNS
from recipes.runs import METRICS, POWER, RUN_JSON

# How a stack's metrics.jsonl is read, one object a line; an unknown stack is read as te_layers and fails its checks.
TAKE: dict[str, Callable[[Run, Any], None]] = {
    "te_layers": te_layers.take,
    collectives.STACK: collectives.take,
    **dict.fromkeys(training.STACKS, training.take),
}

# A raw folder is somebody's upload: nothing in it may cost unbounded memory.
MAX_RECORD_BYTES = 1 << 20
MAX_METRICS_BYTES = 256 << 20
_SOFTWARE_POWER_CAP = 0x4  # nvmlClocksEventReasonSwPowerCap, NVML API reference


def read_run(folder: Path) -> Run:
    """The run in `folder`. Never raises for what the folder holds: faults are the run's `reasons`."""
    run = Run(path=folder)
    _read_record(run)
    _read_metrics(run)
    _read_power(run)
    return run


def _read_record(run: Run) -> None:
    path = run.path / RUN_JSON
    try:
        if path.stat().st_size > MAX_RECORD_BYTES:
            raise ValueError("larger than any run record")
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        run.record = record
    except (OSError, ValueError, RecursionError) as error:
        run.reasons.append(Reason("run_json_unreadable", f"{RUN_JSON}: {_short(error)}"))


def _read_metrics(run: Run) -> None:
    path = run.path / METRICS
    take = TAKE.get(run.path.parts[-3] if len(run.path.parts) > 2 else "", te_layers.take)
    try:
        if path.stat().st_size > MAX_METRICS_BYTES:
            raise ValueError("larger than any metrics file")
        for number, line in _lines(path):
            try:
                take(run, json.loads(line))
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
                run.reasons.append(Reason("metrics_line_unreadable", f"{METRICS}: {_short(error)}", (number,)))
    except (OSError, ValueError) as error:
        run.reasons.append(Reason("metrics_unreadable", f"{METRICS}: {_short(error)}"))


def _read_power(run: Run) -> None:
    """power.csv, where there is one; a run without samples has unknown clocks, which is no fault."""
    path = run.path / POWER
    try:
        if not path.exists():
            return
        if path.stat().st_size > MAX_METRICS_BYTES:
            raise ValueError("larger than any power file")
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file, strict=True)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                raise ValueError(f"the columns are not {', '.join(COLUMNS)}")
            for row in rows:
                run.power.append(_power_sample(row))
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        run.reasons.append(Reason("power_unreadable", f"{POWER}: {_short(error)}"))


def _power_sample(row: dict[str, str]) -> PowerSample:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    reasons = row["throttle_reasons"]
    return PowerSample(
        time_unix_s=float(row["time_unix_s"]),
        power_w=number("power_w") or number("power_average_w"),
        energy_j=number("energy_j"),
        sm_clock_mhz=number("sm_clock_mhz"),
        power_capped=bool(int(reasons, 16) & _SOFTWARE_POWER_CAP) if reasons else None,
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                raise ValueError(f"line {number} is cut off")
            yield number, line.decode("utf-8")


def _short(error: Exception) -> str:
    # without the path: a reason must read the same on every machine
    text = error.strerror or "" if isinstance(error, OSError) else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
