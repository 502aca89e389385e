"""The repository that tests of publishing work in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT
from tests.results.publishing import dvc, sh


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git and DVC repository with the checkout's DVC configuration, at a path with a space."""
    root = tmp_path / "my repository"
    root.mkdir()
    sh(root, "git", "init", "-q")
    dvc(root, "init", "-q")
    shutil.copy(CHECKOUT / ".dvc" / "config", root / ".dvc" / "config")
    shutil.copy(CHECKOUT / ".dvcignore", root / ".dvcignore")
    return root
