"""The ledger of claims as an exhibit: verdicts computed from the other exhibits' tables."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import polars as pl

from analysis.claims import PREDICATES, load_claims
from analysis.exhibits.exhibit import Exhibit, table

SCHEMA: dict[str, type[pl.DataType]] = {
    "claim": pl.String,
    "verdict": pl.String,
    "sentence": pl.String,
    "finding": pl.String,
    "exhibits": pl.String,
    "source": pl.String,
    "needs": pl.String,
    "run": pl.String,
}
VERDICT_COLOURS = {
    "reproduced": "#009E73",
    "consistent": "#56B4E9",
    "corrected": "#E69F00",
    "not reproduced": "#D55E00",
    "needs hardware": "#BBBBBB",
}


def build(tables: Path) -> Exhibit:
    """The ledger, from the tables of the exhibits that its claims name (CSV files in `tables`)."""
    rows = []
    for key, claim in load_claims().items():
        frames = [pl.read_csv(tables / f"{name}.csv", infer_schema_length=None) for name in claim.exhibits]
        found = PREDICATES[key](*frames)
        row = {"claim": key, "verdict": found.verdict, "finding": found.finding, **claim.model_dump()}
        rows.append(row | {"exhibits": ", ".join(claim.exhibits)})
    frame = table(rows, SCHEMA)
    caption = (
        "Each sentence is in our words, with its source; each verdict is computed from the exhibits named. Consistent"
        " means that a measured quantity which carries the claim agrees with it, not that the claim's own"
        " quantity was measured."
    )
    return Exhibit("claims", "What the sources claim, and what was found", caption, frame, _chart(frame))


def _chart(frame: pl.DataFrame) -> alt.LayerChart:
    rows = frame.select("claim", "verdict", "finding").with_columns(
        pl.col("claim").str.replace_all("_", " ").alias("claim_name")
    )
    base = alt.Chart(alt.Data(values=rows.to_dicts())).encode(
        y=alt.Y("claim_name:N", sort=None, title=None, axis=alt.Axis(labelLimit=400))
    )
    boxes = base.mark_rect(stroke="white").encode(
        color=alt.Color(
            "verdict:N",
            title="Verdict",
            scale=alt.Scale(domain=list(VERDICT_COLOURS), range=list(VERDICT_COLOURS.values())),
        ),
        tooltip=["claim_name:N", "verdict:N", "finding:N"],
    )
    words = base.mark_text().encode(text="verdict:N")
    return (boxes + words).properties(width=160, height=30 * max(1, frame.height))
