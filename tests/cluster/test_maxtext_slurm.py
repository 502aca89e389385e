"""A real Slurm on this machine runs real MaxText on CPU: two JAX processes that find each other by what Slurm says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.judge import judge
from analysis.logs import read_run
from recipes.runs import find_runs
from tests.cluster.one_machine import missing
from tests.conftest import CHECKOUT

ENVIRONMENT = CHECKOUT / "build/envs/maxtext/bin"
IMAGE = "jax@sha256:00"  # the stand-in for pyxis starts none
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"no Slurm here: {', '.join(missing())} missing"),
    pytest.mark.skipif(not (ENVIRONMENT / "python").exists(), reason="envs/maxtext is not built here"),
]


def submitted(cluster: dict[str, str], checkout: Path, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    shim, *rest = cluster["PATH"].split(os.pathsep)
    environment = cluster | {"PATH": os.pathsep.join([shim, str(ENVIRONMENT), *rest])}
    place = ["--account", "a", "--partition", "test", "--home", str(home), "--image", IMAGE, "--wait"]
    command = [sys.executable, "-m", "recipes.maxtext.submit", "llama3_8b-cpu-bf16-fsdp2", *place, *options]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=300)


def test_two_processes_train_one_sharded_model(cluster: dict[str, str], checkout: Path, tmp_path: Path) -> None:
    done = submitted(cluster, checkout, tmp_path / "home", "--steps", "20")
    assert done.returncode == 0, done.stderr[-2000:]
    (folder,) = find_runs(tmp_path / "home/runs")
    judged = judge(read_run(folder))
    assert judged.verdict == "VALID", judged.reasons
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=checkout, text=True).strip()
    assert judged.run.get("git", "commit") == commit
    assert judged.run.get("environment", "image") == IMAGE
    assert len(judged.run.trained) == 20
    assert judged.run.trained[-1].loss < judged.run.trained[0].loss
    assert len(list((tmp_path / "home/ranks").glob("*/rank-1.log"))) == 1
