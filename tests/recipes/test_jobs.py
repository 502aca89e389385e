"""Jobs in a queue that is told: waited for, and sent again only where Slurm ended them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recipes.jobs
from recipes.jobs import Sent, carry_through, doubled, seconds_of, state_of, wait
from recipes.runs import RunError, RunFolder

NAME = "llama3_8b-h100-bf16"


def squeue(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
    monkeypatch.setattr(recipes.jobs, "POLL_S", 0.0)


def run_folder(root: Path, number: int, status: str) -> Path:
    with RunFolder(root, "nemo", NAME, f"s{number}-r1", {}) as folder:
        folder.finish(status, None if status == "completed" else "stopped by signal 15")
    return folder.path


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("echo RUNNING", "RUNNING"),
        ("echo TIMEOUT", "TIMEOUT"),
        ("true", ""),
        ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", ""),
    ],
)
def test_slurm_is_asked_for_a_jobs_state(
    script: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squeue(tmp_path, script, monkeypatch)
    assert state_of("1") == state


def test_a_job_is_waited_for_until_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"echo x >> {tmp_path}/asked; n=$(wc -l < {tmp_path}/asked)\n"
    script += "case $n in 1) echo PENDING;; 2) echo RUNNING;; 3) echo COMPLETING;; *) echo COMPLETED;; esac"
    squeue(tmp_path, script, monkeypatch)
    folder = run_folder(tmp_path / "runs", 1, "completed")
    assert wait(NAME, Sent("7", folder, tmp_path), tmp_path / "session.json") == (0, "COMPLETED")
    assert (tmp_path / "asked").read_text().count("x") == 4
    assert json.loads((tmp_path / "session.json").read_text()) == {"session": "s1", "runs": [f"nemo/{NAME}/s1-r1"]}


def test_a_controller_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    squeue(tmp_path, f"echo x >> {tmp_path}/asked\necho 'no answer' >&2; exit 1", monkeypatch)
    with pytest.raises(RunError, match="no answer; the job itself goes on"):
        state_of("1")
    assert (tmp_path / "asked").read_text().count("x") == recipes.jobs.RETRIES


def test_a_job_without_a_sealed_run_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    squeue(tmp_path, "true", monkeypatch)
    folder = tmp_path / "runs/nemo" / NAME / "20260101T000000Z-0000-r1"
    assert wait(NAME, Sent("7", folder, tmp_path / "job"), None) == (1, "")
    assert "job 7 has left no complete run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("states", "resubmit", "limits", "code"),
    [
        (["COMPLETED"], 1, ["00:30:00"], 0),
        (["TIMEOUT", "COMPLETED"], 1, ["00:30:00", "01:00:00"], 0),
        (["TIMEOUT", "TIMEOUT"], 1, ["00:30:00", "01:00:00"], 1),
        (["TIMEOUT"], 0, ["00:30:00"], 1),
        (["NODE_FAIL", "TIMEOUT", "COMPLETED"], 2, ["00:30:00", "00:30:00", "01:00:00"], 0),
        # what ran has failed, or a person ended it: another try would cost the same again
        (["FAILED"], 3, ["00:30:00"], 1),
        (["CANCELLED"], 3, ["00:30:00"], 1),
        (["OUT_OF_MEMORY"], 3, ["00:30:00"], 1),
    ],
)
def test_only_what_slurm_ended_is_sent_again(
    states: list[str],
    resubmit: int,
    limits: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def send(limit: str) -> Sent:
        asked.append(limit)
        state = states[len(asked) - 1]
        squeue(tmp_path, f"echo {state}", monkeypatch)
        status = "completed" if state == "COMPLETED" else "interrupted"
        return Sent(str(len(asked)), run_folder(tmp_path / "runs", len(asked), status), tmp_path)

    assert carry_through(NAME, send, "00:30:00", resubmit, tmp_path / "session.json") == code
    assert asked == limits
    assert (tmp_path / "session.json").exists() == (code == 0)


def test_time_limits() -> None:
    assert [seconds_of(limit) for limit in ("00:30:00", "1-00:00:01")] == [1800, 86401]
    assert [doubled(limit) for limit in ("00:30:00", "00:45:30", "12:00:00", "1-12:00:00")] == [
        "01:00:00",
        "01:31:00",
        "1-00:00:00",
        "3-00:00:00",
    ]
    for wrong in ("30", "1:2", "soon", "00:30"):
        with pytest.raises(RunError, match="must be HH:MM:SS"):
            seconds_of(wrong)
