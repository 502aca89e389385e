"""Peaks by precision, and what other tools' averaging windows make of one pair of runs."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from analysis.exhibits import memory, window_sensitivity
from analysis.windows import WINDOWS
from tests.make_nemo_run import make_nemo_run

PUBLISHED = Path("results/published/published.csv")
BF16, FP8 = "llama3_8b-h200-bf16-scaled", "llama3_8b-h200-fp8_current-scaled"


def test_every_window_of_one_pair_is_shown(tmp_path: Path) -> None:
    """The made runs' first two steps take twice as long in both: means that hold them report another speedup or not."""
    make_nemo_run(tmp_path, BF16, step_time_s=1.5)
    make_nemo_run(tmp_path, FP8, step_time_s=1.2)
    frame = window_sensitivity.build(tmp_path, PUBLISHED).table
    assert frame.height == len(WINDOWS) * len(window_sensitivity.LENGTHS)
    rows = {(row["log_steps"], row["window"]): row for row in frame.iter_rows(named=True)}
    default = rows[100, WINDOWS[0].name]
    assert default["speedup"] == pytest.approx(1.25, rel=1e-3)
    assert default["off_default_percent"] == 0
    assert rows[50, "steps 11-44, mean"]["steps_averaged"] == 34
    # a log of 50 steps has no step 90: shown as missing, with the reason
    assert rows[50, "step 90"]["speedup"] is None
    assert "ends at step 49" in rows[50, "step 90"]["reason"]
    assert rows[20, "all steps, mean"]["step_time_s"] == pytest.approx(1.2 * 22 / 20, rel=1e-2)


def test_a_short_pair_shows_no_windows(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, "llama3_8b-h200-bf16")
    make_nemo_run(tmp_path, "llama3_8b-h200-fp8_current")
    exhibit = window_sensitivity.build(tmp_path, PUBLISHED)
    assert not exhibit.table.height
    assert exhibit.caption == "No valid pair of 50 steps."


def test_a_run_that_is_not_valid_shows_no_windows(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, BF16)
    make_nemo_run(tmp_path, FP8, effective_precision="bf16")
    assert not window_sensitivity.build(tmp_path, PUBLISHED).table.height
    rows = {row["experiment"]: row for row in memory.build(tmp_path, PUBLISHED).table.iter_rows(named=True)}
    assert rows[FP8]["peak_memory_gib"] is None
    assert rows[FP8]["reason"].startswith("INCONSISTENT")


def test_peaks_are_set_against_the_baseline(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, BF16)
    make_nemo_run(tmp_path, FP8)
    exhibit = memory.build(tmp_path, PUBLISHED)
    rows = {row["experiment"]: row for row in exhibit.table.iter_rows(named=True)}
    assert rows[FP8]["over_base_gib"] == pytest.approx(
        rows[FP8]["peak_memory_gib"] - rows[BF16]["peak_memory_gib"], abs=1e-3
    )
    assert rows[BF16]["over_base_gib"] is None
    assert rows[FP8]["bytes_per_parameter"] == pytest.approx(
        rows[FP8]["peak_memory_gib"] * 2**30 / rows[FP8]["parameters"], rel=1e-3
    )
    assert exhibit.table.filter(pl.col("label") != "measured").height == 0
