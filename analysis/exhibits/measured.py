"""What te_layers' exhibits share: from judged runs of one model and precision to a row with a number or a reason."""

from __future__ import annotations

from collections.abc import Callable
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
    used: tuple[Judged, ...]
    base: tuple[Judged, ...]
    reason: str


def cells(evidence: Evidence, kind: str, model: str, precision: str, times: Times) -> list[Cell]:
    """The cells of one model and precision: one for each GPU, release and kind (measured, emulated) that ran it.

    Only VALID runs count; baseline and run are paired by session and repeat. Where there are none, one cell says why.
    """
    runs = evidence.select(STACK, kind, model, precision)
    groups: dict[tuple[str, str, str], list[Judged]] = {}
    for judged in valid(runs):
        groups.setdefault(_setting(judged), []).append(judged)
    if not groups:
        return [Cell("", "", None, None, (), (), why_not(runs, precision))]
    base = evidence.select(STACK, kind, model, "bf16")
    return [_cell(good, base, precision, times) for _, good in sorted(groups.items())]


def _setting(judged: Judged) -> tuple[str, str, str]:
    run = judged.run
    return str(run.get("hardware", "gpu_name")), str(run.get("release")), str(run.get("kind"))


def _cell(good: list[Judged], base: list[Judged], precision: str, times: Times) -> Cell:
    hardware, _, label = _setting(good[0])
    left, right = paired(base, good)
    comparison, reason = None, ""
    if precision == "bf16":
        left = []
    elif left:
        comparison = compare(left, right, [times(j.run) for j in left], [times(j.run) for j in right])
        good = right
    else:
        reason = "no VALID BF16 run of the same session: " + (why_not(base, "bf16") or "sessions differ")
    time = median([times(j.run) for j in good])
    return Cell(hardware, label, time, comparison, tuple(good), tuple(left), reason)


def columns(found: Cell) -> dict[str, Any]:
    """The columns that every measured row has: label, hardware, speedup with interval, sizes, reason, runs."""
    row: dict[str, Any] = {
        "label": found.label,
        "hardware": found.hardware,
        "physical_gpus": len({str(j.run.get("hardware", "gpu_uuid")) for j in found.used}) or None,
        "differences": differing(found.comparison),
        "reason": found.reason,
        "source": " ".join(j.run.name for j in (*found.used, *found.base)),
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
