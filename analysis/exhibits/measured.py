"""What te_layers' exhibits share: from judged runs of one model and precision to a row with a number or a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare import Comparison, compare, paired
from analysis.evidence import Evidence, valid, why_not
from analysis.judge import Judged
from analysis.logs.run import Run
from analysis.stats import Estimate, median

STACK = "te_layers"
# Times of one run as a series, seconds; an empty series means that the run holds none of them.
Times = Callable[[Run], list[float]]


@dataclass(frozen=True)
class Cell:
    """A measured cell: time and speedup over BF16 with their runs, or the reason why there is none."""

    hardware: str
    label: str
    time: Estimate | None
    comparison: Comparison | None
    runs: tuple[str, ...]
    physical_gpus: int | None
    reason: str


def _one(values: set[str]) -> str:
    return " | ".join(sorted(values))


def cell(evidence: Evidence, kind: str, model: str, precision: str, times: Times) -> Cell:
    """The cell of one model and precision. Baseline and run are paired by session and repeat; only VALID runs count."""
    runs = evidence.select(STACK, kind, model, precision)
    good = valid(runs)
    if not good:
        return Cell("", "", None, None, (), None, why_not(runs, precision))
    base = evidence.select(STACK, kind, model, "bf16")
    left, right = paired(base, good)
    comparison, reason = None, ""
    if precision != "bf16" and left:
        comparison = compare(left, right, [times(j.run) for j in left], [times(j.run) for j in right])
        good = right
    elif precision != "bf16":
        reason = "no VALID BF16 run of the same session: " + (why_not(base, "bf16") or "sessions differ")
    return Cell(
        hardware=_one({str(j.run.get("hardware", "gpu_name")) for j in good}),
        label=_one({str(j.run.get("kind")) for j in good}),
        time=median([times(j.run) for j in good]),
        comparison=comparison,
        runs=_run_ids(good, left if comparison else []),
        physical_gpus=len({str(j.run.get("hardware", "gpu_uuid")) for j in good}),
        reason=reason,
    )


def _run_ids(runs: Sequence[Judged], base: Sequence[Judged]) -> tuple[str, ...]:
    return tuple(j.run.name for j in (*runs, *base))


def columns(found: Cell) -> dict[str, Any]:
    """The columns that every measured row has: label, hardware, speedup with interval, sizes, reason, runs."""
    row: dict[str, Any] = {
        "label": found.label,
        "hardware": found.hardware,
        "physical_gpus": found.physical_gpus,
        "differences": differing(found.comparison),
        "reason": found.reason,
        "source": " ".join(found.runs),
    }
    if found.time:
        row |= {"n": found.time.n, "repeats": found.time.repeats}
    if found.comparison:
        speedup = found.comparison.speedup
        row |= {"speedup": speedup.value, "speedup_low": speedup.low, "speedup_high": speedup.high}
    return row


def differing(comparison: Comparison | None) -> str:
    """What besides precision differs between the two sides of a pair, for a table."""
    return "; ".join(f"{d.field}: {d.base} vs {d.other}" for d in comparison.differences) if comparison else ""
