"""Achieved TFLOP/s of one layer's twelve GEMMs by precision: the "up to 2x", with and without quantization cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.compare import op_times_s
from analysis.evidence import load
from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, published_models, sample_sizes, table
from analysis.exhibits.measured import Cell, cells, columns
from analysis.logs.run import Run
from analysis.published import PublishedRow, read_published
from recipes.catalog import load_models, load_precisions
from recipes.catalog.hardware import mfu

PRECISIONS = ("bf16", "fp8_delayed", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
GEMM_OPS = ("fprop", "dgrad", "wgrad")
WITHOUT, WITH = "GEMM only", "with quantization"
SCHEMA: dict[str, type[pl.DataType]] = {
    "model": pl.String,
    "precision": pl.String,
    "part": pl.String,
    "label": pl.String,
    "hardware": pl.String,
    "time_ms": pl.Float64,
    "tflops_per_gpu": pl.Float64,
    "tflops_low": pl.Float64,
    "tflops_high": pl.Float64,
    "share_of_dense_peak": pl.Float64,
    "speedup": pl.Float64,
    "speedup_low": pl.Float64,
    "speedup_high": pl.Float64,
    "n": pl.Int64,
    "repeats": pl.Int64,
    "physical_gpus": pl.Int64,
    "differences": pl.String,
    "reason": pl.String,
    "source": pl.String,
}


def times_of(part: str) -> Callable[[Run], list[float]]:
    """The times of one part: the GEMMs alone, or with the quantization passes."""
    return lambda run: op_times_s(run, GEMM_OPS if part == WITHOUT else None)


def gemm_flops(run: Run) -> int:
    """FLOPs of the twelve GEMMs, once."""
    return sum({(op.gemm, op.op): op.flops for op in run.ops if op.op in GEMM_OPS}.values())


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from raw runs and published rows."""
    evidence = load(raw, "gemms-*")
    rows: list[dict[str, Any]] = []
    for model in published_models():
        for precision in PRECISIONS:
            for part in (WITHOUT, WITH):
                if precision != "bf16" or part == WITHOUT:
                    found = cells(evidence, "gemms", model, precision, times_of(part))
                    rows += [_row(model, precision, part, one) for one in found]
    rows += [_published(row) for row in read_published(published) if _fits(row)]
    frame = table(rows, SCHEMA)
    title = "What FP8 gives a layer's GEMMs, with and without the cost of quantizing"
    return Exhibit("gemm_throughput", title, _caption(frame), frame, _chart(frame))


def _row(model: str, precision: str, part: str, found: Cell) -> dict[str, Any]:
    row = {"model": model, "precision": precision, "part": part, **columns(found)}
    if found.time:
        work = gemm_flops(found.used[0].run) / 1e12
        rate = work / found.time.value
        row |= {
            "time_ms": found.time.value * 1000,
            "tflops_per_gpu": rate,
            "tflops_low": work / found.time.high,
            "tflops_high": work / found.time.low,
            "share_of_dense_peak": mfu(found.hardware, load_precisions()[precision].peak_format, rate),
        }
    return row


def _fits(row: PublishedRow) -> bool:
    """Speedups that Transformer Engine's GEMM profile prints, and the blog's "up to"."""
    profile = row.source_id == "te_gemm_profiling" and row.verbatim == "yes"
    blog = row.source_id == "nv_blog_fp8_nemo" and row.model == "GEMM only"
    return row.claim_kind == "speedup" and row.baseline == "bf16" and (profile or blog)


def _published(row: PublishedRow) -> dict[str, Any]:
    quantized_before = "pre-quanti" in row.notes or row.source_id == "nv_blog_fp8_nemo"
    return {
        "model": row.model,
        "precision": row.precision_key or row.recipe,
        "part": WITHOUT if quantized_before else WITH,
        "label": "published",
        "hardware": row.hardware,
        "speedup": row.value,
        "source": f"{row.id} {row.source_url_or_repo_path}",
    }


def _caption(frame: pl.DataFrame) -> str:
    measured = frame.filter((pl.col("label") == "measured") & pl.col("n").is_not_null())
    if not measured.height:
        return "No valid measured run. Published speedups are in the table."
    gpus = ", ".join(measured["hardware"].unique().sort())
    return (
        f"Measured on {gpus}, one GPU at a time: the twelve GEMMs of one layer (forward, input gradient and weight"
        " gradient of four linear layers) at true width, on random data. With quantization, the passes that turn each"
        " linear layer's input, weight and output gradient into both narrow layouts are added. Each operation is timed"
        f" by itself with device events; bars are 95 % block-bootstrap intervals, {sample_sizes(measured)}. Published"
        " speedups (other GPUs and shapes) are in the table only."
    )


def _chart(frame: pl.DataFrame) -> alt.FacetChart:
    models, precisions = load_models(), load_precisions()
    order = [models[key].name for key in published_models()]
    rows = frame.filter(pl.col("tflops_per_gpu").is_not_null())
    # BF16 has no quantization: its one row stands in both panels
    both = rows.filter(pl.col("precision") == "bf16").with_columns(pl.lit(WITH).alias("part"))
    points = pl.concat([rows, both]).with_columns(
        pl.col("model").replace_strict({k: m.name for k, m in models.items()}).alias("model_name"),
        pl.col("precision").replace_strict({k: p.name for k, p in precisions.items()}).alias("precision_name"),
    )
    keep = [p for p in PRECISIONS if p in set(points["precision"])]
    names = [precisions[p].name for p in keep]
    base = alt.Chart().encode(
        x=alt.X("model_name:N", sort=order, title=None, axis=alt.Axis(labelAngle=-20)),
        xOffset=alt.XOffset("precision_name:N", sort=names),
        color=alt.Color(
            "precision_name:N",
            title="Precision (measured)",
            scale=alt.Scale(domain=names, range=[PRECISION_COLOURS[p] for p in keep]),
        ),
    )
    bars = base.mark_bar().encode(
        y=alt.Y("tflops_per_gpu:Q", title="TFLOP/s"),
        tooltip=["model_name:N", "precision_name:N", "part:N", "tflops_per_gpu:Q", "speedup:Q", "source:N"],
    )
    whiskers = base.mark_rule(color="black").encode(y="tflops_low:Q", y2="tflops_high:Q", color=alt.value("black"))
    return (
        alt.layer(bars, whiskers, data=alt.Data(values=points.to_dicts()))
        .properties(width=340, height=260)
        .facet(column=alt.Column("part:N", title=None, sort=[WITHOUT, WITH]), row=alt.Row("hardware:N", title=None))
    )
