"""Peak device memory of training steps by precision: what FP8 saves, and what it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, table
from analysis.exhibits.trained import TrainedCell, bar_name, trained_cells
from analysis.judge import Judged
from recipes.catalog import Model, load_models, load_precisions, parameters

SCHEMA: dict[str, type[pl.DataType]] = {
    "experiment": pl.String,
    "model": pl.String,
    "precision": pl.String,
    "cut": pl.String,
    "label": pl.String,
    "peak_memory_gib": pl.Float64,
    "reserved_memory_gib": pl.Float64,
    "base_peak_memory_gib": pl.Float64,
    "over_base_gib": pl.Float64,
    "bytes_per_parameter": pl.Float64,
    "parameters": pl.Int64,
    "repeats": pl.Int64,
    "reason": pl.String,
    "source": pl.String,
}


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from the peaks that PyTorch's allocator recorded in valid runs on one GPU."""
    del published
    places = list(load_models())
    cells = trained_cells(load(raw), "nemo", "one_gpu")
    cells.sort(key=lambda cell: places.index(cell.first.run.get("configuration", "model")))
    frame = table([_row(cell) for cell in cells], SCHEMA)
    return Exhibit("memory", "Peak device memory by precision", _caption(frame), frame, _chart(frame))


def _peak_gib(runs: tuple[Judged, ...]) -> float | None:
    peaks = [j.run.peak_memory_bytes for j in runs if j.valid and j.run.peak_memory_bytes]
    return max(peaks) / 2**30 if peaks else None


def _row(cell: TrainedCell) -> dict[str, Any]:
    run = cell.first.run
    row = {
        "experiment": cell.experiment,
        "model": run.get("configuration", "model"),
        "precision": run.get("configuration", "precision"),
        "cut": ", ".join(run.get("configuration", "cut") or []),
        "source": " ".join(j.run.name for j in cell.runs),
    }
    peak, before = _peak_gib(cell.runs), _peak_gib(cell.base)
    if peak is None:
        return row | {"reason": cell.reason or "no peak was recorded"}
    count = parameters(Model.model_validate(run.get("configuration", "dimensions")))
    reserved = [value for j in cell.runs if (value := j.run.get("nemo", "memory_reserved_peak_bytes"))]
    return row | {
        "label": run.get("kind"),
        "peak_memory_gib": peak,
        "reserved_memory_gib": max(reserved) / 2**30 if reserved else None,
        "base_peak_memory_gib": before,
        "over_base_gib": None if before is None else peak - before,
        "parameters": count,
        "bytes_per_parameter": peak * 2**30 / count,
        "repeats": len(cell.runs),
        "reason": cell.reason,
    }


def _caption(frame: pl.DataFrame) -> str:
    narrow = frame.filter(pl.col("over_base_gib").is_not_null())
    if not narrow.height:
        return "No valid measured pair."
    low, high = (float(str(value)) for value in (narrow["over_base_gib"].min(), narrow["over_base_gib"].max()))
    whole = frame.filter(pl.col("peak_memory_gib").is_not_null())
    least, most = (
        float(str(value)) for value in (whole["bytes_per_parameter"].min(), whole["bytes_per_parameter"].max())
    )
    return (
        "Measured: the peak that PyTorch's allocator recorded over a run, on one GPU that holds weights, gradients and"
        f" the whole optimizer state ({least:.1f} to {most:.1f} bytes a parameter, activations included). FP8 needs"
        f" {low:+.1f} to {high:+.1f} GiB over BF16: that fits a peak in the optimizer step, where FP32 state and"
        " gradients weigh alike in both, so that what FP8 keeps smaller (weights, saved activations) does not show."
        " Over many GPUs the optimizer state is shared out, and activations weigh more: these peaks do not carry over."
    )


def _chart(frame: pl.DataFrame) -> alt.Chart:
    precisions = load_precisions()
    shown = frame.filter(pl.col("peak_memory_gib").is_not_null())
    values = [
        {
            **row,
            "name": bar_name(row["experiment"], row["model"], row["precision"]),
            "precision_name": precisions[row["precision"]].name,
        }
        for row in shown.iter_rows(named=True)
    ]
    keep = [key for key in precisions if key in set(shown["precision"])]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", sort=[value["name"] for value in values], title=None, axis=alt.Axis(labelLimit=420)),
            x=alt.X("peak_memory_gib:Q", title="Peak device memory, GiB"),
            color=alt.Color(
                "precision_name:N",
                title="Precision",
                scale=alt.Scale(
                    domain=[precisions[key].name for key in keep], range=[PRECISION_COLOURS[key] for key in keep]
                ),
            ),
            tooltip=["name:N", "peak_memory_gib:Q", "over_base_gib:Q", "bytes_per_parameter:Q", "source:N"],
        )
        .properties(width=420, height=alt.Step(20))
    )
