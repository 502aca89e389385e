"""The ledger of claims: each checkable sentence of the sources, with a verdict computed from exhibits.

A predicate reads finished tables only. `reproduced`: the claim's own quantity was measured here and agrees.
`consistent`: a measured quantity that carries the claim agrees with it. `not reproduced`: it disagrees.
`corrected`: what the source itself prints, or other publications beside it, say something else.
`needs hardware`: nothing valid was measured that could tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pydantic import model_validator

from recipes.catalog.hardware import find_gpu
from recipes.catalog.reading import Entry, read_yaml

ClaimVerdict = Literal["reproduced", "consistent", "not reproduced", "corrected", "needs hardware"]
CLAIMS = Path(__file__).with_name("claims.yaml")


class Claim(Entry):
    """One sentence of a source and where its evidence is."""

    sentence: str
    source: str
    exhibits: tuple[str, ...]
    needs: str
    run: str


class ClaimFile(Entry):
    """`claims.yaml`."""

    claims: dict[str, Claim]

    @model_validator(mode="after")
    def _predicates_exist(self) -> ClaimFile:
        lost = sorted(set(self.claims) ^ set(PREDICATES))
        if lost:
            raise ValueError(f"claims and predicates of analysis/claims.py do not match: {lost}")
        return self


@dataclass(frozen=True)
class Finding:
    """A verdict and the numbers it rests on, in words made from the table."""

    verdict: ClaimVerdict
    finding: str


# The claims so far are about H100; its tensor cores are the H200's. Where both were measured, the H100 counts.
_HOPPER = ("h100_sxm", "h200_sxm")
# how much of a published speedup a measured one must reach to carry it
NEAR = 0.9
ROUNDED = 0.0051  # a speedup printed with two decimals


def _measured(frame: pl.DataFrame, **equal: str) -> pl.DataFrame:
    """Measured rows with a speedup on one Hopper GPU model, never of two mixed."""
    rows = frame.filter(pl.col("label") == "measured", pl.col("speedup").is_not_null())
    found = rows["hardware"].unique().to_list()
    # as the driver prints it, or as exhibits that hold published rows too call it
    chosen = next((n for key in _HOPPER for n in found if find_gpu(n) == key or n == key.split("_")[0].upper()), "")
    rows = rows.filter(pl.col("hardware") == chosen)
    for column, value in equal.items():
        rows = rows.filter(pl.col(column) == value)
    return rows


def _say(row: dict[str, Any]) -> str:
    return f"{row['model']} {row['speedup']:.2f}x [{row['speedup_low']:.2f}, {row['speedup_high']:.2f}]"


def gemm_up_to_2x(frame: pl.DataFrame) -> Finding:
    """The best per-tensor speedup of the bare GEMMs of a layer against the published "up to" value.

    Reproduced when, on an H100, the best model's interval reaches the value rounded as it was printed (to 0.1);
    consistent when it does so on another Hopper GPU, or comes within 10 %. The claim says "up to": smaller gains
    elsewhere do not contradict it.
    """
    published = frame.filter(pl.col("label") == "published", pl.col("source").str.starts_with("P0007"))
    rows = _measured(frame, part="GEMM only").filter(pl.col("precision").is_in(["fp8_delayed", "fp8_current"]))
    if not rows.height or not published.height:
        return Finding("needs hardware", "no valid measured run")
    value = published["speedup"][0]
    best = rows.sort("speedup", descending=True).row(0, named=True)
    loaded = _measured(frame, part="with quantization", model=best["model"], precision=best["precision"])
    verdict: ClaimVerdict = "not reproduced"
    if best["speedup_high"] >= value - 0.05 and find_gpu(best["hardware"]) == "h100_sxm":
        verdict = "reproduced"
    elif best["speedup"] >= NEAR * value:
        verdict = "consistent"
    worst = rows.sort("speedup").row(0, named=True)
    text = f"bare GEMMs: best {_say(best)} ({best['precision']}), least {_say(worst)} ({worst['precision']})"
    if loaded.height:
        text += f"; with quantization the best becomes {_say(loaded.row(0, named=True))}"
    return Finding(verdict, f"{text}; on {best['hardware']}")


def fp8_current_gain_grows_with_size(steps: pl.DataFrame, layers: pl.DataFrame) -> Finding:
    """Whole steps of NeMo on one GPU, and layers alone, against the published end-to-end speedups of the same models.

    The steps are those of the experiments ending in -scaled, where head and loss weigh as in the whole model; layers
    alone carry the gain, and what is around them can only dilute it. `consistent` when both grow from model to model
    with disjoint intervals, the steps come within 10 % of the published values and the layers nowhere fall below them;
    `not reproduced` when one fails. Only whole models on the GPUs of the claim could reproduce it.
    """
    stated = steps.filter(pl.col("label") == "published", pl.col("precision") == "fp8_current")
    published = {row["model"]: row["speedup"] for row in stated.iter_rows(named=True)}
    models = sorted(published, key=lambda model: published[model])
    scaled = _measured(steps, precision="fp8_current").filter(pl.col("experiment").str.ends_with("-scaled"))
    whole = {row["model"]: row for row in scaled.iter_rows(named=True)}
    alone = {row["model"]: row for row in _measured(layers, precision="fp8_current").iter_rows(named=True)}
    if len(models) < 2 or any(model not in rows for rows in (whole, alone) for model in models):
        return Finding("needs hardware", "no valid measured run of every model that the claim names")
    grows = all(
        rows[a]["speedup_high"] < rows[b]["speedup_low"] for rows in (whole, alone) for a, b in pairwise(models)
    )
    near = all(whole[model]["speedup"] >= NEAR * published[model] for model in models)
    above = all(alone[model]["speedup_high"] >= published[model] for model in models)
    text = "whole steps on one GPU: " + ", ".join(_say(whole[model]) for model in models)
    text += "; layers only: " + ", ".join(_say(alone[model]) for model in models)
    text += "; published: " + ", ".join(f"{published[model]:.2f}x" for model in models)
    carried = grows and near and above
    return Finding("consistent" if carried else "not reproduced", f"{text}; on {whole[models[0]]['hardware']}")


def block_scaling_slower_than_per_tensor(frame: pl.DataFrame) -> Finding:
    """Block scaling's layer speedup against both per-tensor recipes, model by model, by disjoint intervals."""
    rows = {(row["model"], row["precision"]): row for row in _measured(frame).iter_rows(named=True)}
    models = sorted({model for model, precision in rows if precision == "fp8_block"})
    if not models or any((model, p) not in rows for model in models for p in ("fp8_delayed", "fp8_current")):
        return Finding("needs hardware", "no valid measured run of all three recipes")
    slower = [
        model
        for model in models
        if all(
            rows[model, "fp8_block"]["speedup_high"] < rows[model, p]["speedup_low"]
            for p in ("fp8_delayed", "fp8_current")
        )
    ]
    text = f"slower for {len(slower)} of {len(models)} models: " + "; ".join(
        f"{_say(rows[model, 'fp8_block'])} against {rows[model, 'fp8_current']['speedup']:.2f}x (current),"
        f" {rows[model, 'fp8_delayed']['speedup']:.2f}x (delayed)"
        for model in models
    )
    return Finding("reproduced" if slower == models else "not reproduced", text)


def nvfp4_over_fp8_with_maxtext(frame: pl.DataFrame) -> Finding:
    """The blog's printed speedups by model, and what its FP8 runs stand at beside other published FP8 runs.

    `not reproduced` when a printed speedup is not the ratio of the rates printed beside it; `corrected` when the range
    is not the claim's for the claim's model (8B), or when a baseline is more than 10 % below the fastest FP8 published
    for the same model and GPU; else `needs hardware`, since nothing was measured here.
    """
    rows = frame.filter(pl.col("source_id") == "nv_blog_nvfp4_maxtext", pl.col("speedup_printed").is_not_null())
    if not rows.height:
        return Finding("needs hardware", "no published pair")
    wrong = rows.filter((pl.col("speedup") - pl.col("speedup_printed")).abs() > ROUNDED)
    if wrong.height:
        row = wrong.row(0, named=True)
        said = f"{row['model']} on {row['hardware']}: {row['speedup_printed']:.2f}x printed, its rates give"
        return Finding("not reproduced", f"{said} {row['speedup']:.2f}x")

    def span(model: str, column: str) -> str:
        values = rows.filter(pl.col("model") == model)[column].sort()
        return f"{values[0]:.2f}x to {values[-1]:.2f}x"

    models = rows["model"].unique(maintain_order=True).to_list()
    text = "printed: " + ", ".join(f"{model} {span(model, 'speedup_printed')}" for model in models)
    text += "; over the fastest FP8 published for the model and GPU: "
    text += ", ".join(f"{model} {span(model, 'speedup_over_best_fp8')}" for model in models)
    other = rows.filter(pl.col("model") != "llama3_8b")["speedup_printed"].max()
    own = rows.filter(pl.col("model") == "llama3_8b")["speedup_printed"].max()
    weak = rows.filter(pl.col("baseline_of_best_fp8") < NEAR).height
    widened = isinstance(own, float) and isinstance(other, float) and other > own
    text += f"; {weak} of {rows.height} FP8 baselines are more than 10 % below that" if weak else ""
    return Finding("corrected" if weak or widened else "needs hardware", text)


PREDICATES: dict[str, Callable[..., Finding]] = {
    "gemm_up_to_2x": gemm_up_to_2x,
    "fp8_current_gain_grows_with_size": fp8_current_gain_grows_with_size,
    "block_scaling_slower_than_per_tensor": block_scaling_slower_than_per_tensor,
    "nvfp4_over_fp8_with_maxtext": nvfp4_over_fp8_with_maxtext,
}


def load_claims() -> dict[str, Claim]:
    """All claims by key. Raises CatalogError, also when a claim has no predicate or a predicate no claim."""
    return read_yaml(CLAIMS, ClaimFile).claims
