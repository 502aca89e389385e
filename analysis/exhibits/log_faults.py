"""What log readers say of broken logs: ours, and the parsers that people use, each on the same files."""

from __future__ import annotations

import csv
from pathlib import Path

import altair as alt
import polars as pl

from analysis.exhibits.exhibit import Exhibit, table

SCHEMA: dict[str, type[pl.DataType]] = {
    "format": pl.String,
    "fault": pl.String,
    "label": pl.String,
    "tool": pl.String,
    "version": pl.String,
    "says": pl.String,
    "caught": pl.String,
    "detail": pl.String,
    "source": pl.String,
}
OURS = "fewbits"
CLEAN = "clean"
_ACCEPTS = ("accepts", "VALID")


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit from `log_faults.csv`: one row a broken log and tool."""
    del raw
    with published.with_name("log_faults.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    rows = [
        {
            **row,
            "label": "measured",
            "caught": _caught(row["fault"], row["says"]),
            "source": "results/published/log_faults.csv",
        }
        for row in read
    ]
    found = table(rows, SCHEMA)
    broken = found.filter(pl.col("fault") != CLEAN)
    shares = [
        f"{tool} {part.filter(pl.col('caught') == 'yes').height} of {part.height}"
        for (tool,), part in broken.group_by("tool", maintain_order=True)
    ]
    caption = (
        "Clean logs with one fault each, given to every tool that reads the format (llmb-run and Megatron-Bridge's"
        " evaluate.py: 60 invented steps; MLPerf's checker: a public log that it accepts). Caught: "
        + "; ".join(sorted(shares))
        + ". An edited seed cannot be seen in a log; a manifest shows it. torchao's parser gives no verdict, so that"
        " any number counts as accepting."
    )
    return Exhibit("log_faults", "Which tools notice that a log is broken", caption, found, _chart(found))


def _caught(fault: str, says: str) -> str:
    if fault == CLEAN:
        return "no fault" if says in _ACCEPTS else "false alarm"
    return "no" if says in _ACCEPTS else "yes"


def _chart(found: pl.DataFrame) -> alt.FacetChart:
    marks = {"no fault": "#BBBBBB", "yes": "#009E73", "no": "#D55E00", "false alarm": "#E69F00"}
    values = found.select("format", "fault", "tool", "caught", "says", "detail").to_dicts()
    cells = (
        alt.Chart(alt.Data(values=values))
        .mark_rect(stroke="white", strokeWidth=2)
        .encode(
            x=alt.X("tool:N", title=None, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("fault:N", title=None),
            color=alt.Color(
                "caught:N", title="Caught", scale=alt.Scale(domain=list(marks), range=list(marks.values()))
            ),
            tooltip=["format:N", "fault:N", "tool:N", "says:N", "detail:N"],
        )
        .properties(width=alt.Step(26), height=alt.Step(15))
    )
    return cells.facet(column=alt.Column("format:N", title=None, header=alt.Header(labelFontSize=12))).resolve_scale(
        x="independent"
    )
