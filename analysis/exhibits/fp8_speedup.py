"""FP8 over BF16, whole training steps: what is published, and what real NeMo and MaxText do on one GPU here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, published_models, table
from analysis.exhibits.measured import differing
from analysis.exhibits.trained import TrainedCell, trained_cells
from analysis.logs.run import Run
from analysis.published import PublishedRow, read_published
from recipes.catalog import find_gpu, load_models, load_precisions

PRECISIONS = ("fp8_delayed", "fp8_current", "fp8_block", "mxfp8")
HARDWARE = ("H100", "H200", "B200", "GB200")
STACKS = ("nemo", "maxtext")
LABELS = ("published", "measured", "emulated", "projected")
SHAPES = ["circle", "square", "diamond", "triangle-up"]
SCHEMA: dict[str, type[pl.DataType]] = {
    "model": pl.String,
    "hardware": pl.String,
    "precision": pl.String,
    "variant": pl.String,
    "experiment": pl.String,
    "label": pl.String,
    "gpus": pl.String,
    "speedup": pl.Float64,
    "speedup_low": pl.Float64,
    "speedup_high": pl.Float64,
    "base_step_time_s": pl.Float64,
    "step_time_s": pl.Float64,
    "tokens_per_s_per_gpu": pl.Float64,
    "peak_memory_gib": pl.Float64,
    "n": pl.Int64,
    "repeats": pl.Int64,
    "like_for_like": pl.Boolean,
    "differences": pl.String,
    "reason": pl.String,
    "source": pl.String,
}


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from raw runs and published rows."""
    evidence = load(raw)
    cells = [cell for stack in STACKS for cell in trained_cells(evidence, stack, "one_gpu")]
    rows = [_measured(cell) for cell in cells if _is_timed(cell)]
    stated = read_published(published)
    rows += [row for row in map(_stated, stated) if row]
    present = {(row["model"], row["hardware"], row["precision"]) for row in rows if row.get("speedup")}
    rows += [
        {"model": m, "hardware": h, "precision": p, "reason": _missing(h, p)}
        for m in published_models()
        for h in HARDWARE
        for p in PRECISIONS
        if (m, h, p) not in present
    ]
    order = {name: at for at, name in enumerate(published_models())}
    places = {name: at for at, name in enumerate(HARDWARE)}
    rows.sort(
        key=lambda row: (
            order[row["model"]],
            places.get(row["hardware"], len(places)),
            row["precision"],
            row.get("variant") or "",
        )
    )
    frame = table(rows, SCHEMA)
    title = "FP8 over BF16, whole training steps"
    throughputs = [row for row in stated if row.unit == "tok/s/GPU" and row.model_key in published_models()]
    caption = _caption(frame, throughputs)
    return Exhibit("fp8_speedup", title, caption, frame, _chart(frame))


def _is_timed(cell: TrainedCell) -> bool:
    """Whether a cell is FP8 whose speed says something: an emulated one's does not."""
    configured = cell.first.run.record["configuration"]
    return configured["precision"] in PRECISIONS and not configured.get("emulated")


def _variant(run: Run) -> str:
    """What was cut and changed, and the framework."""
    said = list(run.get("configuration", "cut") or [])
    if run.get("stack") == "maxtext":
        said.append(f"{run.get('configuration', 'layout', 'global_batch_samples')} samples")
        flax = run.get("configuration", "quantization") == "fp8"
        said.append(f"{'Flax' if flax else 'Transformer Engine'}'s FP8 over Transformer Engine's BF16")
        said += ["synthetic data"] if run.get("configuration", "synthetic") else []
        return ", ".join([*said, f"MaxText {run.get('versions', 'maxtext')}"])
    samples, micro = (run.get("configuration", "layout", f"{kind}_batch_samples") for kind in ("global", "micro"))
    said.append(f"{samples // micro} micro-batches")
    if run.get("configuration", "first_last_layers_bf16"):
        said.append("first and last layer in BF16")
    if run.get("configuration", "rowwise_weight_cast"):
        said.append("weights cast without transpose")
    return ", ".join([*said, f"NeMo {run.get('versions', 'nemo-toolkit')} (release {run.get('release')})"])


def _measured(cell: TrainedCell) -> dict[str, Any]:
    run = cell.first.run
    key = find_gpu(str(run.get("hardware", "gpu_name")))
    row: dict[str, Any] = {
        "model": run.get("configuration", "model"),
        "hardware": (key or "unknown").split("_")[0].upper(),
        "precision": run.get("configuration", "precision"),
        "variant": _variant(run),
        "experiment": cell.experiment,
        "gpus": str(run.get("configuration", "layout", "gpus")),
        "reason": cell.reason,
        "source": " ".join(j.run.name for j in (*cell.runs, *cell.base)),
    }
    if cell.time:
        peaks = [j.run.peak_memory_bytes for j in cell.runs if j.run.peak_memory_bytes]
        row |= {
            "label": run.get("kind"),
            "step_time_s": cell.time.value,
            "tokens_per_s_per_gpu": run.steps[0].tokens / cell.time.value / run.get("configuration", "layout", "gpus"),
            "n": cell.time.n,
            "repeats": cell.time.repeats,
            "peak_memory_gib": max(peaks) / 2**30 if peaks else None,
        }
    if cell.comparison and cell.time:
        speedup = cell.comparison.speedup
        row |= {
            "speedup": speedup.value,
            "speedup_low": speedup.low,
            "speedup_high": speedup.high,
            "base_step_time_s": speedup.value * cell.time.value,
            "like_for_like": cell.comparison.like_for_like,
            "differences": differing(cell.comparison),
        }
    return row


def _stated(row: PublishedRow) -> dict[str, Any] | None:
    """A speedup that a source prints for one of the models."""
    if row.claim_kind != "speedup" or row.baseline != "bf16" or row.precision_key not in PRECISIONS:
        return None
    if row.model_key not in published_models():
        return None
    return {
        "model": row.model_key,
        "hardware": row.hardware.removeprefix("DGX ").removeprefix("DGX-"),
        "precision": row.precision_key,
        "variant": f"{row.source_id}, as printed",
        "label": "published",
        "gpus": row.gpus,
        "speedup": row.value,
        "source": f"{row.id} {row.source_url_or_repo_path}",
    }


def _missing(hardware: str, precision: str) -> str:
    """What a cell without a number would need."""
    if precision == "mxfp8" and hardware in ("H100", "H200"):
        return "unsupported: MXFP8 needs Blackwell"
    if precision == "fp8_block" and hardware in ("B200", "GB200"):
        return "unsupported: Transformer Engine of 25.07 has block scaling on Hopper only"
    place = "one GPU" if hardware == "H200" else "the full recipe's GPUs"
    return f"not measured, not published: needs {hardware} ({place})"


def _caption(frame: pl.DataFrame, throughputs: list[PublishedRow]) -> str:
    measured = frame.filter(pl.col("label") == "measured", pl.col("speedup").is_not_null())
    start = "No valid measured run."
    if measured.height:
        sizes = sorted({int(n) for n in measured["n"]})
        processes = sorted({int(n) for n in measured["repeats"]})
        start = (
            "Measured: NeMo's own recipe, and MaxText, on one GPU, true width and reduced depth (column variant), over"
            f" BF16 of the same software and GPU; 95 % block-bootstrap intervals over {_span(sizes)} steps a point,"
            f" from {_span(processes)} process a point: where it is one, the spread from run to run is not in them."
            " Where the vocabulary is cut like the layers, head and loss weigh as in the whole model; where it is not,"
            " these parts, which stay in BF16, weigh more. Weights are quantized once a step, so that fewer"
            " micro-batches make FP8 gain less; `no transpose`: without one that newer Transformer Engine computes and"
            " drops. There is no communication."
        )
    baselines = sum(row.precision_key == "bf16" for row in throughputs)
    return (
        start + " Published: whole models on many GPUs, as sources print them; their pairs may differ in layout"
        f" (exhibit recipe_pairs). Of {len(throughputs)} throughputs printed for these models, {baselines} is BF16:"
        " the published speedups cannot be recomputed from the published throughputs."
    )


def _span(values: list[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _setting(row: dict[str, Any]) -> str:
    """In the chart, what sets a measured point apart from others of its model and precision; layers are always cut."""
    if row["label"] == "published":
        return "whole model"
    if "MaxText" in row["variant"]:
        return ", ".join(["Flax"] * ("Flax" in row["variant"]) + ["synthetic"] * ("synthetic" in row["variant"]))
    found = ["vocabulary cut"] * ("vocabulary" in row["variant"])
    found += ["first and last layer BF16"] * ("first and last" in row["variant"])
    found += ["no transpose"] * ("without transpose" in row["variant"])
    return ", ".join(found)


def _place(row: dict[str, Any]) -> str:
    """Where a point stands in the chart: its GPU, and beside it what another framework measured there."""
    return f"{row['hardware']} MaxText" if "MaxText" in (row["variant"] or "") else str(row["hardware"])


def _chart(frame: pl.DataFrame) -> alt.FacetChart:
    models, precisions = load_models(), load_precisions()
    points = frame.filter(pl.col("speedup").is_not_null()).with_columns(
        pl.col("model").replace_strict({k: m.name for k, m in models.items()}).alias("model_name"),
        pl.col("precision").replace_strict({k: p.name for k, p in precisions.items()}).alias("precision_name"),
    )
    keep = [p for p in PRECISIONS if p in set(points["precision"])]
    values = [{**row, "setting": _setting(row), "place": _place(row)} for row in points.to_dicts()]
    places = [place for h in HARDWARE for place in (h, f"{h} MaxText")]
    found = {row["place"] for row in values}
    hardware = [place for place in places if place in found]
    hardware += sorted(found - set(hardware))
    labels = [label for label in LABELS if label in set(points["label"])]
    base = alt.Chart().encode(
        x=alt.X("place:N", sort=hardware, title=None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("precision_name:N", sort=[precisions[p].name for p in keep]),
        color=alt.Color(
            "precision_name:N",
            title="Precision",
            scale=alt.Scale(domain=[precisions[p].name for p in keep], range=[PRECISION_COLOURS[p] for p in keep]),
        ),
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(
        y=alt.Y("speedup_low:Q", title=""), y2="speedup_high:Q", color=alt.value("black")
    )
    marks = base.mark_point(filled=True, size=45, opacity=0.9).encode(
        y=alt.Y("speedup:Q", title="Speedup over BF16", scale=alt.Scale(zero=False, padding=12)),
        shape=alt.Shape("label:N", title="Label", scale=alt.Scale(domain=labels, range=SHAPES[: len(labels)])),
        tooltip=["model_name:N", "hardware:N", "precision_name:N", "variant:N", "speedup:Q", "source:N"],
    )
    words = base.mark_text(align="left", dx=7, fontSize=10).encode(
        y=alt.Y("speedup:Q"), text="setting:N", color=alt.value("#444444")
    )
    order = [models[key].name for key in published_models() if key in set(points["model"])]
    return (
        alt.layer(marks, bars, words, data=alt.Data(values=values))
        .properties(width=540, height=260)
        .facet(facet=alt.Facet("model_name:N", sort=order, title=None), columns=2)
    )
