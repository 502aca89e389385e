"""Whole steps: pairs of NeMo runs, published figures beside them, what is missing; where a step's time goes."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from analysis.exhibits import fp8_speedup, step_breakdown
from analysis.logs.kernels import read_kernels
from recipes.nemo.experiments import experiment
from tests.make_nemo_run import KERNELS, KERNELS_BF16, make_nemo_run

PUBLISHED = Path("results/published/published.csv")
BF16, FP8 = "llama3_8b-h200-bf16", "llama3_8b-h200-fp8_current"


def measured(root: Path) -> pl.DataFrame:
    return fp8_speedup.build(root, PUBLISHED).table.filter(pl.col("label") == "measured")


def test_a_pair_of_one_gpu_and_one_software_is_like_for_like(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, BF16, step_time_s=6.9)
    make_nemo_run(tmp_path, FP8, step_time_s=5.4)
    (row,) = measured(tmp_path).to_dicts()
    assert row["speedup"] == pytest.approx(6.9 / 5.4, rel=1e-3)
    assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
    assert row["like_for_like"]
    assert "8 of 32 layers" in row["variant"]
    assert row["hardware"] == "H200"


def test_what_differs_is_said(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, BF16, step_time_s=6.9)
    make_nemo_run(tmp_path, FP8, step_time_s=5.4, versions={"nemo-toolkit": "2.3.1"})
    (row,) = measured(tmp_path).to_dicts()
    assert not row["like_for_like"]
    assert "versions" in row["differences"]


def test_a_later_baseline_elsewhere_changes_no_pair(tmp_path: Path) -> None:
    """BF16 was repeated on another GPU, FP8 was not: the pair stays the two that met."""
    make_nemo_run(tmp_path, BF16, step_time_s=6.9)
    make_nemo_run(tmp_path, FP8, step_time_s=5.4)
    elsewhere = {"gpus": 1, "gpu_name": "NVIDIA H200", "gpu_uuid": "GPU-1"}
    make_nemo_run(tmp_path, BF16, step_time_s=7.9, run_id="20260102T000000Z-0000-r1", hardware=elsewhere)
    (row,) = measured(tmp_path).to_dicts()
    assert row["speedup"] == pytest.approx(6.9 / 5.4, rel=1e-3)
    assert row["like_for_like"]


def test_without_a_baseline_there_is_no_speedup(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, FP8)
    (row,) = measured(tmp_path).to_dicts()
    assert row["speedup"] is None
    assert row["reason"] == f"no VALID run of the baseline {BF16} in the same setting"


def test_a_run_that_is_not_valid_becomes_no_number(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, BF16, step_time_s=6.9)
    make_nemo_run(tmp_path, FP8, effective_precision="bf16")
    table = fp8_speedup.build(tmp_path, PUBLISHED).table
    assert not table.filter(pl.col("label") == "measured").height
    row = table.filter(pl.col("reason").str.starts_with("INCONSISTENT")).to_dicts()[0]
    assert row["speedup"] is None


def test_runs_of_two_depths_under_one_name_are_not_put_together(tmp_path: Path) -> None:
    """As when experiments.yaml changes: older runs hold more layers, and say so."""
    make_nemo_run(tmp_path, BF16, step_time_s=9.0)
    make_nemo_run(tmp_path, FP8, step_time_s=7.0)
    which = experiment(FP8)
    fewer = which.dimensions.model_copy(update={"layers": 4})
    changed = which.model_copy(update={"dimensions": fewer, "cut": ("4 of 32 layers",)}).model_dump(mode="json")
    make_nemo_run(tmp_path, FP8, step_time_s=5.4, run_id="20260102T000000Z-0000-r1", configuration=changed)
    (row,) = measured(tmp_path).to_dicts()
    assert row["step_time_s"] == pytest.approx(5.4, rel=1e-2)
    assert "4 of 32 layers" in row["variant"]
    assert row["speedup"] is None
    assert row["reason"] == f"no VALID run of the baseline {BF16} in the same setting"


def test_cpu_runs_are_no_speed(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, "llama3_8b-cpu-bf16")
    assert not measured(tmp_path).height


def test_every_cell_has_a_number_or_says_what_it_needs() -> None:
    table = fp8_speedup.build(Path("nothing"), PUBLISHED).table
    assert table.filter(pl.col("speedup").is_null() & pl.col("reason").is_null()).height == 0
    cells = table.select("model", "hardware", "precision").unique()
    assert cells.filter(pl.col("hardware").is_in(fp8_speedup.HARDWARE)).height == 5 * 4 * 4


def test_parts_add_up_to_the_step(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, BF16, step_time_s=6.9, kernels=KERNELS_BF16)
    make_nemo_run(tmp_path, FP8, step_time_s=5.4, kernels=KERNELS)
    table = step_breakdown.build(tmp_path, PUBLISHED).table
    sums = dict(table.group_by("experiment").agg(pl.col("time_s").sum()).iter_rows())
    assert sums[BF16] == pytest.approx(6.9069, rel=1e-3)
    assert sums[FP8] == pytest.approx(5.4054, rel=1e-3)
    parts = {(row["experiment"], row["part"]): row for row in table.to_dicts()}
    head = "GEMM of the head (BF16)"
    assert parts[FP8, head]["time_s"] == parts[BF16, head]["time_s"] == 1.0
    assert parts[BF16, "GEMM of the layers"]["time_s"] == 4.0
    assert parts[FP8, "GEMM of the layers"]["saved_s"] == 2.0
    assert parts[FP8, "quantization"]["saved_s"] == -0.3
    assert parts[FP8, "optimizer"]["time_s"] == 0.02


def test_a_layer_left_in_bf16_does_not_become_the_head(tmp_path: Path) -> None:
    name = "llama3_8b-h200-fp8_current-first_last_bf16"
    make_nemo_run(tmp_path, BF16, step_time_s=6.9, kernels=KERNELS_BF16)
    make_nemo_run(tmp_path, FP8, step_time_s=5.4, kernels=KERNELS)
    make_nemo_run(tmp_path, name, step_time_s=5.8, kernels=KERNELS.replace("1000000.0", "1500000.0"))
    table = step_breakdown.build(tmp_path, PUBLISHED).table.filter(pl.col("experiment") == name)
    parts = dict(table.select("part", "time_s").iter_rows())
    assert parts["GEMM of the head (BF16)"] == 1.0
    assert parts["GEMM of the layers"] == 2.5


def test_without_profiles_there_is_no_breakdown(tmp_path: Path) -> None:
    make_nemo_run(tmp_path, FP8)
    assert step_breakdown.build(tmp_path, PUBLISHED).table.height == 0


@pytest.mark.parametrize("line", ["", "x,1,nan", "x,no,1", "x,0,1", "x,1", "x,1,-1"])
def test_a_kernel_table_that_does_not_fit_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "kernels.csv").write_text(f"name,calls,device_time_us\n{line}\n" if line else "a,b\n")
    with pytest.raises(ValueError, match=r"kernels\.csv"):
        read_kernels(tmp_path)
