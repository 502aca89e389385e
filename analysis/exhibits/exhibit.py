"""What an exhibit is, and how it is written: <name>.csv, <name>.svg and <name>.json, whole or not at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from analysis.rounding import rounded
from recipes.catalog import load_models
from recipes.runs import to_json, write_atomically

# Colours of the precisions, the same in every chart (Okabe-Ito, safe for colour-blind readers).
PRECISION_COLOURS = {
    "bf16": "#555555",
    "fp8_delayed": "#0072B2",
    "fp8_current": "#56B4E9",
    "fp8_block": "#D55E00",
    "mxfp8": "#009E73",
    "nvfp4": "#CC79A7",
    "nvfp4_no_rht": "#E69F00",
}
# A font that the renderer brings along, so that a chart's layout does not depend on the machine.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"


@dataclass(frozen=True)
class Exhibit:
    """A finished exhibit. A row that holds a number has a `label`: published, measured, emulated, projected."""

    name: str
    title: str
    caption: str
    table: pl.DataFrame
    chart: alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart | alt.FacetChart


def published_models() -> list[str]:
    """Keys of the five models that the sources publish, by parameter count."""
    models = {key: model for key, model in load_models().items() if model.nominal_parameters}
    return sorted(models, key=lambda key: models[key].nominal_parameters or 0)


def table(rows: list[dict[str, Any]], schema: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """Rows as a table with fixed columns; numbers are rounded, empty text becomes an empty cell."""

    def plain(value: Any) -> Any:
        return rounded(value) if isinstance(value, float) else None if value == "" else value

    return pl.DataFrame([{key: plain(row.get(key)) for key in schema} for row in rows], schema=schema)


def sample_sizes(measured: pl.DataFrame) -> str:
    """For a caption: what stands behind each point of a table (columns n, repeats, physical_gpus)."""

    def span(column: str) -> str:
        low, high = measured[column].min(), measured[column].max()
        return f"{low!r}" if low == high else f"{low!r} to {high!r}"

    gpus = f"{span('physical_gpus')} physical GPUs" if measured["physical_gpus"].max() != 1 else "1 physical GPU"
    return f"n = {span('n')} iterations in {span('repeats')} interleaved repeats on {gpus} a point"


def write(exhibit: Exhibit, folder: Path) -> list[Path]:
    """Write the three files of an exhibit; returns their paths. The same exhibit gives the same bytes."""
    chart = exhibit.chart.configure(font=FONT).configure_view(stroke=None)
    spec = json.loads(chart.to_json(indent=None))
    svg = vl_convert.vegalite_to_svg(vl_spec=json.dumps(spec), allowed_base_urls=[])
    document = {"name": exhibit.name, "title": exhibit.title, "caption": exhibit.caption, "chart": spec}
    files = {"csv": exhibit.table.write_csv(), "svg": svg.rstrip("\n") + "\n", "json": to_json(document)}
    paths = []
    for suffix, text in files.items():
        path = folder / f"{exhibit.name}.{suffix}"
        write_atomically(path, text)
        paths.append(path)
    return paths
