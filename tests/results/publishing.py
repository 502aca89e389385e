"""DVC, publishing and what was published, as tests of publishing call them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.conftest import CHECKOUT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(CHECKOUT), "DVC_NO_ANALYTICS": "1"}
PUBLISH = [sys.executable, "-m", "results.publish", "--runs"]


def sh(where: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=where, env=ENVIRONMENT, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def dvc(where: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return sh(where, sys.executable, "-m", "dvc", *arguments, check=check)


def publish(where: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return sh(where, *PUBLISH, "runs", check=check)


def pointers(root: Path) -> dict[str, int]:
    return {
        path.relative_to(root / "results" / "raw").as_posix(): yaml.safe_load(path.read_text())["outs"][0]["nfiles"]
        for path in (root / "results" / "raw").rglob("*.dvc")
    }
