"""Numbers derived from public MLPerf logs: sources are whole, files are held to their hashes, verdicts cost numbers."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest
import yaml

from analysis import mlperf
from analysis.exhibits import mlperf_precision
from analysis.mlperf import RUN_COLUMNS, SOURCES, Logs
from recipes.catalog.reading import read_yaml
from tests.write_logs import mllog, text

RUNS = list(csv.DictReader(Path("results/published/mlperf_runs.csv").read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two invented logs where the sources say they are; the second one stops early."""
    contents = {"a": text(mllog(64)), "b": text(mllog(64, seed=2)[:-6])}
    logs = []
    for name, content in contents.items():
        path = tmp_path / "logs" / "mlcommons/training_results_v5.1" / f"X/results/{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        logs.append(
            {
                "id": name,
                "repository": "mlcommons/training_results_v5.1",
                "path": f"X/results/{name}.txt",
                "commit": "0" * 40,
                "sha256": hashlib.sha256(content).hexdigest(),
                "hardware": "H100",
                "gpus": 8,
                "system_file": "X/systems/x.json",
                "precision": "fp8",
                "precision_from": "configuration",
                "evidence": "invented",
            }
        )
    (tmp_path / "sources.yaml").write_text(yaml.safe_dump({"logs": logs}))
    monkeypatch.setattr(mlperf, "SOURCES", tmp_path / "sources.yaml")
    return tmp_path


def run(place: Path, *more: str) -> int:
    return mlperf.main(["--logs", str(place / "logs"), "--out", str(place), *more])


def test_a_log_that_is_not_valid_gives_a_row_without_numbers(place: Path) -> None:
    assert run(place) == 0
    whole, cut = csv.DictReader((place / "mlperf_runs.csv").open(newline=""))
    assert whole["verdict"] == "VALID"
    assert float(whole["tokens_per_s_per_gpu"]) == pytest.approx(16 * 8192 / 8 / float(whole["step_time_s"]), rel=1e-4)
    assert cut["verdict"] == "INCOMPLETE" and "run_stop" in cut["reason"]
    assert not any(cut[name] for name in ("step_time_s", "tokens_per_s_per_gpu", "run_s", "last_eval_loss"))
    assert {row["id"] for row in csv.DictReader((place / "mlperf_evals.csv").open(newline=""))} == {"a"}
    assert run(place, "--check") == 0


def test_numbers_that_were_edited_are_found(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(place)
    path = place / "mlperf_runs.csv"
    path.write_text(path.read_text().replace("0.35", "0.25"))
    assert run(place, "--check") == 1
    assert "is not what the logs give" in capsys.readouterr().err


def test_another_file_under_the_name_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = place / "logs/mlcommons/training_results_v5.1/X/results/a.txt"
    path.write_bytes(path.read_bytes() + b"\n")
    assert run(place) == 2
    assert "has another hash" in capsys.readouterr().err


def test_a_missing_file_says_what_to_do(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "logs/mlcommons/training_results_v5.1/X/results/a.txt").unlink()
    assert run(place) == 2
    assert "add --fetch" in capsys.readouterr().err


def test_without_a_network_the_numbers_stay(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "logs/mlcommons/training_results_v5.1/X/results/a.txt").unlink()
    monkeypatch.setattr(mlperf, "RAW_HOST", "https://127.0.0.1:1")
    assert run(place, "--fetch") == 2
    assert "cannot be fetched" in capsys.readouterr().err


def test_every_committed_row_has_its_source() -> None:
    known = {log.id: log for log in read_yaml(SOURCES, Logs).logs}
    assert {row["id"] for row in RUNS} == set(known)
    for row in RUNS:
        log = known[row["id"]]
        assert (row["repository"], row["path"], row["commit"], row["sha256"]) == (
            log.repository,
            log.path,
            log.commit,
            log.sha256,
        )
        assert tuple(row) == RUN_COLUMNS
        assert bool(row["step_time_s"]) <= (row["verdict"] == "VALID")


def test_only_equal_batches_and_gpus_are_set_against_each_other() -> None:
    exhibit = mlperf_precision.build(Path("results/raw"), Path("results/published/published.csv"))
    compared = exhibit.table.filter(exhibit.table["compared_with"].is_not_null())
    by_id = {row["id"]: row for row in RUNS}
    assert compared.height
    for row in compared.iter_rows(named=True):
        base = by_id[row["compared_with"]]
        assert base["precision"].startswith("fp8") and row["precision"] == "nvfp4"
        assert (int(base["gpus"]), base["hardware"]) == (row["gpus"], row["hardware"])
        assert float(base["global_batch_samples"]) == row["global_batch_samples"]
        rate = row["tokens_per_s_per_gpu"] / float(base["tokens_per_s_per_gpu"])
        assert row["rate_over_fp8"] == pytest.approx(rate, rel=1e-3)
