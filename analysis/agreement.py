"""Rerun agreement: what this machine has just run, against the published reference result of the same experiment.

    python -m analysis.agreement --runs runs --out build/rerun_agreement.csv

Losses are compared step by step, bit for bit and within a tolerance; step times only on the same kind of GPU, beside
the spread from repeat to repeat of the reference. Exit codes: 0 every run agrees (or nothing to compare), 1 one does
not.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from analysis.compare import run_times_s
from analysis.evidence import load
from analysis.judge import Judged
from analysis.rounding import rounded
from recipes.runs import write_atomically

# BF16 keeps eight bits, and another CPU adds in another order: a loss may differ in its fourth digit. Over many steps
# runs drift apart, emulated narrow formats sooner, where such a digit turns into another code: with another instruction
# set, NVFP4 was up to 2.5 % away step by step, means of ten steps 0.24 %; BF16 0.06 % and 0.014 % (docs/log.md). So
# longer runs are compared by such means, and by the first step, whose weights are the same.
LOSS_TOLERANCE, EMULATED_TOLERANCE = 1e-3, 1e-2
WINDOW = 10
COLUMNS = (
    "stack",
    "experiment",
    "verdict",
    "agreement",
    "steps",
    "largest_relative_loss_difference",
    "time_over_reference",
    "reference_spread",
    "versions_that_differ",
    "run",
    "reference",
)


def relative_loss_difference(run: Judged, reference: Judged, window: int = 1) -> float | None:
    """Largest |a - b| / |b| over the steps, or over means of `window` steps; None where steps differ or are none."""
    left, right = run.run.trained, reference.run.trained
    if not left or [row.step for row in left] != [row.step for row in right]:
        return None
    starts = range(0, len(left), window)
    mine, other = ([fmean(row.loss for row in rows[at : at + window]) for at in starts] for rows in (left, right))
    return max(abs(a - b) / abs(b) for a, b in zip(mine, other, strict=True))


def within_tolerance(run: Judged, reference: Judged) -> bool:
    """Whether losses that are not identical still agree, by the tolerance of what ran."""
    rows = run.run.trained
    away = relative_loss_difference(run, reference, WINDOW if len(rows) > WINDOW else 1) or 0.0
    first, other = rows[0].loss, reference.run.trained[0].loss
    tolerance = EMULATED_TOLERANCE if run.run.get("kind") == "emulated" else LOSS_TOLERANCE
    return away <= tolerance and abs(first - other) <= LOSS_TOLERANCE * abs(other)


# says where a configuration's numbers come from, and decides nothing
_WORDS = {"source", "aliases", "nominal_parameters"}


def configured_alike(one: Any, other: Any) -> bool:
    """Whether two configurations are the same. What one of them does not know yet must be off in the other.

    A setting that was added after a reference was published (false, none or empty by default) makes it no other run.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        keys = (one.keys() | other.keys()) - _WORDS
        both = {key for key in keys if key in one and key in other}
        added = keys - both
        return all(configured_alike(one[key], other[key]) for key in both) and not any(
            one.get(key) or other.get(key) for key in added
        )
    return bool(one == other)


def versions_that_differ(run: Judged, reference: Judged) -> str:
    """Libraries whose versions differ, `name here/reference`."""
    here, there = run.run.get("versions") or {}, reference.run.get("versions") or {}
    names = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    return "; ".join(f"{name} {here.get(name)}/{there.get(name)}" for name in names)


def _times(judged: Judged) -> float | None:
    times = run_times_s(judged.run)
    return median(times) if times and judged.run.get("hardware", "gpus") else None


def row(run: Judged, references: Sequence[Judged]) -> dict[str, Any]:
    """One line: a run against the newest valid reference of its experiment that was configured alike."""
    said: dict[str, Any] = {
        "stack": run.run.path.parts[-3],
        "experiment": run.run.path.parts[-2],
        "verdict": run.verdict,
        "steps": len(run.run.steps) or None,
        "run": run.run.name,
    }
    if not run.valid:
        return {**said, "agreement": f"not compared: {run.verdict}: {run.reasons[0].message}"}
    # a run that has been published itself would agree with itself
    references = [j for j in references if j.run.path.name != run.run.path.name]
    mine_is = run.run.get("configuration")
    alike = [j for j in references if j.valid and configured_alike(j.run.get("configuration"), mine_is)]
    if not alike:
        return {**said, "agreement": "not compared: no other published run of this experiment and configuration"}
    reference = alike[-1]
    away = relative_loss_difference(run, reference)
    same_gpu = [j for j in alike if j.run.get("hardware", "gpu_name") == run.run.get("hardware", "gpu_name")]
    times = [time for j in same_gpu if (time := _times(j))]
    mine = _times(run)
    agreement = "no losses to compare"
    if away is not None:
        agreement = "within tolerance" if within_tolerance(run, reference) else "differs"
        agreement = "identical" if away == 0 else agreement
    return {
        **said,
        "agreement": agreement,
        "largest_relative_loss_difference": None if away is None else rounded(away),
        "time_over_reference": rounded(mine / median(times)) if mine and times else None,
        "reference_spread": rounded(max(times) / min(times) - 1) if len(times) > 1 else None,
        "versions_that_differ": versions_that_differ(run, reference),
        "reference": reference.run.name,
    }


def agreement(runs: Path, raw: Path) -> list[dict[str, Any]]:
    """The newest run of every experiment under `runs` against the references under `raw`."""
    published = load(raw).judged
    newest: dict[tuple[str, ...], Judged] = {}
    for judged in load(runs).judged:
        newest[judged.run.path.parts[-3:-1]] = judged
    return [
        row(judged, [j for j in published if j.run.path.parts[-3:-1] == key]) for key, judged in sorted(newest.items())
    ]


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.agreement", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--raw", type=Path, default=Path("results/raw"))
    parser.add_argument("--out", type=Path, default=Path("build/rerun_agreement.csv"))
    args = parser.parse_args()
    rows = agreement(args.runs, args.raw)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(args.out, text.getvalue())
    for one in rows:
        print(f"{one['stack']} {one['experiment']}: {one['agreement']}", file=sys.stderr)
    return 1 if any(one["agreement"] == "differs" for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
