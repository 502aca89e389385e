"""Inconsistencies inside published tables: every finding, and how far each row is from a FLOP convention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.exhibits.exhibit import Exhibit, table
from analysis.lint import RATIO_TOLERANCE, RatioCheck, lint, ratio_checks
from analysis.published import read_published
from analysis.rounding import rounded

SCHEMA: dict[str, type[pl.DataType]] = {
    "check": pl.String,
    "rows": pl.String,
    "label": pl.String,
    "source_id": pl.String,
    "model": pl.String,
    "detail": pl.String,
    "deviation": pl.Float64,
    "explanation": pl.String,
    "source": pl.String,
}


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from published rows alone."""
    del raw
    rows = read_published(published)
    checks, findings = list(ratio_checks(rows)), lint(rows)
    found = [
        {
            "check": finding.check,
            "rows": " ".join(row.id for row in finding.rows),
            "label": "published",
            "source_id": finding.rows[0].source_id,
            "model": finding.rows[0].model,
            "detail": finding.detail,
            "deviation": finding.deviation,
            "explanation": finding.explanation or None,
            "source": finding.rows[0].source_url_or_repo_path,
        }
        for finding in findings
    ]
    explained = sum(bool(finding.explanation) for finding in findings)
    off = sum(not check.consistent for check in checks)
    caption = (
        f"Published numbers only. {len(checks)} printed pairs of TFLOP/s and tokens/s were held to the models' FLOPs"
        f" per token under the attention convention that fits best; {off} are more than {RATIO_TOLERANCE:.0%} off. With"
        f" repeated values and printed speedups, {len(findings)} findings in all; rounding alone can explain"
        f" {explained}."
    )
    title = "Published tables that contradict themselves"
    return Exhibit("published_lint", title, caption, table(found, SCHEMA), _chart(checks))


def _chart(checks: list[RatioCheck]) -> alt.LayerChart:
    points: list[dict[str, Any]] = [
        {
            "source": check.tokens.source_id,
            "deviation_percent": rounded(check.deviation * 100),
            "convention": f"{check.convention} attention",
            "row": f"{check.tokens.id}: {check.tokens.model} {check.tokens.hardware} {check.tokens.recipe}",
        }
        for check in checks
    ]
    limits = [{"limit": sign * RATIO_TOLERANCE * 100} for sign in (-1, 1)]
    marks = (
        alt.Chart(alt.Data(values=points))
        .mark_tick(thickness=2, height=14)
        .encode(
            x=alt.X("deviation_percent:Q", title="TFLOP/s over tokens/s, deviation from FLOPs per token (%)"),
            y=alt.Y("source:N", title=None),
            color=alt.Color("convention:N", title="Fits", scale=alt.Scale(range=["#0072B2", "#E69F00"])),
            tooltip=["row:N", "convention:N", "deviation_percent:Q"],
        )
    )
    rules = alt.Chart(alt.Data(values=limits)).mark_rule(strokeDash=[4, 3], color="#888888").encode(x="limit:Q")
    return (rules + marks).properties(width=520, height=260)
