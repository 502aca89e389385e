"""What tests with a real Slurm share: the cluster itself, and the working tree as a clean checkout."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.one_machine import slurm
from tests.conftest import CHECKOUT


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which a running Slurm's commands are found."""
    with slurm(tmp_path_factory.mktemp("slurm") / "root") as environment:
        yield environment | {"HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="package")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working tree as a clean checkout: a job runs what is committed."""
    copy = tmp_path_factory.mktemp("checkout") / "fewbits"
    names = subprocess.check_output(["git", "ls-files", "recipes", "envs"], cwd=CHECKOUT, text=True).splitlines()
    for name in names:
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, copy / name)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t"]):
        subprocess.run(["git", *command], cwd=copy, check=True)
    return copy
