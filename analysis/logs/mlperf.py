"""MLPerf training logs: `:::MLLOG` and a JSON object, alone or anywhere in a standard output (mlcommons/logging).

A step record is `tracked_stats` with a training loss, or (LoRA, v5.0) `train_loss`. Records of a whole block and of
validation use the same key and are not steps. `metadata.step` counts samples in some submissions and steps in others;
the log is read as it counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.logs.columns import RANK, Column
from analysis.logs.format import TROUBLE, Event, Format, trouble
from analysis.logs.json_lines import fields, json_object, spots
from analysis.logs.layout import EVENT, Parsed, Spot
from analysis.logs.nemo import FLAG

_MARK = b":::MLLOG "
_FIELDS = fields(
    {
        "time_ms": (Column.UNIX_S, 1e3),
        "train_step_time": (Column.STEP_TIME_S, 1.0),
        "reduced_train_loss": (Column.LOSS, 1.0),
        "train_loss": (Column.LOSS, 1.0),
        "lr": (Column.LEARNING_RATE, 1.0),
        "samples_count": (Column.CONSUMED_SAMPLES, 1.0),
        "step": (Column.STEP, 1.0),
    }
)
_LOSS_RECORD = re.compile(rb'"key": "train_loss", "value": (-?[\d.]+(?:[eE][-+]?\d+)?|NaN|-?Infinity)(?=\s*[,}])')
_SYSTEM = re.compile(rb"^:::SYSJSON (\{.*\})|:::SYSJSON (\{.*\})")


def parse(line: bytes) -> Parsed | None:
    """A step record's numbers. Everything else that MLLOG says is an event."""
    start = line.find(_MARK)
    if start < 0:
        if b"fp" in line and FLAG.search(line):
            return EVENT
        return EVENT if TROUBLE.search(line) or b":::SYSJSON" in line else None
    if b'"validation_step_time"' in line:
        return None
    if b'"tracked_stats"' in line and b'"throughput"' not in line:
        record = json_object(line, start + len(_MARK))
        value = record.get("value") if record else None
        if isinstance(value, dict) and value.keys() & {"reduced_train_loss", "train_loss"}:
            return _step(line, start, {})
    elif b'"train_loss"' in line:
        loss = _LOSS_RECORD.search(line)
        if loss and json_object(line, start + len(_MARK)) is not None:
            return _step(line, start, {Column.LOSS: Spot(*loss.span(1))})
    return EVENT


def _step(line: bytes, start: int, more: dict[int, Spot]) -> Parsed:
    found = spots(line, _FIELDS) | more
    rank = RANK.match(line, 0, start)
    if rank and rank[1] is not None:
        found[Column.RANK] = Spot(*rank.span(1))
    # one of them alone is samples: a `step` without samples_count counts samples
    if Column.STEP not in found and Column.CONSUMED_SAMPLES in found:
        found[Column.STEP] = found[Column.CONSUMED_SAMPLES]
    elif Column.CONSUMED_SAMPLES not in found and Column.STEP in found:
        found[Column.CONSUMED_SAMPLES] = found[Column.STEP]
    return Parsed(found) if Column.STEP in found else EVENT


_FACT_OF = {
    "global_batch_size": "batch_samples",
    "max_sequence_length": "sequence",
    "seed": "seed",
    "submission_benchmark": "model",
    "submission_platform": "hardware",
    "gradient_accumulation_steps": "gradient_accumulation",
}


def events(line: bytes) -> Iterator[Event]:
    """The run's start and stop, evaluations, blocks, configuration, precision switches printed around them."""
    start = line.find(_MARK)
    if start < 0:
        flags = list(FLAG.finditer(line))
        for flag in flags:
            yield Event("fact", flag[2].decode("ascii", "replace"), f"flag {flag[1].decode()}")
        if not flags:
            yield from _other(line)
        return
    record = json_object(line, start + len(_MARK))
    if record is None:
        yield Event("torn")
        return
    key, value, time_ms = str(record.get("key")), record.get("value"), record.get("time_ms")
    metadata = record.get("metadata") if isinstance(record.get("metadata"), dict) else {}
    if not isinstance(time_ms, int | float) or isinstance(time_ms, bool):
        yield Event("torn")
        return
    if key in _FACT_OF and isinstance(value, int | float | str):
        yield Event("fact", str(value), _FACT_OF[key])
    elif key == "eval_accuracy":
        loss = float(value) if isinstance(value, int | float) else float("nan")
        yield Event("eval", (loss, time_ms / 1e3, _samples(metadata)))
    elif key in ("run_start", "run_stop", "block_start", "block_stop", "eval_start", "eval_stop"):
        yield Event("fact", (time_ms / 1e3, _samples(metadata)), f"mark {key}")
        if key == "run_start" and isinstance(metadata, dict) and isinstance(metadata.get("file"), str):
            yield Event("fact", metadata["file"].rsplit("/", 1)[-1], "writer")
        if key == "run_stop":
            status = str(metadata.get("status")) if isinstance(metadata, dict) else "None"
            yield Event("end") if status == "success" else Event("stopped", f"status {status}")
    elif key == "tracked_stats":
        yield Event("fact", (time_ms / 1e3, 0.0), "mark tracked_stats")


def _samples(metadata: object) -> float:
    """Samples that a mark says were consumed; 0 where it does not say."""
    count = metadata.get("samples_count") if isinstance(metadata, dict) else None
    return float(count) if isinstance(count, int | float) else 0.0


def _other(line: bytes) -> Iterator[Event]:
    system = _SYSTEM.search(line)
    record = json_object(system[1] or system[2]) if system else None
    if record and isinstance(record.get("accelerator_model_name"), str):
        yield Event("fact", record["accelerator_model_name"], "hardware")
    yield from trouble(line)


MLPERF = Format(
    "mlperf",
    0,
    re.compile(rb':::MLLOG \{.*"time_ms":'),
    parse,
    events,
    needs=("loss",),
    timed_by="record",
    closed_lines=True,
)
