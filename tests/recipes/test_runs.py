"""The run folder: sealed last, whole or not at all, and honest about how a run ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.runs import (
    MANIFEST,
    METRICS,
    RUN_JSON,
    RunError,
    RunFolder,
    find_runs,
    is_complete,
    manifest_faults,
    write_atomically,
)
from tests.make_run import make_run


def test_a_sealed_run_is_intact(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    assert is_complete(path)
    assert manifest_faults(path) == []
    assert find_runs(tmp_path) == [path]
    record = json.loads((path / RUN_JSON).read_text())
    assert record["outcome"]["status"] == "completed"
    assert record["start"] < record["end"]


def test_an_exception_is_recorded_and_sealed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "te_layers", "e", "r", {})
    with pytest.raises(ZeroDivisionError), folder:
        raise ZeroDivisionError("one over none\nsecond line")
    record = json.loads((folder.path / RUN_JSON).read_text())
    assert record["outcome"] == {"status": "failed", "reason": "ZeroDivisionError: one over none", "exit_code": 1}
    assert manifest_faults(folder.path) == []


def test_a_killed_run_has_no_manifest(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from recipes.runs import RunFolder\n"
        "with RunFolder(Path(sys.argv[1]), 's', 'e', 'r', {}) as folder:\n"
        "    folder.log('started'); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    (path,) = find_runs(tmp_path)
    assert not is_complete(path)
    assert [code for code, _ in manifest_faults(path)] == ["manifest_missing"]


def test_a_run_never_writes_into_another(tmp_path: Path) -> None:
    make_run(tmp_path)
    with pytest.raises(RunError, match="exists already"):
        make_run(tmp_path)


@pytest.mark.parametrize("name", ["../up", "a/b", "", "a b", "-rf", ".hidden", "a;b", "a\n"])
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="only letters"):
        RunFolder(tmp_path, "te_layers", name, "r", {})


def test_not_a_number_is_kept_as_text(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "s", "e", "r", {}) as folder:
        folder.metric(record="x", a=float("nan"), b=float("inf"), c=-float("inf"), d=1.5)
    assert json.loads((folder.path / METRICS).read_text()) == {
        "record": "x", "a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda path: (path / METRICS).unlink(), "file_missing"),
        (lambda path: (path / METRICS).write_bytes(b"x" + (path / METRICS).read_bytes()[1:]), "file_changed"),
        (lambda path: (path / "extra.txt").write_text("x"), "file_not_in_manifest"),
        (lambda path: (path / MANIFEST).write_text("nonsense\n"), "manifest_unreadable"),
        (lambda path: (path / MANIFEST).write_text(f"{'0' * 64}  ../../../etc/passwd\n"), "manifest_unreadable"),
        (lambda path: (path / MANIFEST).write_bytes(b"\xff\xfe"), "manifest_unreadable"),
    ],
)
def test_damage_is_named(tmp_path: Path, damage: object, code: str) -> None:
    path = make_run(tmp_path)
    damage(path)  # type: ignore[operator]
    assert code in [found for found, _ in manifest_faults(path)]


def test_write_atomically_leaves_the_old_file_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
