"""The published reference results against an earlier, independent look at the same layers on an H200."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from recipes.catalog.models import find_model


def test_layer_times_agree_with_an_earlier_look(shared: Path) -> None:
    earlier = json.loads((shared / "fixtures" / "h200-te-layers" / "te_layers_h200.json").read_text())
    frame = pl.read_csv("results/exhibits/layer_speedup.csv", infer_schema_length=None)
    assert len(earlier) == 12
    for row in earlier:
        model = find_model(row["model"].replace("llama31", "llama3.1"))
        found = frame.filter(
            pl.col("model") == model, pl.col("precision") == row["recipe"], pl.col("label") == "measured"
        )["layer_time_ms"]
        assert found.item() == pytest.approx(row["ms_per_layer"], rel=0.1), (model, row["recipe"])
