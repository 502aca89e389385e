"""Every published run that did not enter a table, with its verdict and all its reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import Exhibit, table
from analysis.verdicts import VERDICTS

SCHEMA: dict[str, type[pl.DataType]] = {
    "run": pl.String,
    "verdict": pl.String,
    "codes": pl.String,
    "reasons": pl.String,
}


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from raw runs."""
    del published
    evidence = load(raw)
    rows: list[dict[str, Any]] = [
        {
            "run": judged.run.name,
            "verdict": judged.verdict,
            "codes": " ".join(dict.fromkeys(reason.code for reason in judged.reasons)),
            "reasons": "; ".join(reason.message for reason in judged.reasons),
        }
        for judged in evidence.excluded()
    ]
    frame = table(rows, SCHEMA)
    total = len(evidence.judged)
    caption = (
        f"{total} published runs: {total - len(rows)} valid, {len(rows)} in no table. Each excluded run is listed with"
        " every reason found; the chart counts all runs by verdict and stack."
    )
    return Exhibit(
        "excluded_runs", "Runs that entered no table, and why", caption, frame, _chart(evidence_counts(evidence.judged))
    )


def evidence_counts(judged: Any) -> list[dict[str, Any]]:
    """Number of runs by stack and verdict, for the chart."""
    counts: dict[tuple[str, str], int] = {}
    for item in judged:
        key = (item.run.path.parts[-3], item.verdict)
        counts[key] = counts.get(key, 0) + 1
    order = sorted(counts.items(), key=lambda item: (-VERDICTS.index(item[0][1]), item[0][0]))
    return [
        {"name": f"{verdict}, {stack}", "stack": stack, "verdict": verdict, "runs": n} for (stack, verdict), n in order
    ]


def _chart(counts: list[dict[str, Any]]) -> alt.LayerChart:
    base = alt.Chart(alt.Data(values=counts)).encode(
        y=alt.Y("name:N", sort=[one["name"] for one in counts], title=None, axis=alt.Axis(labelLimit=240)),
        x=alt.X("runs:Q", title="Published runs"),
    )
    bars = base.mark_bar(color="#0072B2").encode(tooltip=["stack:N", "verdict:N", "runs:Q"])
    numbers = base.mark_text(align="left", dx=4).encode(text="runs:Q")
    return (bars + numbers).properties(width=420, height=alt.Step(22))
