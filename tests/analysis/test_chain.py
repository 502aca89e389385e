"""The chain of evidence: up from a cell to its sources, down from the pointers to every file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from analysis.chain import RAW, choose_row, pointer_faults, read_exhibit, sources
from fewbits import app
from recipes.catalog import CatalogError
from recipes.runs import MANIFEST, METRICS, manifest_text
from tests.make_nemo_run import make_nemo_run
from tests.make_run import make_run

FRAME = pl.DataFrame({"model": ["a", "a", "b"], "precision": ["x", "y", "x"], "speedup": [1.0, 2.0, 3.0]})


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, Path]:
    """One published experiment as DVC leaves it: (raw root, store)."""
    raw, store = tmp_path / "raw", tmp_path / "store"
    experiment = make_run(raw).parent
    entries = [
        {"md5": md5(path.read_bytes()), "relpath": path.relative_to(experiment).as_posix()}
        for path in sorted(experiment.rglob("*"))
        if path.is_file()
    ]
    listing = json.dumps(entries).encode()
    name = md5(listing) + ".dir"
    (store / name[:2]).mkdir(parents=True)
    (store / name[:2] / name[2:]).write_bytes(listing)
    experiment.with_name(experiment.name + ".dvc").write_text(f"outs:\n- md5: {name}\n  path: {experiment.name}\n")
    return raw, store


def run_of(raw: Path) -> Path:
    return next(raw.glob("*/*/*/run.json")).parent


def test_intact(published: tuple[Path, Path]) -> None:
    raw, store = published
    assert pointer_faults(raw, (store,)) == []


def both_changed(path: Path) -> None:
    """The tampering that no manifest can show: a number and the manifest changed together."""
    (path / METRICS).write_text((path / METRICS).read_text().replace("0.0909", "0.0709"))
    (path / MANIFEST).write_text(manifest_text(path))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (both_changed, "metrics.jsonl: not what was published"),
        (lambda path: (path / METRICS).unlink(), "metrics.jsonl: published, but not here"),
        (lambda path: (path / "new.txt").write_text("x"), "new.txt: not published"),
        (lambda path: path.parent.with_name(path.parent.name + ".dvc").unlink(), "no pointer: never published"),
        (lambda path: path.parent.with_name(path.parent.name + ".dvc").write_text("outs: 7"), "in no store"),
    ],
)
def test_every_change_is_named(published: tuple[Path, Path], damage: Any, says: str) -> None:
    raw, store = published
    damage(run_of(raw))
    assert any(says in fault for fault in pointer_faults(raw, (store,)))


def test_a_changed_list_is_not_believed(published: tuple[Path, Path]) -> None:
    raw, store = published
    (path,) = [path for path in store.rglob("*") if path.is_file()]
    path.write_text(path.read_text().replace("metrics.jsonl", "metrics.json1"))
    assert len(pointer_faults(raw, (store,))) == 1


def test_rows_are_chosen_by_number_or_value() -> None:
    assert choose_row(FRAME, "2")["speedup"] == 2.0
    assert choose_row(FRAME, "model=b")["speedup"] == 3.0
    assert choose_row(FRAME, "model=a,precision=x")["row"] == 1


@pytest.mark.parametrize(
    ("row", "says"), [("model=a", r"2 rows fit \(1, 2\)"), ("9", "no row fits, of 3"), ("maker=x", "columns: model")]
)
def test_a_row_that_is_none_is_explained(row: str, says: str) -> None:
    with pytest.raises(CatalogError, match=says):
        choose_row(FRAME, row)


def test_unknown_exhibit() -> None:
    with pytest.raises(CatalogError, match=r"did you mean layer_speedup\?"):
        read_exhibit("layer_speedups")


def test_a_ratio_of_two_published_rates_names_both() -> None:
    links = sources({"source": "P0011 P0010 a place"})
    assert [link.head.split()[1] for link in links] == ["P0011", "P0010"]


def test_every_lock_of_a_run_is_named(tmp_path: Path) -> None:
    environment = {"lock_sha256": ["a" * 64, "b" * 64], "variables": {}}
    folder = make_nemo_run(tmp_path, "llama3_8b-cpu-bf16", environment=environment)
    (link,) = sources({"source": "/".join(folder.parts[-3:])}, raw=tmp_path)
    assert f"lock sha256 {'a' * 12} + {'b' * 12}, pointer" in link.lines[0]
    inside = make_nemo_run(
        tmp_path, "llama3_70b-cpu-bf16", environment={"lock_sha256": [], "variables": {}, "image": "an/image:tag"}
    )
    (link,) = sources({"source": "/".join(inside.parts[-3:])}, raw=tmp_path)
    assert "image an/image:tag" in link.lines[0]
    assert "lock" not in link.lines[0]


@pytest.mark.parametrize("name", [path.stem for path in sorted(Path("results/exhibits").glob("*.csv"))])
def test_listed_rows_can_be_told_apart(name: str) -> None:
    """`fewbits explain EXHIBIT` lists rows to choose from: no two lines that say the same, where rows hold numbers."""
    lines = CliRunner().invoke(app, ["explain", name]).output.splitlines()
    said = [line.split(maxsplit=1)[1] for line in lines if " measured" in line or " published" in line]
    assert len(said) == len(set(said))


def test_sources_of_each_kind_of_cell(tmp_path: Path) -> None:
    path = make_run(tmp_path, "fp8_current")
    (measured,) = sources({"source": "/".join(path.parts[-3:])}, raw=tmp_path)
    assert ": VALID" in measured.head
    assert "manifest sha256" in measured.lines[0]
    (printed,) = sources({"source": "P0001 https://example.org"})
    assert printed.head.startswith("published: P0001 fp8_current_scaling 1.3 x")
    (empty,) = sources({"source": None, "reason": "no published run"})
    assert empty.head == "no number here: no published run"
    (gone,) = sources({"source": "te_layers/layers-x/none"}, raw=tmp_path)
    assert "dvc pull" in gone.head


def test_commands_on_the_published_results() -> None:
    if not any(RAW.glob("*/*/*/run.json")):
        pytest.skip("raw results are not here: `dvc pull` fetches them from results/reference")
    runner = CliRunner()
    done = runner.invoke(app, ["verify", "--all"])
    assert done.exit_code == 0, done.output
    assert "0 files or pointers that do not fit" in done.output
    row = "model=llama31_405b,precision=fp8_current,scope=layer"
    explained = runner.invoke(app, ["explain", "layer_speedup", row, "speedup"])
    assert explained.exit_code == 0, explained.output
    assert explained.output.count("VALID") >= 6
    assert len(explained.output.splitlines()) <= 40


def test_a_number_from_someone_elses_log_names_repository_commit_and_hash() -> None:
    frame = read_exhibit("mlperf_precision").with_row_index("row", offset=1)
    row = frame.filter(frame["verdict"] == "VALID").row(0, named=True)
    (link,) = sources(row)
    assert link.head == f"published: {row['source']}" and row["source"].startswith("mlcommons/training_results_v")
    assert any(row["sha256"] in line and "mlperf_logs" in line for line in link.lines)


def test_a_number_from_a_file_of_ours_names_its_hash() -> None:
    row = read_exhibit("log_faults").with_row_index("row", offset=1).row(0, named=True)
    (link,) = sources(row)
    assert link.head == "measured: results/published/log_faults.csv" and "sha256" in link.lines[-1]
