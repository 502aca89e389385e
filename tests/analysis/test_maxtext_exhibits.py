"""MaxText's runs in the exhibits: pairs beside NeMo's, and precision and loss of every step."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from analysis.exhibits import fp8_speedup, maxtext_numerics
from analysis.judge import judge
from analysis.logs import read_run
from recipes.runs import MANIFEST, manifest_text
from tests.make_maxtext_run import make_maxtext_run

PUBLISHED = Path("results/published/published.csv")
BASE = "llama3_8b-h200-te_no_quant"


def measured(root: Path) -> pl.DataFrame:
    return fp8_speedup.build(root, PUBLISHED).table.filter(pl.col("label") == "measured")


def test_a_pair_stands_beside_nemos(tmp_path: Path) -> None:
    make_maxtext_run(tmp_path, BASE)
    for name, time_s in (("fp8_current", 0.6), ("fp8_flax", 0.65)):
        make_maxtext_run(tmp_path, f"llama3_8b-h200-{name}", step_time_s=time_s)
    rows = {row["experiment"]: row for row in measured(tmp_path).to_dicts()}
    assert rows["llama3_8b-h200-fp8_current"]["speedup"] == pytest.approx(0.8 / 0.6, rel=1e-3)
    assert "Flax's FP8 over Transformer Engine's BF16" in rows["llama3_8b-h200-fp8_flax"]["variant"]
    assert all(row["like_for_like"] and "MaxText 0.2.5" in row["variant"] for row in rows.values())


def test_what_is_emulated_has_no_speed(tmp_path: Path) -> None:
    make_maxtext_run(tmp_path, f"{BASE}-emulated")
    for name in ("mxfp8", "fp8_current"):
        make_maxtext_run(tmp_path, f"llama3_8b-h200-{name}-emulated")
    table = fp8_speedup.build(tmp_path, PUBLISHED).table
    assert not table.filter(pl.col("label").is_in(["measured", "emulated"])).height
    assert not table.filter(pl.col("experiment").is_not_null()).height


def test_a_small_loss_of_three_decimals_is_no_contradiction(tmp_path: Path) -> None:
    """0.146757 is printed as 0.147: more than a thousandth of it away."""
    folder = make_maxtext_run(tmp_path, BASE, loss=0.146757)
    assert judge(read_run(folder)).valid
    log = folder / "log.txt"
    log.write_text(log.read_text().replace("loss: 0.147", "loss: 0.148"))
    codes = {reason.code for reason in judge(read_run(folder)).reasons}
    assert "log_disagrees" in codes


def test_losses_are_set_over_a_baseline_with_the_same_data(tmp_path: Path) -> None:
    make_maxtext_run(tmp_path, f"{BASE}-emulated", loss=10.0)
    types = {"narrow_types": {"e4m3": 9, "e8m0": 4}}
    make_maxtext_run(tmp_path, "llama3_8b-h200-mxfp8-emulated", loss=10.1, facts=types)
    make_maxtext_run(tmp_path, "llama3_8b-h200-fp8_delayed", loss=10.2)
    make_maxtext_run(tmp_path, "llama3_8b-h200-nvfp4-emulated", data="another stream")
    rows = {row["experiment"]: row for row in maxtext_numerics.build(tmp_path, PUBLISHED).table.to_dicts()}
    own = rows["llama3_8b-h200-mxfp8-emulated"]
    assert (own["label"], own["proved"], own["lines_e4m3"], own["lines_e8m0"]) == ("emulated", "mxfp8", 9, 4)
    last = sum(0.99**step for step in range(20, 30)) / 10
    assert own["loss_last"] == pytest.approx(10.1 * last, rel=1e-4)
    assert own["over_baseline"] == pytest.approx(0.1 * last, rel=1e-3)
    # no baseline of its own, or one that saw other data: no difference
    assert rows["llama3_8b-h200-fp8_delayed"]["over_baseline"] is None
    assert BASE in rows["llama3_8b-h200-fp8_delayed"]["reason"]
    assert rows["llama3_8b-h200-nvfp4-emulated"]["over_baseline"] is None


def test_a_run_that_is_not_valid_has_its_reason_and_no_number(tmp_path: Path) -> None:
    make_maxtext_run(tmp_path, "llama3_8b-h200-nvfp4-emulated", effective_precision="nvfp4_no_rht")
    (row,) = maxtext_numerics.build(tmp_path, PUBLISHED).table.to_dicts()
    assert row["label"] is None
    assert row["loss_last"] is None
    assert row["reason"].startswith("INCONSISTENT")


def test_without_runs_the_exhibit_says_so(tmp_path: Path) -> None:
    exhibit = maxtext_numerics.build(tmp_path, PUBLISHED)
    assert exhibit.table.height == 0
    assert exhibit.caption == "No valid run."


def test_a_run_that_says_it_failed_is_kept_and_a_spoiled_one_is_a_fault(tmp_path: Path) -> None:
    """`fewbits verify --all` tells the two apart."""
    stopped = {"status": "interrupted", "reason": "stopped by signal 15", "exit_code": 143}
    folder = make_maxtext_run(tmp_path, BASE)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "outcome": stopped}))
    (folder / MANIFEST).write_text(manifest_text(folder))
    judged = judge(read_run(folder))
    assert (judged.verdict, judged.says_itself) == ("INCOMPLETE", True)
    (folder / "log.txt").write_text("nothing happened\n")
    assert not judge(read_run(folder)).says_itself
