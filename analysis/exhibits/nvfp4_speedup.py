"""NVFP4 over FP8 as published: each source's own ratio, and over the fastest FP8 that any source prints for the GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, published_models, table
from analysis.lint import sequence_of
from analysis.published import PublishedRow, read_published
from recipes.catalog import flops_per_token, load_models, load_precisions

NARROW = "nvfp4"
BASELINES = ("fp8_current", "fp8_delayed", "mxfp8")
FASTEST = "the fastest FP8 of any source"
# what the sources that print NVFP4 throughputs ran on
HARDWARE = ("B200", "GB200", "GB300")
SCHEMA: dict[str, type[pl.DataType]] = {
    "model": pl.String,
    "hardware": pl.String,
    "source_id": pl.String,
    "framework": pl.String,
    "gpus": pl.String,
    "recipe": pl.String,
    "baseline": pl.String,
    "label": pl.String,
    "speedup_printed": pl.Float64,
    "speedup": pl.Float64,
    "speedup_over_best_fp8": pl.Float64,
    "baseline_of_best_fp8": pl.Float64,
    "tokens_per_s_per_gpu": pl.Float64,
    "base_tokens_per_s_per_gpu": pl.Float64,
    "tokens_from": pl.String,
    "best_fp8": pl.String,
    "setting": pl.String,
    "base_setting": pl.String,
    "reason": pl.String,
    "source": pl.String,
}
_Setting = tuple[str, str, str, str, int]  # source, model, GPU, number of GPUs, sequence


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from published rows alone: no Blackwell GPU was at hand."""
    del raw
    rates, printed = _collect(read_published(published))
    best: dict[tuple[str, str, int], tuple[float, str]] = {}
    for (source, model, hardware, _, sequence), found in rates.items():
        for precision, (row, tokens, _) in found.items():
            if precision in BASELINES and tokens > best.get((model, hardware, sequence), (0.0, ""))[0]:
                best[model, hardware, sequence] = (
                    tokens,
                    f"{source}: {row.recipe} on {row.gpus} GPUs, {tokens:.0f} tokens/s",
                )
    rows = [
        _pair(setting, found, baseline, best, printed.get(setting[:4], {}))
        for setting, found in rates.items()
        for baseline in BASELINES
        if NARROW in found and baseline in found
    ]
    present = {(row["model"], row["hardware"]) for row in rows}
    rows += [
        {"model": m, "hardware": h, "reason": f"no source prints NVFP4 and FP8 throughputs for it on {h}"}
        for m in published_models()
        for h in HARDWARE
        if (m, h) not in present
    ]
    order = {name: at for at, name in enumerate(published_models())}
    rows.sort(key=lambda row: (order[row["model"]], HARDWARE.index(row["hardware"]), row.get("source_id") or ""))
    frame = table(rows, SCHEMA)
    return Exhibit("nvfp4_speedup", "NVFP4 over FP8, as published", _caption(frame), frame, _chart(frame))


def _collect(
    rows: Iterable[PublishedRow],
) -> tuple[dict[_Setting, dict[str, tuple[PublishedRow, float, str]]], dict[tuple[str, ...], dict[str, float]]]:
    """Tokens a second and GPU by setting and precision, with where they come from; and printed speedups by baseline."""
    rates: dict[_Setting, dict[str, tuple[PublishedRow, float, str]]] = defaultdict(dict)
    printed: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for row in rows:
        hardware = row.hardware.removeprefix("DGX-").removeprefix("DGX ")
        model, precision = row.model_key, row.precision_key
        if model not in published_models() or hardware not in HARDWARE or precision not in (NARROW, *BASELINES):
            continue
        sequence = sequence_of(row)
        if sequence is None and row.claim_kind != "speedup":
            continue  # tokens of another length cost other FLOPs: nothing to set it against
        if row.claim_kind == "speedup" and precision == NARROW:
            printed[row.source_id, str(model), hardware, row.gpus][_baseline(row)] = row.value
            continue
        setting = (row.source_id, str(model), hardware, row.gpus, sequence or 0)
        if row.claim_kind == "tokens_per_s_gpu":
            rates[setting][precision] = (row, row.value, "printed")
        elif row.claim_kind == "tflops_gpu" and precision not in rates[setting]:
            flops = flops_per_token(load_models()[str(model)], setting[-1], "causal")
            rates[setting][precision] = (row, row.value * 1e12 / flops, "printed TFLOP/s, causal attention")
    return rates, printed


def _baseline(row: PublishedRow) -> str:
    """Our key of the precision that a printed speedup is over."""
    return row.model_copy(update={"recipe": row.baseline}).precision_key or ""


def _pair(
    setting: _Setting,
    found: dict[str, tuple[PublishedRow, float, str]],
    baseline: str,
    best: dict[tuple[str, str, int], tuple[float, str]],
    printed: dict[str, float],
) -> dict[str, Any]:
    source, model, hardware, _, sequence = setting
    (row, tokens, origin), (base, base_tokens, _) = found[NARROW], found[baseline]
    fastest, named = best[model, hardware, sequence]
    return {
        "model": model,
        "hardware": hardware,
        "source_id": source,
        "framework": row.framework,
        "gpus": row.gpus,
        "recipe": row.recipe,
        "baseline": baseline,
        "label": "published",
        "speedup_printed": printed.get(baseline),
        "speedup": tokens / base_tokens,
        "speedup_over_best_fp8": tokens / fastest,
        "baseline_of_best_fp8": base_tokens / fastest,
        "tokens_per_s_per_gpu": tokens,
        "base_tokens_per_s_per_gpu": base_tokens,
        "tokens_from": origin,
        "best_fp8": named,
        "setting": row.notes,
        "base_setting": base.notes,
        "source": f"{row.id} {base.id} {row.source_url_or_repo_path}",
    }


def _caption(frame: pl.DataFrame) -> str:
    pairs = frame.filter(pl.col("speedup").is_not_null())
    if not pairs.height:
        return "No source prints NVFP4 and FP8 throughputs of one of the models."
    weakest = pairs.sort("baseline_of_best_fp8").row(0, named=True)
    least, most = (pairs.sort("speedup", descending=down).row(0, named=True) for down in (False, True))
    name = load_models()[weakest["model"]].name
    return (
        "Published, nothing measured here: NVFP4 throughput over the FP8 throughput that the same source prints for the"
        f" same model and GPU, {least['speedup']:.2f}x to {most['speedup']:.2f}x. Where only TFLOP/s are printed,"
        " tokens follow from the FLOPs of a token with causal attention; the source's convention is not known, and does"
        " not change its own ratio. A ratio is only as good as its baseline: the slowest FP8 run stands at"
        f" {weakest['baseline_of_best_fp8']:.0%} of the fastest FP8 published for the same model and GPU"
        f" ({weakest['source_id']}: {name} on {weakest['hardware']}, {weakest['speedup']:.2f}x over its own FP8,"
        f" {weakest['speedup_over_best_fp8']:.2f}x over the fastest; counted with full attention it would stand lower)."
        " Sources differ in software, number of GPUs and layout, so that this is a warning, not a correction. Loss is"
        " not in this exhibit."
    )


def _chart(frame: pl.DataFrame) -> alt.FacetChart:
    models, precisions = load_models(), load_precisions()
    kinds = {"speedup": "over the same source's", "speedup_over_best_fp8": "over the fastest published"}
    values = [
        {
            "model_name": models[row["model"]].name,
            "pair": f"{row['hardware']}, {row['source_id']}",
            "precision": precisions[row["baseline"]].name if column == "speedup" else FASTEST,
            "over": words,
            "value": row[column],
            "source": row["source"],
        }
        for row in frame.filter(pl.col("speedup").is_not_null()).iter_rows(named=True)
        for column, words in kinds.items()
        if column == "speedup" or row["baseline"] == _first(frame, row)
    ]
    order = [models[key].name for key in published_models() if models[key].name in {v["model_name"] for v in values}]
    shown = [*(precisions[key].name for key in BASELINES), FASTEST]
    colours = [*(PRECISION_COLOURS[key] for key in BASELINES), "#777777"]
    points = (
        alt.Chart()
        .mark_point(size=60, filled=True, opacity=0.9)
        .encode(
            y=alt.Y("pair:N", title=None, axis=alt.Axis(labelLimit=300)),
            x=alt.X("value:Q", title="NVFP4 speedup", scale=alt.Scale(zero=False)),
            color=alt.Color("precision:N", title="FP8 baseline", scale=alt.Scale(domain=shown, range=colours)),
            shape=alt.Shape(
                "over:N", title="FP8 run", scale=alt.Scale(domain=list(kinds.values()), range=["circle", "diamond"])
            ),
            tooltip=["pair:N", "precision:N", "over:N", "value:Q", "source:N"],
        )
    )
    return (
        alt.layer(points, data=alt.Data(values=values))
        .properties(width=360, height=alt.Step(20))
        .facet(row=alt.Row("model_name:N", sort=order, title=None))
        .resolve_scale(y="independent")
    )


def _first(frame: pl.DataFrame, row: dict[str, Any]) -> str:
    """The first of a source's baselines: the fastest FP8 is the same for all of them, and drawn once."""
    same = frame.filter(*(pl.col(name) == row[name] for name in ("model", "hardware", "source_id")))
    return str(same["baseline"][0])
