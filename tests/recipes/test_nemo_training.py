"""Real NeMo on CPU: a killed run that goes on from its checkpoint, FP8 that is refused, a stopped run that is sealed.

Slow, and only where envs/nemo is built (`snakemake nemo_cpu` builds it).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from analysis.judge import judge
from analysis.logs import read_run
from recipes.checkpoints import place_of
from tests.conftest import CHECKOUT

PYTHON = CHECKOUT / "build/envs/nemo/bin/python"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="envs/nemo is not built here (`snakemake nemo_cpu` builds it)"),
]
LAUNCH = [str(PYTHON), "-m", "recipes.nemo.launch", "llama3_8b-cpu-bf16"]


def start(runs: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    return subprocess.Popen([*LAUNCH, "--runs", str(runs), *arguments], cwd=CHECKOUT, env=environment)


def folder(runs: Path) -> Path:
    (found,) = runs.glob("nemo/*/*")
    return found


def losses(runs: Path) -> dict[int, float]:
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in (folder(runs) / "metrics.jsonl").read_text().splitlines()
    ]
    return {row["step"]: row["loss"] for row in rows}


def wait_for(runs: Path, steps: int) -> None:
    for _ in range(1200):
        found = list(runs.glob("nemo/*/*/metrics.jsonl"))
        if found and found[0].read_text().count("\n") >= steps:
            return
        time.sleep(0.1)
    raise AssertionError("the run did not get that far in two minutes")


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    killed = start(tmp_path / "killed", "--steps", "40", "--checkpoint-every", "10")
    wait_for(tmp_path / "killed", 25)
    (worker,) = subprocess.run(
        ["pgrep", "-P", str(killed.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    os.kill(int(worker), signal.SIGKILL)
    assert killed.wait() == 128 + signal.SIGKILL
    interrupted = judge(read_run(folder(tmp_path / "killed")))
    assert interrupted.verdict == "INCOMPLETE"
    assert [reason.code for reason in interrupted.reasons] == ["run_unfinished"]

    checkpoint = place_of(folder(tmp_path / "killed")) / "step=19"
    assert start(tmp_path / "resumed", "--steps", "40", "--resume", str(checkpoint)).wait() == 0
    assert start(tmp_path / "straight", "--steps", "40").wait() == 0
    straight, resumed = losses(tmp_path / "straight"), losses(tmp_path / "resumed")
    assert sorted(straight) == list(range(40))
    assert sorted(resumed) == list(range(20, 40))
    assert resumed == {step: straight[step] for step in resumed}
    assert judge(read_run(folder(tmp_path / "resumed"))).valid
    assert not (folder(tmp_path / "straight") / "nemo").exists()


def test_a_stopped_run_is_sealed_and_keeps_its_exit_code(tmp_path: Path) -> None:
    stopped = start(tmp_path, "--steps", "400")
    wait_for(tmp_path, 5)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait() == 128 + signal.SIGTERM
    record = json.loads((folder(tmp_path) / "run.json").read_text())
    assert record["outcome"]["exit_code"] == 128 + signal.SIGTERM
    assert judge(read_run(folder(tmp_path))).verdict == "INCOMPLETE"
