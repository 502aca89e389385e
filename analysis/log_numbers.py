"""The numbers of one judged log, as `fewbits verify --json` prints them. Units in the names; None: not known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.judge_log import JudgedLog
from analysis.labels import declared, effective_gpu, effective_precision
from analysis.log_steps import missing_steps
from analysis.stats import Estimate, median

Floats = NDArray[np.float64]

# Warm-up: steps up to this printed number, or this many records, are not timed.
WARMUP = 10
# A longer series is thinned to this many values (stretches of neighbours) before its interval is computed.
MOST_RESAMPLED = 4096


def window_times_s(judged: JudgedLog) -> Floats:
    """Step times that count, seconds: after the warm-up, without the first step after a restart, all finite.

    Where lines state no time, it is the time between their stamps over the steps between them.
    """
    run = judged.run
    table = run.timeline.table()
    times = table["time_s"].copy()
    if not np.isfinite(times).any() and times.size > 1:
        apart = np.diff(table["step"], prepend=np.nan) / _labels_a_step(judged)
        times = np.diff(table["unix_s"], prepend=np.nan) / apart
    late = table["step"] > WARMUP if run.format.timed_by == "number" else np.arange(times.size) >= WARMUP
    return np.asarray(times[late & (table["first_of_attempt"] == 0) & np.isfinite(times)])


def _labels_a_step(judged: JudgedLog) -> float:
    """How much the printed label grows in one step: 1, or the batch where labels count samples."""
    run = judged.run
    batch = run.number("batch_samples")
    first = run.timeline.first_row.get("consumed_samples")
    counts_samples = (
        run.format.name == "mlperf" and bool(run.timeline.attempts) and first == run.timeline.attempts[0][0]
    )
    return batch if counts_samples and batch else 1.0


def thinned(times: Floats) -> Floats:
    """At most MOST_RESAMPLED values: evenly spaced stretches of neighbours, so that their dependence stays."""
    if times.size <= MOST_RESAMPLED:
        return times
    stretch = 64
    starts = np.linspace(0, times.size - stretch, MOST_RESAMPLED // stretch).astype(np.int64)
    return np.asarray(times[(starts[:, None] + np.arange(stretch)).ravel()])


def step_time(times: Floats) -> Estimate | None:
    """Median with its 95 % interval; None without a value."""
    if not times.size:
        return None
    found = median([thinned(times).tolist()])
    return Estimate(float(np.median(times)), found.low, found.high, int(times.size), 1)


def tokens_per_s_per_gpu(judged: JudgedLog, estimate: Estimate | None) -> float | None:
    """As printed (median over the window), else batch x sequence over step time and GPUs where all are known."""
    run, expected = judged.run, judged.expected
    table = run.timeline.table()
    printed = table["tokens_per_s"][(table["step"] > WARMUP) & np.isfinite(table["tokens_per_s"])]
    if printed.size:
        return float(np.median(printed))
    sizes = run.timeline.batch_sizes
    batch = expected.gbs or (next(iter(sizes)) if len(sizes) == 1 else run.number("batch_samples"))
    sequence, gpus = expected.seq or run.number("sequence"), expected.gpus or run.number("gpus")
    if estimate is None or not (batch and sequence and gpus):
        return None
    return batch * sequence / estimate.value / gpus


def as_record(judged: JudgedLog) -> dict[str, Any]:
    """One run as a JSON object: no NaN, no infinity."""
    run, timeline = judged.run, judged.run.timeline
    table = timeline.table()
    estimate = step_time(window_times_s(judged))
    missing = missing_steps(run)[0]
    losses = table["loss"][np.isfinite(table["loss"])]
    nan_steps = timeline.loss_bad.count + (timeline.loss_absent.count if timeline.loss_seen or run.timelines else 0)
    return {
        "path": run.path,
        "run": run.part,
        "runs": run.parts,
        "parents": list(run.parents),
        "format": run.format.name,
        "verdict": judged.verdict,
        "reasons": [{"code": r.code, "message": r.message, "lines": list(r.lines)} for r in judged.reasons],
        "steps": {
            "first": json_number(table["step"][0]) if table["step"].size else None,
            "last": json_number(timeline.last_step),
            "count": timeline.rows - timeline.repeated,
            "repeated": timeline.repeated + timeline.same_step.count,
            "missing": missing,
        },
        "step_time_s": {
            "median": json_number(estimate.value) if estimate else None,
            "ci95": [estimate.low, estimate.high] if estimate else None,
            "window": f"step > {WARMUP}" if run.format.timed_by == "number" else f"records after the first {WARMUP}",
            "n": estimate.n if estimate else 0,
        },
        "tokens_per_s_per_gpu": json_number(tokens_per_s_per_gpu(judged, estimate)),
        "loss": {
            "first": json_number(timeline.first_loss),
            "last": json_number(timeline.last_row.get("loss")),
            "min": json_number(float(losses.min()) if losses.size else None),
            "nan_steps": nan_steps,
        },
        "grad_norm": {"last": json_number(timeline.last_row.get("grad_norm"))},
        "precision": {
            "declared": judged.expected.precision or declared(run.path, "precision"),
            "effective": effective_precision(run),
        },
        "hardware": {
            "declared": judged.expected.hardware or declared(run.path, "gpu"),
            "effective": effective_gpu(run),
        },
        "sha256": run.sha256,
    }


def json_number(value: float | None) -> float | int | None:
    """A finite number as JSON has it; whole numbers without a fraction."""
    if value is None or not math.isfinite(value):
        return None
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
