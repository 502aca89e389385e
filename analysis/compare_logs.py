"""Pairs of logs: speedup with interval, what differs besides precision, and the speedup at equal loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.compare import Comparison, Difference
from analysis.judge_log import JudgedLog
from analysis.labels import declared, effective_gpu, effective_precision
from analysis.log_numbers import thinned, window_times_s
from analysis.stats import ratio_of_medians, smoothed

Floats = NDArray[np.float64]

# Facts that say which precision ran; they are what is compared.
_PRECISION_FACTS = ("quantization", "flag ")


@dataclass(frozen=True)
class LossMatched:
    """Time to reach the baseline's last smoothed loss, seconds; `value` is their ratio, None where not reached."""

    value: float | None
    loss: float
    base_s: float
    other_s: float | None


def _said(judged: JudgedLog) -> dict[str, str]:
    """Everything that a log states about how it was run, by name."""
    run, expected = judged.run, judged.expected
    said = {
        name: " | ".join(sorted(values))
        for name, values in run.facts.items()
        if not name.startswith(_PRECISION_FACTS) and name != "hardware"
    }
    said["format"] = run.format.name
    said["hardware"] = effective_gpu(run) or declared(run.path, "gpu") or "not stated"
    sizes = sorted(run.timeline.batch_sizes) or [run.number("batch_samples") or expected.gbs or float("nan")]
    said["batch_samples"] = " | ".join(f"{size:g}" for size in sizes)
    timeline = run.timeline
    said["steps"] = f"{timeline.attempts[0][0]:g} to {timeline.last_step:g}" if timeline.attempts else "none"
    said["restarts"] = str(len(timeline.attempts) - 1)
    return said


def log_differences(base: JudgedLog, other: JudgedLog) -> tuple[Difference, ...]:
    """Every stated fact besides precision in which two logs differ; what one of them does not state counts, too."""
    left, right = _said(base), _said(other)
    return tuple(
        Difference(name, left.get(name, "not stated"), right.get(name, "not stated"))
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
    )


def _samples_a_step(judged: JudgedLog) -> float | None:
    sizes = judged.run.timeline.batch_sizes
    return next(iter(sizes)) if len(sizes) == 1 else judged.run.number("batch_samples") or judged.expected.gbs


def compare_logs(base: Sequence[JudgedLog], other: Sequence[JudgedLog]) -> Comparison:
    """Speedup of `other` over `base`: step times, or times a sample where both state batches that differ.

    Raises ValueError when a side is empty, not VALID, or has no timed step.
    """
    if any(not judged.valid for judged in (*base, *other)):
        raise ValueError("only VALID runs are compared")
    sizes = [_samples_a_step(judged) for judged in (*base, *other)]
    scale = sizes if None not in sizes and len(set(sizes)) > 1 else [1.0] * len(sizes)
    series = [
        (thinned(window_times_s(judged)) / (size or 1.0)).tolist()
        for judged, size in zip((*base, *other), scale, strict=True)
    ]
    found = ratio_of_medians(series[: len(base)], series[len(base) :])
    return Comparison(found, log_differences(base[0], other[0]))


def precisions(judged: JudgedLog) -> str:
    """The precision of a log as it says itself, else as it is labelled."""
    said = judged.expected.precision or declared(judged.run.path, "precision")
    return effective_precision(judged.run) or (f"{said} (label only)" if said else "not stated")


def loss_matched(base: JudgedLog, other: JudgedLog) -> LossMatched | None:
    """Time at which each first reaches the baseline's last smoothed loss; None where a log lacks losses or times,
    or where the baseline's loss does not fall."""
    courses = [_course(judged) for judged in (base, other)]
    if courses[0] is None or courses[1] is None:
        return None
    (base_s, base_loss), (other_s, other_loss) = courses[0], courses[1]
    wanted = float(base_loss[-1])
    noise = float(np.std(np.diff(base_loss)))
    if not base_loss[0] - wanted > max(10 * noise, 0.01 * abs(wanted)):
        return None  # the baseline learns nothing (mock data, say): no loss to reach
    reached_base = float(base_s[int(np.argmax(base_loss <= wanted))])
    below = other_loss <= wanted
    reached_other = float(other_s[int(np.argmax(below))]) if below.any() else None
    value = reached_base / reached_other if reached_other else None
    return LossMatched(value, wanted, reached_base, reached_other)


def _course(judged: JudgedLog) -> tuple[Floats, Floats] | None:
    """Elapsed time (s, sum of step times) and smoothed loss (running median over a twentieth of the run)."""
    table = judged.run.timeline.table()
    time_s, loss, step = table["time_s"], table["loss"], table["step"]
    use = np.isfinite(time_s) & np.isfinite(loss)
    if np.count_nonzero(use) < 10:
        return None
    apart = np.diff(step[use], prepend=step[use][0] - judged.run.timeline.usual_apart())
    elapsed, loss = np.cumsum(time_s[use] * apart), loss[use]
    smooth, last = smoothed(loss, max(3, loss.size // 20))
    return elapsed[last], smooth
