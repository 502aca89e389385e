"""What runs where, since which release: the capability gate as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from analysis.evidence import load
from analysis.exhibits.exhibit import Exhibit, table
from recipes.catalog import capability, find_gpu, load_hardware, load_precisions
from recipes.catalog.capability import load_stacks

SCHEMA: dict[str, type[pl.DataType]] = {
    "stack": pl.String,
    "release": pl.String,
    "hardware": pl.String,
    "precision": pl.String,
    "status": pl.String,
    "reason": pl.String,
    "source": pl.String,
    "ran_here": pl.Int64,
}
STATUS_COLOURS = {"native": "#009E73", "emulated": "#E69F00", "unsupported": "#BBBBBB"}


def build(raw: Path, published: Path) -> Exhibit:
    """The exhibit: the gate's answer for every stack, release, GPU (or CPU) and precision, and the runs behind it."""
    del published  # the gate's sources stand in the catalog
    ran: dict[tuple[str, str, str, str], int] = {}
    for judged in load(raw).judged:
        gpu = find_gpu(str(judged.run.get("hardware", "gpu_name")))
        stack, release = judged.run.path.parts[-3], str(judged.run.get("release"))
        key = (stack, release, gpu or "", str(judged.run.get("effective_precision")))
        ran[key] = ran.get(key, 0) + judged.valid
    rows: list[dict[str, Any]] = []
    for stack, releases in load_stacks().items():
        for release in releases:
            for gpu, compute in [*((k, h.compute_capability) for k, h in load_hardware().items()), ("cpu", None)]:
                for precision in load_precisions():
                    answer = capability(precision, compute, stack, release)
                    rows.append(
                        {
                            "stack": stack,
                            "release": release,
                            "hardware": gpu,
                            "precision": precision,
                            **answer.model_dump(),
                            "ran_here": ran.get((stack, release, gpu, precision), 0),
                        }
                    )
    frame = table(rows, SCHEMA)
    caption = (
        "The capability gate's answers, from sources and source code named in the table; `ran_here` counts the valid"
        " runs in the raw results that bear an answer out. Emulated: right numerics, meaningless speed."
    )
    return Exhibit("capability", "What runs where", caption, frame, _chart(frame))


def _chart(frame: pl.DataFrame) -> alt.FacetChart:
    hardware = {key: gpu.name for key, gpu in load_hardware().items()} | {"cpu": "CPU"}
    precisions = {key: precision.name for key, precision in load_precisions().items()}
    cells = frame.with_columns(
        pl.col("hardware").replace_strict(hardware).alias("hardware_name"),
        pl.col("precision").replace_strict(precisions).alias("precision_name"),
        (pl.col("stack") + " " + pl.col("release")).alias("stack_release"),
        pl.when(pl.col("ran_here") > 0).then(pl.lit("ran")).otherwise(pl.lit("")).alias("mark"),
    )
    base = alt.Chart().encode(
        x=alt.X("hardware_name:N", sort=list(hardware.values()), title=None, axis=alt.Axis(labelAngle=-45)),
        y=alt.Y("precision_name:N", sort=list(precisions.values()), title=None),
    )
    boxes = base.mark_rect(stroke="white").encode(
        color=alt.Color(
            "status:N",
            title="Status",
            scale=alt.Scale(domain=list(STATUS_COLOURS), range=list(STATUS_COLOURS.values())),
        ),
        tooltip=["stack_release:N", "hardware_name:N", "precision_name:N", "status:N", "reason:N", "source:N"],
    )
    marks = base.mark_text(fontSize=9).encode(text="mark:N")
    return (
        alt.layer(boxes, marks, data=alt.Data(values=cells.to_dicts()))
        .properties(width=220, height=150)
        .facet(facet=alt.Facet("stack_release:N", title=None), columns=2)
    )
