"""What rules ask before they run: GPUs that are lent, stacks that this machine can train."""

from __future__ import annotations

import platform

import pytest
from snakemake.exceptions import WorkflowError

import recipes.workflow
from recipes.workflow import cpu_tier, interpreter, require_gpus


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


@pytest.mark.usefixtures("linux")
def test_without_its_python_maxtext_is_left_out_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recipes.workflow, "interpreter", lambda version: ("", f"Python {version} was not found"))
    assert cpu_tier({"cpu_tier": ["nemo", "maxtext"]}) == ["nemo"]
    assert capsys.readouterr().err == "cpu_tier: maxtext is left out: Python 3.12 was not found\n"
    assert cpu_tier({"cpu_tier": ["nemo"]}) == ["nemo"]
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("linux")
def test_with_it_both_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes.workflow, "interpreter", lambda version: ("/a/python", ""))
    assert cpu_tier({"cpu_tier": ["nemo", "maxtext"]}) == ["nemo", "maxtext"]


def test_on_another_machine_nothing_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert cpu_tier({"cpu_tier": ["nemo", "maxtext"]}) == []


def test_a_python_that_is_not_there_is_asked_for_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", "/nowhere")
    found, why = interpreter("3.99")
    assert found == ""
    assert why.startswith("Python 3.99 was not found (PATH, pyenv, uv)")
    assert "\n" not in why


@pytest.mark.parametrize(
    ("gpus", "needed", "said"),
    [
        (0, 1, "needs 1 NVIDIA GPU: add `--workflow-profile profiles/gpu` on a GPU host"),
        (1, 4, "needs 4 NVIDIA GPUs: add `--workflow-profile profiles/gpu --config gpus=4 --resources gpu=4`"),
    ],
)
def test_rules_stop_where_too_few_gpus_are_lent(gpus: int, needed: int, said: str) -> None:
    with pytest.raises(WorkflowError, match=said):
        require_gpus({"gpus": gpus}, "nemo", lambda wildcards: needed)(None)
    assert require_gpus({"gpus": needed}, "nemo", needed)(None) == []
