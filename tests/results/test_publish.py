"""Publishing: whole or not at all, nothing lost, in a small repository of its own with a real DVC."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recipes.runs import METRICS, RunFolder
from tests.make_run import make_run
from tests.results.publishing import dvc, pointers, publish, sh

pytestmark = pytest.mark.workflow


def test_published_runs_come_back_on_a_clone_and_grow(repository: Path, tmp_path: Path) -> None:
    make_run(repository / "runs", "bf16")
    RunFolder(repository / "runs", "te_layers", "layers-llama3_8b-bf16", "killed", {})
    publish(repository)
    name = "te_layers/layers-llama3_8b-bf16.dvc"
    assert pointers(repository) == {name: 5}
    sh(repository, "git", "add", "-A")
    sh(repository, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x")

    clone = tmp_path / "clone"
    sh(tmp_path, "git", "clone", "-q", str(repository), str(clone))
    assert not (clone / "results/raw/te_layers/layers-llama3_8b-bf16").exists()
    # a new run on the clone, where the earlier ones were never pulled: they must not be lost
    make_run(clone / "runs", "bf16", session="s2")
    publish(clone)
    assert pointers(clone) == {name: 10}
    assert len(list((clone / "results/raw/te_layers/layers-llama3_8b-bf16").iterdir())) == 2
    publish(clone)
    assert pointers(clone) == {name: 10}


def test_a_changed_run_is_refused_and_the_others_are_published(repository: Path) -> None:
    good, bad = make_run(repository / "runs", "bf16"), make_run(repository / "runs", "fp8_current")
    (bad / METRICS).write_text("edited\n")
    done = publish(repository, check=False)
    assert done.returncode == 1
    assert "metrics.jsonl is not what was recorded" in done.stderr
    assert list(pointers(repository)) == [f"te_layers/{good.parent.name}.dvc"]
    assert not list((repository / "results" / "raw").rglob(f"{bad.parent.name}/*"))


def test_a_published_run_is_never_replaced(repository: Path) -> None:
    make_run(repository / "runs", "bf16")
    publish(repository)
    shutil.rmtree(repository / "runs")
    make_run(repository / "runs", "bf16", scale=0.5)
    done = publish(repository, check=False)
    assert done.returncode == 1
    assert "holds a different run of this name" in done.stderr
    assert dvc(repository, "status", "-q", check=False).returncode == 0


def test_a_killed_copy_is_made_again(repository: Path) -> None:
    path = make_run(repository / "runs", "bf16")
    partial = repository / "results/raw/te_layers" / f".{path.parent.name}.{path.name}.partial"
    partial.mkdir(parents=True)
    (partial / "run.json").write_text("half")
    publish(repository)
    assert pointers(repository) == {f"te_layers/{path.parent.name}.dvc": 5}
    assert not partial.exists()


def test_runs_lost_here_are_fetched_before_anything_is_added(repository: Path) -> None:
    """Adding to an experiment that has lost a run here must not lose it from what is published."""
    lost = make_run(repository / "runs", "bf16")
    publish(repository)
    shutil.rmtree(repository / "runs")
    shutil.rmtree(repository / "results/raw/te_layers" / lost.parent.name / lost.name)
    make_run(repository / "runs", "bf16", session="s2")
    publish(repository)
    assert pointers(repository) == {f"te_layers/{lost.parent.name}.dvc": 10}


def test_runs_lost_everywhere_stop_the_publishing(repository: Path) -> None:
    lost = make_run(repository / "runs", "bf16")
    publish(repository)
    before = pointers(repository)
    for folder in ("runs", "results/reference", ".dvc/cache", f"results/raw/te_layers/{lost.parent.name}"):
        shutil.rmtree(repository / folder)
    make_run(repository / "runs", "bf16", session="s2")
    done = publish(repository, check=False)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert pointers(repository) == before


def test_nothing_to_publish(repository: Path) -> None:
    done = publish(repository)
    assert "published 0 experiments" in done.stdout
