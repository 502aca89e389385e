"""Exhibits from invented runs: numbers where runs are valid, reasons where they are not, the same bytes every time."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.claims import PREDICATES
from analysis.exhibits import (
    claims,
    excluded_runs,
    fp8_speedup,
    gemm_throughput,
    layer_speedup,
    memory,
    nvfp4_speedup,
    step_breakdown,
    window_sensitivity,
)
from analysis.exhibits.exhibit import write
from recipes.runs import MANIFEST, METRICS, manifest_text
from tests.make_run import make_run

PUBLISHED = Path("results/published/published.csv")
SPEED = {"bf16": 1.0, "fp8_delayed": 0.62, "fp8_current": 0.65, "fp8_block": 0.8}


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    for precision, scale in SPEED.items():
        for repeat in (1, 2, 3):
            make_run(root, precision, repeat=repeat, scale=scale * (1 + 0.001 * repeat))
    return root


def cell(frame: pl.DataFrame, precision: str, model: str = "llama3_8b") -> dict[str, object]:
    rows = frame.filter(pl.col("model") == model, pl.col("precision") == precision, pl.col("label") != "published")
    rows = (
        rows
        if rows.height
        else frame.filter(pl.col("model") == model, pl.col("precision") == precision, pl.col("label").is_null())
    )
    return rows.row(0, named=True)


def test_speedups_are_ratios_of_the_runs(raw: Path) -> None:
    frame = layer_speedup.build(raw, PUBLISHED).table
    for precision, scale in SPEED.items():
        row = cell(frame, precision)
        assert row["label"] == "measured"
        assert row["n"] == 36
        assert row["repeats"] == 3
        if precision != "bf16":
            assert row["speedup"] == pytest.approx(1 / scale, rel=1e-3)
            assert row["differences"] is None
            assert str(row["source"]).count("bf16") == 3


def test_missing_results_are_shown_as_missing(raw: Path) -> None:
    frame = layer_speedup.build(raw, PUBLISHED).table
    row = cell(frame, "bf16", "llama31_405b")
    assert row["speedup"] is None
    assert row["layer_time_ms"] is None
    assert row["reason"] == "no published run of bf16"


def test_a_deleted_raw_file_empties_its_cell_only(raw: Path) -> None:
    for path in raw.glob("te_layers/layers-llama3_8b-fp8_current/*"):
        (path / METRICS).unlink()
    frame = layer_speedup.build(raw, PUBLISHED).table
    row = cell(frame, "fp8_current")
    assert row["speedup"] is None
    assert "INCOMPLETE: metrics.jsonl is in MANIFEST.sha256 but not in the folder" in str(row["reason"])
    assert cell(frame, "fp8_delayed")["speedup"] is not None
    excluded = excluded_runs.build(raw, PUBLISHED).table
    assert excluded.height == 3
    assert set(excluded["verdict"]) == {"INCOMPLETE"}


def test_one_lost_repeat_costs_its_partner_only(raw: Path) -> None:
    shutil.rmtree(next(raw.glob("te_layers/layers-llama3_8b-fp8_current/*r2")))
    row = cell(layer_speedup.build(raw, PUBLISHED).table, "fp8_current")
    assert row["repeats"] == 2
    assert str(row["source"]).count("bf16") == 2


def test_runs_of_other_sessions_are_not_paired(raw: Path) -> None:
    shutil.rmtree(raw / "te_layers" / "layers-llama3_8b-bf16")
    make_run(raw, "bf16", session="elsewhere")
    row = cell(layer_speedup.build(raw, PUBLISHED).table, "fp8_current")
    assert row["speedup"] is None
    assert "no VALID BF16 run of the same session" in str(row["reason"])


def test_what_differs_in_a_pair_is_printed(raw: Path) -> None:
    def other_driver(record: dict[str, dict[str, object]]) -> None:
        record["hardware"] = {**record["hardware"], "driver": "999"}

    shutil.rmtree(raw / "te_layers" / "layers-llama3_8b-fp8_current")
    make_run(raw, "fp8_current", scale=0.65, change=other_driver)
    row = cell(layer_speedup.build(raw, PUBLISHED).table, "fp8_current")
    assert row["differences"] == "hardware.driver: '580' vs '999'"


def test_two_gpus_and_two_kinds_are_never_pooled(raw: Path) -> None:
    """A second GPU's runs, and emulated ones, get cells of their own; each is paired within itself."""

    def on(name: str, kind: str) -> Any:
        def change(record: dict[str, Any]) -> None:
            record["hardware"] = {**record["hardware"], "gpu_name": name, "gpu_uuid": name}
            record["kind"] = kind

        return change

    for precision, scale in (("bf16", 2.0), ("fp8_block", 1.0)):
        make_run(raw, precision, session="h100", scale=scale, change=on("NVIDIA H100 80GB HBM3", "measured"))
    make_run(raw, "fp8_block", session="b200", scale=0.1, change=on("NVIDIA B200", "emulated"))
    frame = layer_speedup.build(raw, PUBLISHED).table
    rows = frame.filter(pl.col("model") == "llama3_8b", pl.col("precision") == "fp8_block", pl.col("n").is_not_null())
    found = {row["hardware"]: row for row in rows.iter_rows(named=True)}
    assert set(found) == {"NVIDIA B200", "NVIDIA H100 80GB HBM3", "NVIDIA H200"}
    assert found["NVIDIA H200"]["speedup"] == pytest.approx(1 / 0.8, rel=1e-3)
    assert found["NVIDIA H100 80GB HBM3"]["speedup"] == pytest.approx(2.0, rel=1e-3)
    assert found["NVIDIA B200"]["label"] == "emulated"
    assert found["NVIDIA B200"]["speedup"] is None
    assert all("|" not in row["hardware"] for row in found.values())


def test_an_unrecorded_peak_is_empty_not_zero(raw: Path) -> None:
    path = make_run(raw, "bf16", model="llama3_70b", scale=4.0)
    lines = [line for line in (path / METRICS).read_text().splitlines() if '"memory"' not in line]
    (path / METRICS).write_text("\n".join(lines) + "\n")
    (path / MANIFEST).write_text(manifest_text(path))
    row = cell(layer_speedup.build(raw, PUBLISHED).table, "bf16", "llama3_70b")
    assert row["layer_time_ms"] is not None
    assert row["peak_memory_gib"] is None


def test_quantization_only_costs(tmp_path: Path) -> None:
    for precision in ("bf16", "fp8_current"):
        make_run(tmp_path, precision, kind="gemms", scale=1.0 if precision == "bf16" else 0.5)
    frame = gemm_throughput.build(tmp_path, PUBLISHED).table.filter(
        pl.col("precision") == "fp8_current", pl.col("model") == "llama3_8b"
    )
    by_part = {row["part"]: row for row in frame.iter_rows(named=True)}
    assert by_part["GEMM only"]["speedup"] == pytest.approx(2.0)
    assert by_part["GEMM only"]["tflops_per_gpu"] == pytest.approx(1400)
    assert by_part["with quantization"]["speedup"] < 2.0
    assert by_part["GEMM only"]["share_of_dense_peak"] == pytest.approx(1400 / 1979, rel=1e-3)


def test_published_and_measured_are_never_mixed(raw: Path) -> None:
    frame = layer_speedup.build(raw, PUBLISHED).table
    published = frame.filter(pl.col("label") == "published")
    assert published.height == 3
    assert set(published["scope"]) == {"end to end"}
    assert all(source.startswith("P0") for source in published["source"])
    assert published["speedup_low"].null_count() == published.height


def test_the_same_input_gives_the_same_bytes(raw: Path, tmp_path: Path) -> None:
    written = [write(layer_speedup.build(raw, PUBLISHED), tmp_path / run) for run in ("a", "b")]
    assert len(written[0]) == 3
    for first, second in zip(*written, strict=True):
        assert first.read_bytes() == second.read_bytes()
    ElementTree.fromstring(written[0][1].read_text())
    document = json.loads(written[0][2].read_text())
    assert "Measured" in document["caption"]
    assert "n = " in document["caption"]
    assert "href" not in written[0][1].read_text()


def test_without_any_run_every_exhibit_still_builds(tmp_path: Path) -> None:
    for module in (
        fp8_speedup,
        step_breakdown,
        memory,
        window_sensitivity,
        layer_speedup,
        gemm_throughput,
        excluded_runs,
    ):
        write(module.build(tmp_path / "none", PUBLISHED), tmp_path)
    write(nvfp4_speedup.build(tmp_path / "none", PUBLISHED), tmp_path)
    verdicts = {row["claim"]: row["verdict"] for row in claims.build(tmp_path).table.iter_rows(named=True)}
    # what publications say of each other needs no run
    assert verdicts.pop("nvfp4_over_fp8_with_maxtext") == "corrected"
    assert set(verdicts.values()) == {"needs hardware"}


def table_of(**speedups: tuple[float, float, float]) -> pl.DataFrame:
    rows = [
        {"model": key.split("__")[0], "precision": key.split("__")[1], "label": "measured", "hardware": "NVIDIA H200",
         "part": "GEMM only", "speedup": value, "speedup_low": low, "speedup_high": high, "source": "run"}
        for key, (low, value, high) in speedups.items()
    ]  # fmt: skip
    published = [("llama3_8b", 1.3, "P0001"), ("llama3_70b", 1.43, "P0002"), ("llama31_405b", 1.53, "P0003")]
    if len(speedups) == 1:  # the GEMM exhibit's table holds the blog's "up to"
        published = [("GEMM only", 2.0, "P0007")]
    rows += [
        {"model": model, "precision": "fp8_current", "label": "published", "hardware": "H100", "part": "GEMM only",
         "speedup": value, "speedup_low": None, "speedup_high": None, "source": source}
        for model, value, source in published
    ]  # fmt: skip
    return pl.DataFrame(rows)


GROWING = {
    "llama3_8b__fp8_current": (1.38, 1.39, 1.40),
    "llama3_70b__fp8_current": (1.55, 1.56, 1.57),
    "llama31_405b__fp8_current": (1.64, 1.65, 1.66),
}


@pytest.mark.parametrize(
    ("claim", "speedups", "verdict"),
    [
        ("gemm_up_to_2x", {"llama3_8b__fp8_current": (1.9, 1.93, 1.96)}, "consistent"),
        ("gemm_up_to_2x", {"llama3_8b__fp8_current": (1.5, 1.6, 1.7)}, "not reproduced"),
        ("gemm_up_to_2x", {"llama3_8b__fp8_block": (1.9, 1.93, 1.96)}, "needs hardware"),
        (
            "block_scaling_slower_than_per_tensor",
            GROWING | {"llama3_8b__fp8_delayed": (1.4, 1.43, 1.45), "llama3_8b__fp8_block": (1.2, 1.25, 1.3)},
            "reproduced",
        ),
        (
            "block_scaling_slower_than_per_tensor",
            GROWING | {"llama3_8b__fp8_delayed": (1.4, 1.43, 1.45), "llama3_8b__fp8_block": (1.2, 1.35, 1.39)},
            "not reproduced",
        ),
    ],
)
def test_verdicts_are_computed(claim: str, speedups: dict[str, tuple[float, float, float]], verdict: str) -> None:
    assert PREDICATES[claim](table_of(**speedups)).verdict == verdict


WHOLE = {
    "llama3_8b__fp8_current": (1.22, 1.23, 1.24),
    "llama3_70b__fp8_current": (1.32, 1.33, 1.34),
    "llama31_405b__fp8_current": (1.40, 1.41, 1.42),
}


@pytest.mark.parametrize(
    ("steps", "layers", "verdict"),
    [
        ({}, {}, "consistent"),
        ({}, {"llama31_405b__fp8_current": (1.5, 1.57, 1.6)}, "not reproduced"),  # layers do not grow for certain
        ({}, {"llama3_8b__fp8_current": (1.1, 1.1, 1.2)}, "not reproduced"),  # layers below what is published
        ({"llama3_70b__fp8_current": (1.23, 1.26, 1.3)}, {}, "not reproduced"),  # steps do not grow for certain
        ({"llama31_405b__fp8_current": (1.36, 1.37, 1.38)}, {}, "not reproduced"),  # steps more than 10 % below
        ({"llama31_405b__fp8_current": None}, {}, "needs hardware"),
        ({}, {"llama3_70b__fp8_current": None}, "needs hardware"),
    ],
)
def test_the_gain_is_judged_by_steps_and_by_layers(steps: dict[str, Any], layers: dict[str, Any], verdict: str) -> None:
    def frame(whole: dict[str, Any], changes: dict[str, Any]) -> pl.DataFrame:
        return table_of(**{key: value for key, value in (whole | changes).items() if value})

    scaled = frame(WHOLE, steps).with_columns(experiment=pl.col("model") + "-h200-fp8_current-scaled")
    unscaled = frame({"llama3_8b__fp8_current": (1.9, 2.0, 2.1)}, {}).filter(pl.col("label") == "measured")
    both = pl.concat([unscaled.with_columns(experiment=pl.lit("llama3_8b-h200-fp8_current")), scaled])
    # as that exhibit calls its GPUs
    both = both.with_columns(pl.col("hardware").str.replace("NVIDIA ", ""))
    found = PREDICATES["fp8_current_gain_grows_with_size"](both, frame(GROWING, layers))
    assert found.verdict == verdict
    assert "2.00x" not in found.finding
