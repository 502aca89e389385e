"""The lint of published tables: known faults are found, consistent rows are left alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.lint import lint, ratio_checks, whole_samples
from analysis.published import PublishedRow, read_published
from recipes.catalog import flops_per_token, load_models
from recipes.catalog.models import Attention

PUBLISHED = Path("results/published/published.csv")
# What a hand-made look at the same tables found (Llama pre-training, Megatron-Bridge 26.04.01).
KNOWN = {"P0249", "P0251", "P0253", "P0257", "P0259"}


def row(number: int, kind: str, value: float, **changes: str) -> PublishedRow:
    fields = {
        "id": f"P{number:04d}", "source_id": "s", "claim_kind": kind, "framework": "f", "model": "llama3-8b",
        "hardware": "H100", "gpus": "8", "recipe": "bf16", "baseline": "", "value": value, "unit": kind,
        "verbatim": "yes", "source_url_or_repo_path": "somewhere", "notes": "seq 8192",
    }  # fmt: skip
    return PublishedRow.model_validate(fields | changes)


def pair(tokens: float, tflops: float, **changes: str) -> list[PublishedRow]:
    return [row(1, "tokens_per_s_gpu", tokens, **changes), row(2, "tflops_gpu", tflops, **changes)]


def test_the_known_faults_are_found_and_explained_by_rounding() -> None:
    found = {f.rows[0].id: f for f in lint(read_published(PUBLISHED)) if f.check == "ratio"}
    assert set(found) >= KNOWN
    assert all("samples/s" in found[key].explanation for key in KNOWN)


def test_false_alarms_are_few_and_counted() -> None:
    """Of all printed pairs, one besides the known ones: 405B of NeMo 25.02, which counts one percent more FLOPs."""
    rows = read_published(PUBLISHED)
    checks = list(ratio_checks(rows))
    assert len(checks) > 100
    assert {c.tokens.id for c in checks if not c.consistent} - KNOWN == {"P0093"}


@pytest.mark.parametrize("convention", ["causal", "full"])
def test_both_conventions_are_accepted(convention: Attention) -> None:
    work = flops_per_token(load_models()["llama3_8b"], 8192, convention) / 1e12
    (check,) = ratio_checks(pair(14000, 14000 * work))
    assert check.convention == convention
    assert check.deviation == pytest.approx(0, abs=1e-9)
    assert lint(pair(14000, 14000 * work)) == []


def test_a_wrong_ratio_is_named() -> None:
    (finding,) = lint(pair(14000, 900))
    assert finding.check == "ratio"
    assert finding.explanation == ""
    assert "+" in finding.detail


def test_rows_that_say_too_little_are_left_alone() -> None:
    assert lint(pair(14000, 900, model="some 9B")) == []
    assert lint(pair(14000, 900, notes="")) == []
    assert lint(pair(14000, 900, verbatim="no")) == []


def test_whole_samples() -> None:
    assert whole_samples(row(1, "tokens_per_s_gpu", 1664, gpus="64")) == 13
    assert whole_samples(row(1, "tokens_per_s_gpu", 1665, gpus="64")) is None
    assert whole_samples(row(1, "tflops_gpu", 1664, gpus="64")) is None


def test_repeated_values_of_one_model() -> None:
    twins = [row(1, "tokens_per_s_gpu", 12345), row(2, "tokens_per_s_gpu", 12345, recipe="fp8_delayed_scaling")]
    (finding,) = lint(twins)
    assert finding.check == "repeated"
    others = [twins[0], row(2, "tokens_per_s_gpu", 12345, model="llama3-70b"), row(3, "tokens_per_s_gpu", 123)]
    assert lint(others) == []


@pytest.mark.parametrize(("printed", "faults"), [(1.35, 0), (1.34, 1), (1.4, 1)])
def test_a_printed_speedup_must_be_the_ratio(printed: float, faults: int) -> None:
    rows = [
        row(1, "tflops_gpu", 1497, recipe="fp8_delayed_scaling", notes=""),
        row(2, "tflops_gpu", 2017, recipe="nvfp4", notes=""),
        row(3, "speedup", printed, recipe="nvfp4", baseline="fp8_delayed_scaling", notes=""),
    ]
    assert len(lint(rows)) == faults


def test_the_command_says_what_it_found() -> None:
    command = [sys.executable, "-m", "fewbits", "lint-published", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert {finding["rows"][0] for finding in json.loads(done.stdout)} >= KNOWN
