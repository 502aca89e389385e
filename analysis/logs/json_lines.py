"""Logs whose lines are JSON objects: NeMo 1's DLLogger, MaxText's metrics_file, and our own metrics.jsonl."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.logs.columns import Column
from analysis.logs.format import TROUBLE, Event, Format, trouble
from analysis.logs.layout import EVENT, Parsed, Spot

# JSON's own numbers, and what Python's json writes for the others
_VALUE = rb'"?(-?[\d.]+(?:[eE][-+]?\d+)?|-?Infinity|NaN)"?(?=\s*[,}])'


def fields(names: Mapping[str, tuple[Column, float]]) -> list[tuple[re.Pattern[bytes], Column, float]]:
    """Patterns that find a JSON object's numbers by key."""
    return [
        (re.compile(b'"' + re.escape(name.encode()) + rb'":\s*' + _VALUE), column, divisor)
        for name, (column, divisor) in names.items()
    ]


def spots(line: bytes, patterns: list[tuple[re.Pattern[bytes], Column, float]]) -> dict[int, Spot]:
    """Where the numbers stand; the last of several equal keys counts, as it does in JSON."""
    found: dict[int, Spot] = {}
    for pattern, column, divisor in patterns:
        for match in pattern.finditer(line):
            found[column] = Spot(*match.span(1), divisor)
    return found


def json_object(line: bytes, start: int = 0) -> dict[str, Any] | None:
    """The JSON object that a line holds from `start` on, or None where it is not one (a cut line, say)."""
    try:
        value = json.loads(line[start:])
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


_DLLOGGER = fields(
    {
        "timestamp": (Column.UNIX_S, 1.0),
        "step": (Column.STEP, 1.0),
        "reduced_train_loss": (Column.LOSS, 1.0),
        "lr": (Column.LEARNING_RATE, 1.0),
        "consumed_samples": (Column.CONSUMED_SAMPLES, 1.0),
        "grad_norm": (Column.GRAD_NORM, 1.0),
        "train_step_timing in s": (Column.STEP_TIME_S, 1.0),
    }
)


def _parse_dllogger(line: bytes) -> Parsed | None:
    if not line.startswith(b"DLLL "):
        return EVENT if TROUBLE.search(line) else None
    record = json_object(line, 5)
    if record is None or not isinstance(record.get("step"), int):
        return EVENT
    found = spots(line, _DLLOGGER)
    return Parsed(found) if Column.LOSS in found or Column.STEP_TIME_S in found else None


def _dllogger_events(line: bytes) -> Iterator[Event]:
    if not line.startswith(b"DLLL "):
        yield from trouble(line)
        return
    record = json_object(line, 5)
    if record is None:
        yield Event("torn")
        return
    data = record.get("data")
    if record.get("step") == "PARAMETER" and isinstance(data, dict):
        yield Event("header")
        for key, name in (
            ("cfg/global_batch_size", "batch_samples"),
            ("cfg/encoder_seq_length", "sequence"),
            ("trainer/max_steps", "total_steps"),
            ("cfg/fp8", "flag fp8"),
        ):
            if isinstance(data.get(key), int | float | str):
                yield Event("fact", str(data[key]), name)
        if "bf16" in str(data.get("cfg/precision")):
            yield Event("fact", "True", "flag bf16")


_METRICS = fields(
    {
        "step": (Column.STEP, 1.0),
        "learning/loss": (Column.LOSS, 1.0),
        "loss": (Column.LOSS, 1.0),
        "learning/grad_norm": (Column.GRAD_NORM, 1.0),
        "grad_norm": (Column.GRAD_NORM, 1.0),
        "learning/current_learning_rate": (Column.LEARNING_RATE, 1.0),
        "lr": (Column.LEARNING_RATE, 1.0),
        "perf/step_time_seconds": (Column.STEP_TIME_S, 1.0),
        "step_time_s": (Column.STEP_TIME_S, 1.0),
        "perf/per_device_tflops_per_sec": (Column.TFLOPS, 1.0),
        "perf/per_device_tokens_per_sec": (Column.TOKENS_PER_S, 1.0),
        "global_batch_size": (Column.BATCH_SAMPLES, 1.0),
        "consumed_samples": (Column.CONSUMED_SAMPLES, 1.0),
    }
)


def _parse_metrics(line: bytes) -> Parsed | None:
    if not line.startswith(b"{"):
        return None
    if json_object(line) is None:
        return EVENT
    found = spots(line, _METRICS)
    return Parsed(found) if Column.STEP in found and len(found) > 1 else None


def _metrics_events(line: bytes) -> Iterator[Event]:
    yield Event("torn")


DLLOGGER = Format(
    "dllogger",
    0,
    re.compile(rb'^DLLL \{.*"step": (?:\d|"PARAMETER")', re.M),
    _parse_dllogger,
    _dllogger_events,
    closed_lines=True,
)
METRICS = Format(
    "metrics",
    0,
    re.compile(
        rb'^\{(?=.*"step": *[\d.]+)(?=.*"(?:learning/loss|loss|step_time_s|perf/step_time_seconds)":).*\}', re.M
    ),
    _parse_metrics,
    _metrics_events,
    closed_lines=True,
)
