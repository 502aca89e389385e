"""Where a training step's time goes on one GPU, in BF16 and FP8: which part gets faster, which stays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import Exhibit, table
from analysis.exhibits.trained import TrainedCell, bar_name, trained_cells
from analysis.logs.kernels import Kernel, read_kernels
from analysis.stats import median
from recipes.catalog import load_models

HEAD, LAYERS, IDLE = "GEMM of the head (BF16)", "GEMM of the layers", "no kernel runs"
PARTS = (
    LAYERS,
    "quantization",
    "attention",
    "norm, activation, rope, copies",
    HEAD,
    "loss",
    "optimizer",
    IDLE,
)
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#999999", "#56B4E9", "#E69F00", "#CC79A7", "#DDDDDD"]
SCHEMA: dict[str, type[pl.DataType]] = {
    "experiment": pl.String,
    "model": pl.String,
    "precision": pl.String,
    "variant": pl.String,
    "part": pl.String,
    "label": pl.String,
    "time_s": pl.Float64,
    "share": pl.Float64,
    "baseline_time_s": pl.Float64,
    "saved_s": pl.Float64,
    "reason": pl.String,
    "source": pl.String,
}


def parts_of(kernels: Iterable[Kernel], all_narrow: bool) -> dict[str, float]:
    """Device time by part, seconds. Where all layers run in FP8 (`all_narrow`), a BF16 GEMM is the head's.

    Otherwise kernels of head and layers share names: everything is put under the layers, to be parted later.
    """
    found = dict.fromkeys(PARTS[:-1], 0.0)
    for kernel in kernels:
        part = kernel.purpose
        if part == "GEMM in BF16":
            part = HEAD if all_narrow else LAYERS
        elif part == "GEMM in FP8":
            part = LAYERS
        found[part] += kernel.time_s
    return found


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from the profiled step of every valid one-GPU run of NeMo."""
    del published
    cells = [cell for cell in trained_cells(load(raw), "nemo", "one_gpu") if cell.time]
    profiled = {cell.experiment: found for cell in cells if (found := _profile(cell))}
    rows: list[dict[str, Any]] = []
    places = list(load_models())
    for cell in sorted(cells, key=lambda cell: places.index(cell.first.run.get("configuration", "model"))):
        if cell.experiment in profiled:
            rows += _rows(cell, profiled, cells)
    frame = table(rows, SCHEMA)
    return Exhibit("step_breakdown", "Where a step's time goes on one GPU", _caption(frame), frame, _chart(frame))


def _profile(cell: TrainedCell) -> dict[str, float] | None:
    """Parts of a cell's profiled steps (the mean where several runs were profiled), or None.

    What is left of those runs' other steps is the time in which no kernel ran.
    """
    runs = [(j, kernels) for j in cell.runs if (kernels := read_kernels(j.run.path))]
    if not runs:
        return None
    found = [parts_of(kernels, _all_narrow(cell)) for _, kernels in runs]
    parts = {part: fmean(one[part] for one in found) for part in PARTS[:-1]}
    step_s = median([j.run.timed_steps_s for j, _ in runs]).value
    return parts | {IDLE: max(0.0, step_s - sum(parts.values()))}


def _all_narrow(cell: TrainedCell) -> bool:
    configured = cell.first.run.record["configuration"]
    return configured["precision"] != "bf16" and not configured.get("first_last_layers_bf16")


def _rows(cell: TrainedCell, profiled: dict[str, dict[str, float]], cells: list[TrainedCell]) -> list[dict[str, Any]]:
    run = cell.first.run
    parts = _parted(cell, profiled, cells)
    base = next((c for c in cells if c.experiment == run.get("configuration", "baseline")), None)
    before = _parted(base, profiled, cells) if base and base.experiment in profiled else {}
    variant = "first and last layer in BF16" if run.get("configuration", "first_last_layers_bf16") else ""
    common = {
        "experiment": cell.experiment,
        "model": run.get("configuration", "model"),
        "precision": run.get("configuration", "precision"),
        "variant": ", ".join(filter(None, [*(run.get("configuration", "cut") or []), variant])),
        "label": run.get("kind"),
        "source": " ".join(j.run.name for j in cell.runs),
    }
    return [
        {
            **common,
            "part": part,
            "time_s": parts[part],
            "share": parts[part] / sum(parts.values()),
            "baseline_time_s": before.get(part),
            "saved_s": before[part] - parts[part] if before else None,
        }
        for part in PARTS
    ]


def _parted(cell: TrainedCell, profiled: dict[str, dict[str, float]], cells: list[TrainedCell]) -> dict[str, float]:
    """A cell's parts; the head of a run with BF16 layers is taken from the FP8 runs of the same baseline."""
    parts = dict(profiled[cell.experiment])
    if not _all_narrow(cell):
        configured = cell.first.run.record["configuration"]
        base = configured["baseline"] or cell.experiment
        heads = [
            profiled[other.experiment][HEAD]
            for other in cells
            if other.experiment in profiled
            and _all_narrow(other)
            and other.first.run.get("configuration", "baseline") == base
        ]
        if heads:
            parts[HEAD] = fmean(heads)
            parts[LAYERS] -= parts[HEAD]
    return parts


def _caption(frame: pl.DataFrame) -> str:
    if not frame.height:
        return "No valid profiled run."
    narrow = frame.filter(pl.col("saved_s").is_not_null(), ~pl.col("variant").str.contains("first and last"))
    saved = narrow.group_by("experiment").agg(
        pl.col("saved_s").filter(pl.col("part") == LAYERS).sum().alias("gemm"),
        pl.col("time_s").filter(pl.col("part") == "quantization").sum().alias("cast"),
    )
    share = float((saved["cast"] / saved["gemm"]).mean())  # type: ignore[arg-type]
    return (
        "Measured: device time of every kernel in one profiled step (the last), by what its name says it is for;"
        " `no kernel runs` is the median of that run's other steps less all kernels. Where layers run in BF16,"
        " their kernels and the head's share names: the head's time is then that of the FP8 runs of the same baseline."
        f" Quantization takes back {share:.0%} of what FP8 saves in the layers' GEMMs, on average."
    )


def _chart(frame: pl.DataFrame) -> alt.Chart:
    """Bars as parts of the BF16 step of the same setting, so that models and batches of unequal size can be seen."""
    whole = {
        name: float(rows["time_s"].sum())
        for (name,), rows in frame.group_by("experiment")
        if rows["baseline_time_s"].is_null().all()
    }
    of = {
        row["experiment"]: float(rows["baseline_time_s"].sum())
        for rows in frame.filter(pl.col("baseline_time_s").is_not_null()).partition_by("experiment")
        for row in rows.head(1).to_dicts()
    }
    values = [
        {
            **row,
            "name": bar_name(row["experiment"], row["model"], row["precision"]),
            "of_baseline": row["time_s"] / (of | whole)[row["experiment"]],
            "order": PARTS.index(row["part"]),
        }
        for row in frame.to_dicts()
    ]
    order = list(dict.fromkeys(value["name"] for value in values))
    return (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", title=None, axis=alt.Axis(labelLimit=420), sort=order),
            x=alt.X("of_baseline:Q", title="Step time, BF16 of the same setting = 1"),
            color=alt.Color("part:N", title="Part", scale=alt.Scale(domain=list(PARTS), range=COLOURS)),
            order=alt.Order("order:Q"),
            tooltip=["name:N", "part:N", "time_s:Q", "share:Q", "saved_s:Q"],
        )
        .properties(width=520, height=alt.Step(24))
    )
