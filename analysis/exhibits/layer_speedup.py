"""FP8 over BF16 for transformer layers at true width on one GPU, beside the published end-to-end speedups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, published_models, table
from analysis.exhibits.measured import cell, differing
from analysis.logs.run import Run
from analysis.published import PublishedRow, read_published
from recipes.catalog import load_models, load_precisions

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
    "n": pl.Int64,
    "repeats": pl.Int64,
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
    evidence = load(raw)
    rows: list[dict[str, Any]] = []
    for model in published_models():
        for precision in PRECISIONS:
            found = cell(evidence, "layers", model, precision, layer_times_s)
            row: dict[str, Any] = {
                "model": model,
                "precision": precision,
                "scope": "layer",
                "label": found.label,
                "hardware": found.hardware,
                "differences": differing(found.comparison),
                "reason": found.reason,
                "source": " ".join(found.runs),
            }
            if found.time:
                row |= {
                    "layer_time_ms": found.time.value * 1000,
                    "layer_time_low_ms": found.time.low * 1000,
                    "layer_time_high_ms": found.time.high * 1000,
                    "n": found.time.n,
                    "repeats": found.time.repeats,
                }
                peaks = [
                    j.run.peak_memory_bytes
                    for j in evidence.select("te_layers", "layers", model, precision)
                    if j.valid and j.run.peak_memory_bytes
                ]
                row["peak_memory_gib"] = max(peaks) / 2**30 if peaks else None
            if found.comparison:
                speedup = found.comparison.speedup
                row |= {"speedup": speedup.value, "speedup_low": speedup.low, "speedup_high": speedup.high}
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
        f"Measured: forward and backward of Transformer Engine layers on one {gpus}, over BF16 of the same session;"
        f" bars are 95 % block-bootstrap intervals, n = {speeds['n'].min()} to {speeds['n'].max()} iterations in"
        f" {speeds['repeats'].min()} interleaved repeats a point. Layers only: no embeddings, head, optimizer or"
        " communication; weights are quantized in every pass. Published: end-to-end training speedups as their sources"
        " print them, on the hardware in the table. The two are not the same quantity: a whole step also holds work"
        " that stays in BF16."
    )


def _chart(frame: pl.DataFrame) -> alt.LayerChart:
    models, precisions = load_models(), load_precisions()
    order = [models[key].name for key in published_models()]
    shown = [key for key in PRECISIONS if key != "bf16"]
    points = frame.filter(pl.col("speedup").is_not_null()).with_columns(
        pl.col("model").replace_strict({k: m.name for k, m in models.items()}).alias("model_name"),
        pl.col("precision").replace_strict({k: p.name for k, p in precisions.items()}).alias("precision_name"),
        (pl.col("label") + ", " + pl.col("scope")).alias("kind"),
    )
    keep = [p for p in shown if p in set(points["precision"])]
    colour = alt.Color(
        "precision_name:N",
        title="Precision",
        scale=alt.Scale(domain=[precisions[p].name for p in keep], range=[PRECISION_COLOURS[p] for p in keep]),
    )
    base = alt.Chart(alt.Data(values=points.to_dicts())).encode(
        x=alt.X("model_name:N", sort=order, title=None, axis=alt.Axis(labelAngle=0)),
        color=colour,
        xOffset=alt.XOffset("precision_name:N"),
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=alt.Y("speedup_low:Q", title=""), y2="speedup_high:Q", color=alt.value("black")
    )
    marks = base.mark_point(filled=True, size=60, opacity=1).encode(
        y=alt.Y("speedup:Q", title="Speedup over BF16", scale=alt.Scale(zero=False, domainMin=1.0)),
        shape=alt.Shape(
            "kind:N",
            title="Label",
            scale=alt.Scale(domain=["measured, layer", "published, end to end"], range=["circle", "diamond"]),
        ),
        tooltip=["model_name:N", "precision_name:N", "kind:N", "hardware:N", "speedup:Q", "source:N"],
    )
    return (marks + bars).properties(width=560, height=300)
