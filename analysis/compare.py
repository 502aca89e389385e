"""Pairs: two sets of runs -> speedup with interval, whether they are like for like, and the list of what differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.judge import Judged
from analysis.logs.run import Run
from analysis.logs.training import STACKS as TRAINING_STACKS
from analysis.stats import Estimate, ratio_of_medians

# What must be equal for two runs to be a pair. Precision is what is compared; the rest of run.json is free to differ.
PAIR_FIELDS: tuple[tuple[str, ...], ...] = (
    ("stack",),
    ("release",),
    ("kind",),
    ("configuration", "kind"),
    ("configuration", "model"),
    ("configuration", "dimensions"),
    ("configuration", "layers"),
    ("configuration", "layout"),
    ("configuration", "steps"),
    ("configuration", "sequence"),
    ("configuration", "micro_batch_size"),
    ("configuration", "warmup"),
    ("configuration", "iterations"),
    ("seed",),
    ("data",),
    ("hardware", "gpu_name"),
    ("hardware", "gpus"),
    ("hardware", "gpu_uuid"),
    ("hardware", "driver"),
    ("hardware", "cuda"),
    ("hardware", "power_limit_w"),
    ("versions",),
    ("environment",),
    ("git",),
    ("session", "id"),
    ("effective_evidence", "attention"),
    ("nemo", "attention_backend"),
    ("maxtext", "backend"),
)


@dataclass(frozen=True)
class Difference:
    """One field in which two sets of runs differ, with the values found on each side."""

    field: str
    base: str
    other: str


@dataclass(frozen=True)
class Comparison:
    """A speedup (base time over other time) and what besides precision differs between the two sides."""

    speedup: Estimate
    differences: tuple[Difference, ...]

    @property
    def like_for_like(self) -> bool:
        """Whether precision is the only difference."""
        return not self.differences


def _values(runs: Sequence[Judged], path: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    for judged in runs:
        value: Any = judged.run.get(*path)
        found.add(repr(sorted(value.items())) if isinstance(value, dict) else repr(value))
    return found


def differences(base: Sequence[Judged], other: Sequence[Judged]) -> tuple[Difference, ...]:
    """Every pair field whose sets of values differ."""
    found = []
    # te_layers interleaves precisions in one process, which is its session; a training run is a process of its own
    apart = all(judged.run.path.parts[-3] in TRAINING_STACKS for judged in (*base, *other))
    for path in PAIR_FIELDS:
        if apart and path == ("session", "id"):
            continue
        left, right = _values(base, path), _values(other, path)
        if left != right:
            found.append(Difference(".".join(path), " | ".join(sorted(left)), " | ".join(sorted(right))))
    return tuple(found)


def paired(base: Sequence[Judged], other: Sequence[Judged]) -> tuple[list[Judged], list[Judged]]:
    """The VALID runs of both sides that ran in the same session and repeat, in the same order."""

    def by_turn(runs: Sequence[Judged]) -> dict[tuple[str, str], Judged]:
        return {(str(j.run.get("session", "id")), str(j.run.get("session", "repeat"))): j for j in runs if j.valid}

    left, right = by_turn(base), by_turn(other)
    turns = sorted(left.keys() & right.keys())
    return [left[turn] for turn in turns], [right[turn] for turn in turns]


def op_times_s(run: Run, wanted: Sequence[str] | None = None) -> list[float]:
    """For each iteration, the sum of its operations' times over all linear layers, seconds; `wanted` None: all."""
    by_step: dict[int, list[float]] = {}
    for op in run.ops:
        if wanted is None or op.op in wanted:
            by_step.setdefault(op.step, []).append(op.time_s)
    return [math.fsum(by_step[step]) for step in sorted(by_step)]


def run_times_s(run: Run) -> list[float]:
    """What a run's speed is compared by, seconds: its timed iterations, or the sums of its bare operations."""
    return run.timed_steps_s or op_times_s(run)


def compare(
    base: Sequence[Judged],
    other: Sequence[Judged],
    base_times_s: Sequence[Sequence[float]],
    other_times_s: Sequence[Sequence[float]],
) -> Comparison:
    """Speedup of `other` over `base` from their times, one series a run, in the runs' order.

    Raises ValueError when a side is empty or holds a run that is not VALID.
    """
    if any(not judged.valid for judged in (*base, *other)):
        raise ValueError("only VALID runs are compared")
    return Comparison(ratio_of_medians(base_times_s, other_times_s), differences(base, other))
