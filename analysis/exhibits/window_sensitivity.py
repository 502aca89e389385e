"""What each tool's averaging window would have reported for one and the same pair of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import Exhibit, table
from analysis.exhibits.trained import TrainedCell, trained_cells
from analysis.judge import Judged
from analysis.windows import WINDOWS, Floats, by_window
from recipes.catalog import load_models, load_precisions

# How long a log each tool would have been given: a short trial, the published runs' length (50), and a longer run.
LENGTHS = (20, 50, 100)
SCHEMA: dict[str, type[pl.DataType]] = {
    "experiment": pl.String,
    "model": pl.String,
    "precision": pl.String,
    "label": pl.String,
    "log_steps": pl.Int64,
    "window": pl.String,
    "used_by": pl.String,
    "steps_averaged": pl.Int64,
    "base_step_time_s": pl.Float64,
    "step_time_s": pl.Float64,
    "speedup": pl.Float64,
    "off_default_percent": pl.Float64,
    "reason": pl.String,
    "source": pl.String,
}


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from the longest pair of runs on one GPU, its first 20, 50 and 100 steps taken for a log each."""
    del published
    cells = [cell for cell in trained_cells(load(raw), "nemo", "one_gpu") if cell.comparison]
    rows = [
        row
        for cell in cells
        for length in LENGTHS
        if max(LENGTHS[1], length) <= min(_steps(cell.runs[-1]), _steps(cell.base[-1]))
        for row in _rows(cell, length)
    ]
    frame = table(rows, SCHEMA)
    title = "What each averaging window reports for the same runs"
    return Exhibit("window_sensitivity", title, _caption(frame), frame, _chart(frame))


def _steps(judged: Judged) -> int:
    return len(judged.run.trained)


def _series(judged: Judged, length: int) -> tuple[Floats, Floats]:
    """Step numbers and times (s) of a run's first `length` steps; the profiled one is no step that a tool would see."""
    pairs = zip(judged.run.trained[:length], judged.run.steps[:length], strict=True)
    kept = [(trained.step, step.step_time_s) for trained, step in pairs if not trained.profiled]
    return np.array([step for step, _ in kept], float), np.array([time_s for _, time_s in kept], float)


def _rows(cell: TrainedCell, length: int) -> list[dict[str, Any]]:
    run, base = cell.runs[-1], cell.base[-1]
    common = {
        "experiment": cell.experiment,
        "model": run.run.get("configuration", "model"),
        "precision": run.run.get("configuration", "precision"),
        "log_steps": length,
        "source": f"{run.run.name} {base.run.name}",
    }
    before, after = by_window(*_series(base, length)), by_window(*_series(run, length))
    default = None
    rows = []
    for (window, base_s, _), (_, time_s, count) in zip(before, after, strict=True):
        row = {**common, "window": window.name, "used_by": window.used_by, "steps_averaged": count}
        if base_s is None or time_s is None:
            rows.append(row | {"reason": f"the log has no such step: it ends at step {length - 1}"})
            continue
        speedup = base_s / time_s
        default = speedup if window is WINDOWS[0] else default
        off = None if default is None else 100 * (speedup / default - 1)
        label = run.run.get("kind")
        rows.append(
            row
            | {"label": label, "base_step_time_s": base_s, "step_time_s": time_s, "speedup": speedup}
            | {"off_default_percent": off}
        )
    return rows


def _caption(frame: pl.DataFrame) -> str:
    if not frame.height:
        return f"No valid pair of {LENGTHS[1]} steps."
    parts = []
    for length in LENGTHS:
        own = frame.filter(pl.col("log_steps") == length)
        shown = own.filter(pl.col("speedup").is_not_null())
        if shown.height:
            least, most = (shown.sort("speedup", descending=down).row(0, named=True) for down in (False, True))
            parts.append(
                f"{length} steps: {least['speedup']:.3f}x ({least['window']}) to {most['speedup']:.3f}x"
                f" ({most['window']}), {own.height - shown.height} of {own.height} windows are empty"
            )
    return (
        "Measured: one pair of runs, and the speedup that each tool's own window would give for its first steps. "
        + "; ".join(parts)
        + ". Windows that hold the first step count what compiles and fills caches, which is not the same time in both"
        " precisions. The step that was profiled is left out."
    )


def _chart(frame: pl.DataFrame) -> alt.FacetChart:
    names = {
        row["experiment"]: f"{load_models()[row['model']].name}, {load_precisions()[row['precision']].name} over BF16"
        for row in frame.iter_rows(named=True)
    }
    values = [
        {**row, "title": f"{names[row['experiment']]}, log of {row['log_steps']} steps"}
        for row in frame.filter(pl.col("speedup").is_not_null()).iter_rows(named=True)
    ]
    points = (
        alt.Chart()
        .mark_point(filled=True, size=60, opacity=1, color="#0072B2")
        .encode(
            y=alt.Y("window:N", sort=[window.name for window in WINDOWS], title=None, axis=alt.Axis(labelLimit=300)),
            x=alt.X("speedup:Q", title="Speedup reported", scale=alt.Scale(zero=False)),
            tooltip=["window:N", "used_by:N", "steps_averaged:Q", "speedup:Q", "off_default_percent:Q"],
        )
    )
    titles = list(dict.fromkeys(value["title"] for value in values))
    return (
        alt.layer(points, data=alt.Data(values=values))
        .properties(width=250, height=alt.Step(20))
        .facet(facet=alt.Facet("title:N", sort=titles, title=None), columns=3)
    )
