"""What FP8 and FP4 entries of MLPerf Training reached, per GPU, and how many samples they needed for the same loss."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, table
from analysis.rounding import rounded

SCHEMA: dict[str, type[pl.DataType]] = {
    "benchmark": pl.String,
    "hardware": pl.String,
    "gpus": pl.Int64,
    "precision": pl.String,
    "label": pl.String,
    "precision_from": pl.String,
    "submitter": pl.String,
    "round": pl.String,
    "global_batch_samples": pl.Int64,
    "step_time_s": pl.Float64,
    "step_time_low_s": pl.Float64,
    "step_time_high_s": pl.Float64,
    "n": pl.Int64,
    "tokens_per_s_per_gpu": pl.Float64,
    "run_s": pl.Float64,
    "samples": pl.Int64,
    "last_eval_loss": pl.Float64,
    "rate_over_fp8": pl.Float64,
    "time_over_fp8": pl.Float64,
    "samples_over_fp8": pl.Float64,
    "compared_with": pl.String,
    "differences": pl.String,
    "verdict": pl.String,
    "reason": pl.String,
    "evidence": pl.String,
    "sha256": pl.String,
    "source": pl.String,
}
CURVE_BATCH = 16  # losses are set side by side at one batch size: most entries have this one
_NUMBERS = ("step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s_per_gpu", "run_s", "last_eval_loss")
_COUNTS = ("gpus", "global_batch_samples", "n", "samples")


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from `mlperf_runs.csv` and `mlperf_evals.csv` (derived by analysis/mlperf.py)."""
    del raw
    runs = [_typed(row) for row in _read(published.with_name("mlperf_runs.csv"))]
    evals = _read(published.with_name("mlperf_evals.csv"))
    rows = [{**run, **_against_fp8(run, runs)} for run in runs]
    rows.sort(key=lambda row: (row["benchmark"], row["hardware"], row["gpus"], row["precision"], row["id"]))
    found = table(rows, SCHEMA)
    pairs = found.filter(pl.col("rate_over_fp8").is_not_null())
    told = "; ".join(
        f"{row['benchmark']} on {row['gpus']} {row['hardware']} ({row['submitter']}): {row['rate_over_fp8']:.2f}x the"
        f" tokens/s, {row['samples_over_fp8']:.2f}x the samples, so {row['time_over_fp8']:.2f}x as fast to the target"
        for row in pairs.iter_rows(named=True)
    )
    valid = found.filter(pl.col("verdict") == "VALID").height
    caption = (
        f"Published logs of MLPerf Training: {valid} of {found.height} are VALID; the others are listed with their"
        " reason and have no numbers. NVFP4 against the fastest FP8 entry of the same benchmark, GPU, number of GPUs"
        f" and batch: {told}. Submitters differ in every pair, and with them software and settings; it is one run each,"
        " and the samples are known to within one evaluation interval. 405B has no such pair: its FP8 and NVFP4 entries"
        " differ in batch."
    )
    title = "MLPerf Training: FP4 and FP8 entries per GPU"
    return Exhibit("mlperf_precision", title, caption, found, _chart(runs, evals))


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _typed(row: dict[str, str]) -> dict[str, Any]:
    typed: dict[str, Any] = dict(row)
    for name in (*_NUMBERS, *_COUNTS):
        typed[name] = float(row[name]) if row[name] else None
    for name in _COUNTS:
        typed[name] = int(typed[name]) if typed[name] is not None else None
    typed["label"] = "published" if row["verdict"] == "VALID" else None
    typed["source"] = f"{row['repository']}@{row['commit'][:12]}:{row['path']}"
    return typed


def _against_fp8(run: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios of an NVFP4 entry to the FP8 entry that was fastest on equal hardware, GPUs and batch."""
    same = ("benchmark", "hardware", "gpus", "global_batch_samples")
    rivals = [
        other
        for other in runs
        if other["precision"].startswith("fp8") and other["tokens_per_s_per_gpu"] and _equal(run, other, same)
    ]
    if run["precision"] != "nvfp4" or not run["tokens_per_s_per_gpu"] or not rivals:
        return {}
    best = max(rivals, key=lambda other: float(other["tokens_per_s_per_gpu"]))
    differ = [name for name in ("submitter", "round", "precision_from") if run[name] != best[name]]
    return {
        "rate_over_fp8": run["tokens_per_s_per_gpu"] / best["tokens_per_s_per_gpu"],
        "time_over_fp8": best["run_s"] / run["run_s"],
        "samples_over_fp8": run["samples"] / best["samples"],
        "compared_with": best["id"],
        "differences": "; ".join(f"{name}: {best[name]} vs {run[name]}" for name in differ),
    }


def _equal(one: dict[str, Any], other: dict[str, Any], names: tuple[str, ...]) -> bool:
    return all(one[name] == other[name] for name in names)


def _chart(runs: list[dict[str, Any]], evals: list[dict[str, str]]) -> alt.HConcatChart:
    colours = {**PRECISION_COLOURS, "fp8": "#7A9CC6"}
    shown = [name for name in colours if any(run["precision"] == name for run in runs)]
    colour = alt.Color(
        "precision:N", title="Precision", scale=alt.Scale(domain=shown, range=[colours[name] for name in shown])
    )
    points = [
        {
            "entry": f"{run['gpus']} x {run['hardware']}, {run['submitter']} {run['round']}",
            **{name: run[name] for name in ("benchmark", "precision", "tokens_per_s_per_gpu", "precision_from")},
        }
        for run in runs
        if run["tokens_per_s_per_gpu"]
    ]
    speed = [
        alt.Chart(alt.Data(values=[point for point in points if point["benchmark"] == benchmark]))
        .mark_bar()
        .encode(
            x=alt.X("tokens_per_s_per_gpu:Q", title="tokens/s per GPU"),
            y=alt.Y("entry:N", title=None, sort="-x", axis=alt.Axis(labelLimit=260)),
            color=colour,
            tooltip=["entry:N", "precision:N", "precision_from:N", "tokens_per_s_per_gpu:Q"],
        )
        .properties(width=210, title=title)
        for benchmark, title in (("llama31_8b", "Llama 3.1 8B"), ("llama31_405b", "Llama 3.1 405B"))
    ]
    precision_of = {
        run["id"]: run["precision"]
        for run in runs
        if run["benchmark"] == "llama31_8b" and run["global_batch_samples"] == CURVE_BATCH
    }
    curve = [
        {
            "run": row["id"],
            "precision": precision_of[row["id"]],
            "samples": int(float(row["samples"])),
            "loss": rounded(float(row["eval_loss"])),
        }
        for row in evals
        if row["id"] in precision_of and row["samples"]
    ]
    losses = (
        alt.Chart(alt.Data(values=curve))
        .mark_line(point=alt.OverlayMarkDef(size=18), strokeWidth=1.4, clip=True)
        .encode(
            x=alt.X("samples:Q", title="samples of 8192 tokens"),
            y=alt.Y("loss:Q", title="evaluation loss (target 3.3)", scale=alt.Scale(domain=[3.25, 3.85])),
            color=colour,
            detail="run:N",
            tooltip=["run:N", "precision:N", "samples:Q", "loss:Q"],
        )
        .properties(width=330, height=290, title=f"Llama 3.1 8B, batch {CURVE_BATCH}: loss against samples")
    )
    return alt.hconcat(alt.vconcat(*speed), losses)
