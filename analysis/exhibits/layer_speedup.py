"""FP8 over BF16 for transformer layers at true width on one GPU, beside the published end-to-end speedups."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, published_models, sample_sizes, table
from analysis.exhibits.measured import cells, columns
from analysis.logs.run import Run
from analysis.published import PublishedRow, read_published
from recipes.catalog import load_models, load_precisions

SHAPES = ["circle", "diamond", "square", "triangle-up", "triangle-down", "cross"]
PRECISIONS = ("bf16", "fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
SCHEMA: dict[str, type[pl.DataType]] = {
    "model": pl.String,
    "precision": pl.String,
    "scope": pl.String,
    "label": pl.String,
    "hardware": pl.String,
    "layer_time_ms": pl.Float64,
    "layer_time_low_ms": pl.Float64,
    "layer_time_high_ms": pl.Float64,
    "speedup": pl.Float64,
    "speedup_low": pl.Float64,
    "speedup_high": pl.Float64,
    "peak_memory_gib": pl.Float64,
    "power_w": pl.Float64,
    "sm_clock_mhz": pl.Float64,
    "power_capped_share": pl.Float64,
    "n": pl.Int64,
    "repeats": pl.Int64,
    "physical_gpus": pl.Int64,
    "differences": pl.String,
    "reason": pl.String,
    "source": pl.String,
}


def layer_times_s(run: Run) -> list[float]:
    """Times of one layer: each timed iteration over the number of layers, seconds."""
    layers = run.get("configuration", "layers")
    return [time / layers for time in run.timed_steps_s]


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from raw runs and published rows."""
    evidence = load(raw, "layers-*")
    rows: list[dict[str, Any]] = []
    for model in published_models():
        for precision in PRECISIONS:
            for found in cells(evidence, "layers", model, precision, layer_times_s):
                row = {"model": model, "precision": precision, "scope": "layer", **columns(found)}
                if found.time:
                    row |= {
                        "layer_time_ms": found.time.value * 1000,
                        "layer_time_low_ms": found.time.low * 1000,
                        "layer_time_high_ms": found.time.high * 1000,
                    }
                    row |= _conditions([j.run for j in found.used])
                rows.append(row)
    rows += [_published(row) for row in read_published(published) if _fits(row)]
    frame = table(rows, SCHEMA)
    return Exhibit(
        "layer_speedup",
        "FP8 speedup of transformer layers grows with model size",
        _caption(frame),
        frame,
        _chart(frame),
    )


def _conditions(runs: list[Run]) -> dict[str, float | None]:
    """Peak memory, and the means over all samples of power, SM clock and whether the power limit held the clocks."""
    samples = [sample for run in runs for sample in run.timed_power]

    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    peaks = [run.peak_memory_bytes for run in runs if run.peak_memory_bytes]
    return {
        "peak_memory_gib": max(peaks) / 2**30 if peaks else None,
        "power_w": mean([sample.power_w for sample in samples]),
        "sm_clock_mhz": mean([sample.sm_clock_mhz for sample in samples]),
        "power_capped_share": mean([None if s.power_capped is None else float(s.power_capped) for s in samples]),
    }


def _fits(row: PublishedRow) -> bool:
    """The blog's speedups on Hopper, the architecture that was measured; other GPUs belong to other exhibits."""
    known = row.model_key in published_models() and row.precision_key in PRECISIONS and row.baseline == "bf16"
    return row.claim_kind == "speedup" and row.source_id == "nv_blog_fp8_nemo" and row.hardware == "H100" and known


def _published(row: PublishedRow) -> dict[str, Any]:
    return {
        "model": row.model_key,
        "precision": row.precision_key,
        "scope": "end to end",
        "label": "published",
        "hardware": row.hardware,
        "speedup": row.value,
        "source": f"{row.id} {row.source_url_or_repo_path}",
    }


def _caption(frame: pl.DataFrame) -> str:
    measured = frame.filter(pl.col("label") == "measured")
    speeds = measured.filter(pl.col("speedup").is_not_null())
    if not speeds.height:
        return "No valid measured run. Published: end-to-end training speedups as their sources print them."
    gpus = ", ".join(measured["hardware"].unique().sort())
    return (
        f"Measured: forward and backward of Transformer Engine layers on {gpus}, one GPU at a time, over BF16 of the"
        f" same session; bars are 95 % block-bootstrap intervals, {sample_sizes(speeds)}. Layers only: no embeddings,"
        f" head, optimizer or communication; weights are quantized in every pass. {_clocks(measured)} Published:"
        " end-to-end training speedups as their sources print them, on the hardware in the table. The two are not the"
        " same quantity: a whole step also holds work that stays in BF16."
    )


def _clocks(measured: pl.DataFrame) -> str:
    """A sentence on what held the clocks, since a power limit slows precisions unequally."""
    capped, clock = measured["power_capped_share"].drop_nulls(), measured["sm_clock_mhz"].drop_nulls()
    if not len(capped) or not len(clock):
        return "Clocks are unknown."
    least, low, high = (float(str(value)) for value in (capped.min(), clock.min(), clock.max()))
    share = "all" if least == 1 else f"at least {least:.0%} of each cell's"
    return f"The power limit held the clocks in {share} samples (mean SM clock {low:.0f} to {high:.0f} MHz)."


def _chart(frame: pl.DataFrame) -> alt.LayerChart:
    models, precisions = load_models(), load_precisions()
    order = [models[key].name for key in published_models()]
    shown = [key for key in PRECISIONS if key != "bf16"]
    points = frame.filter(pl.col("speedup").is_not_null()).with_columns(
        pl.col("model").replace_strict({k: m.name for k, m in models.items()}).alias("model_name"),
        pl.col("precision").replace_strict({k: p.name for k, p in precisions.items()}).alias("precision_name"),
        (pl.col("label") + ", " + pl.col("scope") + ", " + pl.col("hardware")).alias("kind"),
    )
    keep = [p for p in shown if p in set(points["precision"])]
    kinds = points["kind"].unique(maintain_order=True).to_list()
    colour = alt.Color(
        "precision_name:N",
        title="Precision",
        scale=alt.Scale(domain=[precisions[p].name for p in keep], range=[PRECISION_COLOURS[p] for p in keep]),
    )
    base = alt.Chart(alt.Data(values=points.to_dicts())).encode(
        x=alt.X("model_name:N", sort=order, title=None, axis=alt.Axis(labelAngle=0)),
        color=colour,
        xOffset=alt.XOffset("precision_name:N", sort=[precisions[p].name for p in keep]),
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=alt.Y("speedup_low:Q", title=""), y2="speedup_high:Q", color=alt.value("black")
    )
    marks = base.mark_point(filled=True, size=60, opacity=1).encode(
        y=alt.Y("speedup:Q", title="Speedup over BF16", scale=alt.Scale(zero=False, domainMin=1.0)),
        shape=alt.Shape("kind:N", title="Label", scale=alt.Scale(domain=kinds, range=SHAPES[: len(kinds)])),
        tooltip=["model_name:N", "precision_name:N", "kind:N", "hardware:N", "speedup:Q", "source:N"],
    )
    return (marks + bars).properties(width=560, height=300)
