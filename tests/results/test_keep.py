"""Checkpoints: kept of VALID runs only, only the one that run.json names, versioned and never with the evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

import results.keep
from recipes.checkpoints import place_of, set_aside
from recipes.runs import MANIFEST, RunFolder
from results.keep import keep


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunFolder(tmp_path / "runs", "nemo", "llama3_8b-cpu-bf16", "20260101T000000Z-0000-r1", {}) as folder:
        saved = folder.path / "nemo/checkpoints/step=3"
        saved.mkdir(parents=True)
        (saved / "weights").write_bytes(b"w" * 100)
        folder.record["checkpoint"] = set_aside(folder.path / "nemo/checkpoints", folder.path)
        folder.finish("completed")
    return folder.path


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What DVC was asked to add; writes a pointer as DVC would (test_publish runs the real one)."""
    asked: list[str] = []

    def dvc(*arguments: str) -> None:
        asked.append(arguments[-1])
        Path(arguments[-1] + ".dvc").write_text(yaml.safe_dump({"outs": [{"md5": "0", "nfiles": 2}]}))

    monkeypatch.setattr(results.keep, "dvc", dvc)
    return asked


def test_the_checkpoint_of_a_valid_run_is_versioned_once(run: Path, tmp_path: Path, added: list[str]) -> None:
    kept = tmp_path / "kept"
    for _ in range(2):
        (folder,), refused = keep(tmp_path / "runs", {str(run): "VALID"}, kept)
        assert not refused
        assert (folder / "step=3/weights").read_bytes() == b"w" * 100
    assert added == [str(kept / "nemo/llama3_8b-cpu-bf16/20260101T000000Z-0000-r1")]
    assert not list(kept.rglob("*.partial"))


@pytest.mark.parametrize("verdict", ["DIVERGED", "INCOMPLETE", "INCONSISTENT", None])
def test_no_checkpoint_is_kept_of_a_run_that_is_not_valid(run: Path, tmp_path: Path, verdict: str | None) -> None:
    done, (line,) = keep(tmp_path / "runs", {str(run): verdict} if verdict else {}, tmp_path / "kept")
    assert not done
    assert (verdict or "not judged") in line
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("tampered", ["weights", MANIFEST, "gone", "more"])
def test_a_checkpoint_that_run_json_does_not_name_is_refused(run: Path, tmp_path: Path, tampered: str) -> None:
    place = place_of(run)
    if tampered == "weights":
        (place / "step=3/weights").write_bytes(b"v" * 100)
    elif tampered == MANIFEST:
        (place / MANIFEST).write_text("")
    elif tampered == "gone":
        (place / "step=3/weights").unlink()
    else:
        (place / "step=3/extra").write_bytes(b"x")
    done, refused = keep(tmp_path / "runs", {str(run): "VALID"}, tmp_path / "kept")
    assert not done
    assert len(refused) == 1


def test_a_run_without_a_checkpoint_is_no_fault(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "runs", "nemo", "llama3_8b-cpu-bf16", "20260101T000000Z-0001-r1", {}) as folder:
        folder.finish("completed")
    assert keep(tmp_path / "runs", {str(folder.path): "VALID"}, tmp_path / "kept") == ([], [])
    assert json.loads((folder.path / "run.json").read_text()).get("checkpoint") is None
