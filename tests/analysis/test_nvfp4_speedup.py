"""Published NVFP4 over FP8: ratios from printed rates, beside the fastest FP8 of any source; the claim's verdict."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from analysis.claims import PREDICATES
from analysis.exhibits import nvfp4_speedup
from analysis.published import PublishedRow

COLUMNS = list(PublishedRow.model_fields)
BLOG = "nv_blog_nvfp4_maxtext"
REAL = Path("results/published/published.csv")


def write(path: Path, *rows: dict[str, Any]) -> Path:
    common = {
        "framework": "F",
        "gpus": "4",
        "baseline": "",
        "verbatim": "yes",
        "source_url_or_repo_path": "somewhere",
        "notes": "seq 8192",
        "claim_kind": "tflops_gpu",
        "unit": "TFLOP/s/GPU",
    }
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for number, row in enumerate(rows):
            writer.writerow({**common, "id": f"P{number:04}", **row})
    return path


def rate(source: str, model: str, recipe: str, value: float, **more: Any) -> dict[str, Any]:
    return {"source_id": source, "model": model, "hardware": "GB300", "recipe": recipe, "value": value, **more}


def speedup(model: str, value: float) -> dict[str, Any]:
    more = {"baseline": "fp8_delayed_scaling", "claim_kind": "speedup", "unit": "x"}
    return rate(BLOG, model, "nvfp4_mlp_only", value, **more)


PAIR = (rate(BLOG, "llama3-8b", "fp8_delayed_scaling", 1500), rate(BLOG, "llama3-8b", "nvfp4_mlp_only", 1950))


def built(path: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    table = nvfp4_speedup.build(Path(), path).table
    return {(row["model"], row["hardware"], row["source_id"]): row for row in table.iter_rows(named=True)}


def test_a_ratio_is_of_rates_that_one_source_prints(tmp_path: Path) -> None:
    row = built(write(tmp_path / "p.csv", *PAIR, speedup("llama3-8b", 1.3)))["llama3_8b", "GB300", BLOG]
    assert row["speedup"] == pytest.approx(1.3, rel=1e-3)
    assert row["speedup_printed"] == 1.3
    assert row["baseline_of_best_fp8"] == 1
    # 6 FLOPs a parameter and token and a little attention: 8.03 B parameters without the embedding table
    assert row["base_tokens_per_s_per_gpu"] == pytest.approx(1500e12 / (6 * 7.5e9 * 1.15), rel=0.05)
    assert row["label"] == "published"


def test_a_baseline_is_set_against_the_fastest_of_any_source(tmp_path: Path) -> None:
    other = rate(
        "other", "llama3-8b", "fp8_current_scaling", 40000, claim_kind="tokens_per_s_gpu", hardware="DGX-GB300"
    )
    rows = built(write(tmp_path / "p.csv", *PAIR, other))
    row = rows["llama3_8b", "GB300", BLOG]
    assert row["baseline_of_best_fp8"] == pytest.approx(row["base_tokens_per_s_per_gpu"] / 40000, rel=1e-3)
    assert row["speedup_over_best_fp8"] == pytest.approx(row["tokens_per_s_per_gpu"] / 40000, rel=1e-3)
    assert row["best_fp8"].startswith("other: fp8_current_scaling")
    assert ("llama3_8b", "GB300", "other") not in rows  # it prints no NVFP4


@pytest.mark.parametrize("notes", ["seq 2048", "no length said"])
def test_another_sequence_length_is_no_baseline(tmp_path: Path, notes: str) -> None:
    other = rate("other", "llama3-8b", "fp8_current_scaling", 99000, claim_kind="tokens_per_s_gpu", notes=notes)
    rows = built(write(tmp_path / "p.csv", *PAIR, other))
    assert rows["llama3_8b", "GB300", BLOG]["baseline_of_best_fp8"] == 1


def test_another_number_of_gpus_is_no_pair(tmp_path: Path) -> None:
    narrow, base = PAIR[1], PAIR[0] | {"gpus": "8"}
    rows = built(write(tmp_path / "p.csv", base, narrow))
    assert ("llama3_8b", "GB300", BLOG) not in rows


def test_other_gpus_are_never_mixed_and_what_is_missing_is_said(tmp_path: Path) -> None:
    slower_gpu = rate(
        "other", "llama3-8b", "fp8_current_scaling", 99000, claim_kind="tokens_per_s_gpu", hardware="GB200"
    )
    rows = built(write(tmp_path / "p.csv", *PAIR, slower_gpu))
    assert rows["llama3_8b", "GB300", BLOG]["baseline_of_best_fp8"] == 1
    lost = next(row for (model, hardware, _), row in rows.items() if (model, hardware) == ("llama3_8b", "GB200"))
    assert lost["speedup"] is None
    assert "on GB200" in lost["reason"]


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ((*PAIR, speedup("llama3-8b", 1.3)), "needs hardware"),
        ((*PAIR, speedup("llama3-8b", 1.4)), "not reproduced"),  # not what its rates give
        (
            (
                *PAIR,
                speedup("llama3-8b", 1.3),
                rate(BLOG, "llama3.1-405b", "fp8_delayed_scaling", 2000),
                rate(BLOG, "llama3.1-405b", "nvfp4_mlp_only", 3400),
                speedup("llama3.1-405b", 1.7),
            ),
            "corrected",  # the range is not 8B's
        ),
        (
            (
                *PAIR,
                speedup("llama3-8b", 1.3),
                rate("other", "llama3-8b", "fp8_current_scaling", 40000, claim_kind="tokens_per_s_gpu"),
            ),
            "corrected",  # a weak baseline
        ),
        ((), "needs hardware"),
    ],
)
def test_the_claim(tmp_path: Path, rows: tuple[dict[str, Any], ...], verdict: str) -> None:
    exhibit = nvfp4_speedup.build(Path(), write(tmp_path / "p.csv", *rows))
    assert PREDICATES["nvfp4_over_fp8_with_maxtext"](exhibit.table).verdict == verdict


def test_the_real_table_gives_back_what_the_blog_prints() -> None:
    rows = [row for row in built(REAL).values() if row["source_id"] == BLOG]
    assert len(rows) == 4
    for row in rows:
        assert row["speedup"] == pytest.approx(row["speedup_printed"], abs=0.0051)
