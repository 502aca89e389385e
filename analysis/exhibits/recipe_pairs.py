"""NVIDIA's own BF16 and FP8 recipes at NeMo 25.04: in which pairs more than the precision differs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.compare import Difference
from analysis.exhibits.exhibit import Exhibit, table

SCHEMA: dict[str, type[pl.DataType]] = {
    "model": pl.String,
    "hardware": pl.String,
    "gpus": pl.Int64,
    "label": pl.String,
    "like_for_like": pl.Boolean,
    "differences": pl.String,
    "source": pl.String,
}
RECOMMENDED = "recipes/nemo/recommended.csv"
# What a row is, not how it runs.
_NAMES = ("model", "hardware", "dtype", "source")


def differences(base: dict[str, str], other: dict[str, str]) -> tuple[Difference, ...]:
    """Every setting in which two recipe rows differ."""
    return tuple(
        Difference(name, base[name], other[name]) for name in base if name not in _NAMES and base[name] != other[name]
    )


def read_pairs(path: Path) -> list[tuple[dict[str, str], dict[str, str]]]:
    """BF16 and FP8 rows of the same model and GPU. Raises KeyError when one of them is absent."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = {(row["model"], row["hardware"], row["dtype"]): row for row in csv.DictReader(file)}
    keys = dict.fromkeys((model, hardware) for model, hardware, _ in rows)
    return [(rows[*key, "bf16"], rows[*key, "fp8"]) for key in keys]


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from the recipes' own table, `recipes/nemo/recommended.csv`."""
    del raw
    rows: list[dict[str, Any]] = []
    for base, other in read_pairs(published.parents[2] / RECOMMENDED):
        found = differences(base, other)
        rows.append(
            {
                **{name: base[name] for name in ("model", "hardware", "source")},
                "gpus": int(base["gpus"]),
                "label": "published",
                "like_for_like": not found,
                "differences": "; ".join(f"{d.field}: {d.base} vs {d.other}" for d in found),
            }
        )
    unequal = sum(not row["like_for_like"] for row in rows)
    caption = (
        f"Published recipes, not runs. {unequal} of {len(rows)} BF16/FP8 pairs differ in more than the precision:"
        " there, a speedup is not one of the precision alone. Delayed scaling, current scaling and MXFP8 share the FP8"
        " row."
    )
    title = "NeMo 25.04: which recipe pairs are like for like"
    return Exhibit("recipe_pairs", title, caption, table(rows, SCHEMA), _chart(rows))


def _chart(rows: list[dict[str, Any]]) -> alt.LayerChart:
    values = [
        {**row, "pair": "like for like" if row["like_for_like"] else "differs", "what": _short(row["differences"])}
        for row in rows
    ]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("hardware:N", title=None, sort=["H100", "B200", "GB200"], axis=alt.Axis(labelAngle=0, orient="top")),
        y=alt.Y("model:N", title=None, sort=list(dict.fromkeys(row["model"] for row in rows))),
    )
    tiles = base.mark_rect(stroke="white", strokeWidth=2).encode(
        color=alt.Color(
            "pair:N",
            title="BF16 and FP8",
            scale=alt.Scale(domain=["like for like", "differs"], range=["#B7DDD0", "#E8B08C"]),
        ),
        tooltip=["model:N", "hardware:N", "gpus:Q", "differences:N"],
    )
    return (tiles + base.mark_text(fontSize=10).encode(text="what:N")).properties(width=480, height=170)


def _short(text: str) -> str:
    """What differs, as much as fits into a tile."""
    names = [part.split(":")[0].replace("_parallel", "").replace("_", " ") for part in text.split("; ") if part]
    return names[0] + (f" + {len(names) - 1} more" if len(names) > 1 else "") if names else ""
