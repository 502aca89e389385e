"""A real Slurm on this machine runs real NeMo on CPU: submitted, packed, trained on two ranks, sealed, judged."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from analysis.judge import judge
from analysis.logs import read_run
from recipes.runs import find_runs, is_complete
from tests.cluster.one_machine import missing
from tests.conftest import CHECKOUT

ENVIRONMENT = CHECKOUT / "build/envs/nemo/bin"
IMAGE = "nvcr.io/nvidia/nemo@sha256:00"  # the stand-in for pyxis starts none
EXPERIMENT = "llama3_8b-cpu-bf16-dp2"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"no Slurm here: {', '.join(missing())} missing"),
    pytest.mark.skipif(not (ENVIRONMENT / "python").exists(), reason="envs/nemo is not built here"),
]


@pytest.fixture
def nemo_cluster(cluster: dict[str, str]) -> dict[str, str]:
    """In the place of a container: python is NeMo's."""
    shim, *rest = cluster["PATH"].split(os.pathsep)
    return cluster | {"PATH": os.pathsep.join([shim, str(ENVIRONMENT), *rest])}


def submit(checkout: Path, home: Path, *options: str) -> list[str]:
    place = ["--account", "a", "--partition", "test", "--home", str(home), "--image", IMAGE, "--wait"]
    return [str(ENVIRONMENT / "python"), "-m", "recipes.nemo.submit", EXPERIMENT, *place, *options]


def test_a_job_leaves_a_valid_run(nemo_cluster: dict[str, str], checkout: Path, tmp_path: Path) -> None:
    session = tmp_path / "session.json"
    done = subprocess.run(
        submit(checkout, tmp_path / "home", "--session-file", str(session)),
        cwd=checkout,
        env=nemo_cluster,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (folder,) = find_runs(tmp_path / "home/runs")
    judged = judge(read_run(folder))
    assert judged.verdict == "VALID", judged.reasons
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=checkout, text=True).strip()
    assert judged.run.get("git", "commit") == commit
    assert judged.run.get("environment", "image") == IMAGE
    assert json.loads(session.read_text())["runs"] == [folder.relative_to(tmp_path / "home/runs").as_posix()]
    # nothing of the second rank is in the evidence, and its log is where the job keeps them
    assert len(judged.run.trained) == 4
    assert len(list((tmp_path / "home/ranks").glob("*/rank-1.log"))) == 1


def test_a_cancelled_job_is_an_interrupted_run(nemo_cluster: dict[str, str], checkout: Path, tmp_path: Path) -> None:
    home, session = tmp_path / "home", tmp_path / "session.json"
    command = submit(checkout, home, "--steps", "100000", "--session-file", str(session))
    process = subprocess.Popen(command, cwd=checkout, env=nemo_cluster, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and not any(
        len((folder / "metrics.jsonl").read_text().splitlines()) > 3 for folder in find_runs(home / "runs")
    ):
        time.sleep(1)
    subprocess.run(["scancel", "--user", subprocess.check_output(["id", "-un"], text=True).strip()], env=nemo_cluster)
    _, said = process.communicate(timeout=120)
    (folder,) = find_runs(home / "runs")
    assert process.returncode == 1, said[-2000:]
    assert not session.exists()
    assert is_complete(folder), said[-2000:]
    judged = judge(read_run(folder))
    assert judged.verdict == "INCOMPLETE", judged.reasons
    assert judged.run.get("outcome", "status") == "interrupted"
    assert judged.run.get("outcome", "exit_code") == 128 + 15
