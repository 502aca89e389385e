"""What MaxText's steps are made of in each precision, and what that does to a short run's loss."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load, valid, why_not
from analysis.exhibits.exhibit import PRECISION_COLOURS, Exhibit, table
from analysis.judge import Judged
from recipes.catalog import load_precisions

STACK = "maxtext"
TITLE = "MaxText: precision of the step, and its loss"
LAST = 10  # steps at the end of a run whose mean loss stands for it
TYPES = ("e2m1", "e4m3", "e5m2", "e8m0")
TIERS = {"cpu": "CPU, tiny model", "one_gpu": "one GPU, true width"}
SCHEMA: dict[str, type[pl.DataType]] = {
    "experiment": pl.String,
    "tier": pl.String,
    "precision": pl.String,
    "quantization": pl.String,
    "label": pl.String,
    "proved": pl.String,
    **{f"lines_{kind}": pl.Int64 for kind in TYPES},
    "hadamard_transforms": pl.Int64,
    "steps": pl.Int64,
    "loss_first": pl.Float64,
    "loss_last": pl.Float64,
    "baseline": pl.String,
    "over_baseline": pl.Float64,
    "repeats": pl.Int64,
    "reason": pl.String,
    "source": pl.String,
}


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from every MaxText run's facts and losses."""
    del published
    found = load(raw).experiments(STACK)
    order = list(load_precisions())
    rows = [_row(name, judged, found) for name, judged in found.items()]
    rows.sort(key=lambda row: (row["tier"], order.index(row["precision"]), row["experiment"]))
    frame = table(rows, SCHEMA)
    return Exhibit(
        "maxtext_numerics", "MaxText: precision of the step, and its loss", _caption(frame), frame, _chart(frame)
    )


def _comparable(judged: list[Judged], like: Judged) -> list[Judged]:
    """Runs of the same data, dimensions, length and seed: those whose losses may be set side by side."""
    keys = ("dimensions", "steps", "seed", "layout", "settings", "emulated")

    def setting(one: Judged) -> list[str]:
        return [repr(one.run.get("configuration", key)) for key in keys] + [str(one.run.get("data"))]

    return [one for one in valid(judged) if one.run.trained and setting(one) == setting(like)]


def _last(runs: list[Judged]) -> float:
    """The mean loss of the last steps, over all runs."""
    return fmean(fmean(row.loss for row in one.run.trained[-LAST:]) for one in runs)


def _row(name: str, judged: list[Judged], found: dict[str, list[Judged]]) -> dict[str, Any]:
    good = [one for one in valid(judged) if one.run.trained]
    newest = (good or judged)[-1]
    run = newest.run
    row: dict[str, Any] = {
        "experiment": name,
        "tier": run.get("configuration", "tier"),
        "precision": run.get("configuration", "precision"),
        "quantization": run.get("configuration", "quantization") or "none",
        "source": " ".join(one.run.name for one in judged),
    }
    if not good:
        return row | {"reason": why_not(judged, name)}
    good = _comparable(good, newest)
    types = run.get(STACK, "narrow_types") or {}
    base_name = run.get("configuration", "baseline")
    base = _comparable(found.get(str(base_name), []), newest)
    return row | {
        "label": run.get("kind"),
        "proved": run.get("effective_precision"),
        **{f"lines_{kind}": types.get(kind, 0) for kind in TYPES},
        "hadamard_transforms": run.get(STACK, "hadamard_products"),
        "steps": len(run.trained),
        "loss_first": run.trained[0].loss,
        "loss_last": _last(good),
        "baseline": base_name,
        "over_baseline": _last(good) - _last(base) if base else None,
        "repeats": len(good),
        "reason": f"no VALID run of {base_name} with the same weights and data" if base_name and not base else None,
    }


def _caption(frame: pl.DataFrame) -> str:
    shown = frame.filter(pl.col("label").is_not_null())
    if not shown.height:
        return "No valid run."
    lengths = [int(steps) for steps in shown["steps"]]
    return (
        "Every run's lowered step was read before it ran (StableHLO; columns lines_*: lines that hold the type), and"
        " had to be what was asked for. Bars: mean loss of the last"
        f" {LAST} steps over that of Transformer Engine's BF16 with the same weights and batches: one seed, so that a"
        " difference as small as that between seeds says nothing. Emulated: through Transformer Engine's pure-JAX path,"
        " where the hardware has no such format; right numerics, no speed. Runs are of"
        f" {min(lengths)} to {max(lengths)} steps: what accumulates over thousands is not seen here."
    )


def _chart(frame: pl.DataFrame) -> alt.FacetChart:
    precisions = load_precisions()
    shown = frame.filter(pl.col("over_baseline").is_not_null())
    keep = [key for key in precisions if key in set(shown["precision"])]
    values = [
        {
            **row,
            "where": TIERS.get(row["tier"], row["tier"]),
            "name": row["quantization"] + (", emulated" if row["label"] == "emulated" else ""),
            "precision_name": precisions[row["precision"]].name,
        }
        for row in shown.iter_rows(named=True)
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_bar()
        .encode(
            y=alt.Y("name:N", title=None, sort=None, axis=alt.Axis(labelLimit=300)),
            x=alt.X("over_baseline:Q", title="Loss over Transformer Engine's BF16 (nats)"),
            color=alt.Color(
                "precision_name:N",
                title="Precision",
                legend=alt.Legend(labelLimit=300),
                scale=alt.Scale(
                    domain=[precisions[key].name for key in keep], range=[PRECISION_COLOURS[key] for key in keep]
                ),
            ),
            tooltip=["experiment:N", "label:N", "over_baseline:Q", "loss_last:Q", "steps:Q", "source:N"],
        )
        .properties(width=330)
        .facet(facet=alt.Facet("where:N", title=None), columns=2)
        .resolve_scale(x="independent", y="independent")
    )
