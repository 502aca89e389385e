"""GPUs are lent to one launcher at a time, and only as many as it needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recipes.gpus import VISIBLE, lent_gpus
from recipes.runs import RunError


def test_launchers_side_by_side_get_different_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "0,1,2,3")
    with lent_gpus(1, tmp_path):
        assert os.environ[VISIBLE] == "0"
        os.environ[VISIBLE] = "0,1,2,3"  # as another process sees it
        with lent_gpus(2, tmp_path):
            assert os.environ[VISIBLE] == "1,2"
            os.environ[VISIBLE] = "0,1,2,3"
            with pytest.raises(RunError, match="2 of 4 GPUs are needed, 1 are free"), lent_gpus(2, tmp_path):
                pass
    assert os.environ[VISIBLE] == "0,1,2,3"
    with lent_gpus(3, tmp_path):
        assert os.environ[VISIBLE] == "0,1,2"


@pytest.mark.parametrize("visible", ["", "2", "GPU-a,GPU-b"])
def test_where_no_more_are_visible_nothing_is_changed(
    visible: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, visible)
    with lent_gpus(2, tmp_path):
        assert os.environ[VISIBLE] == visible
    assert not list(tmp_path.iterdir())


def test_without_a_driver_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with lent_gpus(1, tmp_path):
        assert VISIBLE not in os.environ
