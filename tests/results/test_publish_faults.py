"""What goes wrong while publishing: nothing is lost or half published, and the message says what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recipes.runs import MANIFEST, METRICS, manifest_faults
from recipes.te_layers.experiments import all_experiments
from results import publish as publishing
from results.pointers import incomplete
from results.publish import Refused, alone, copy_run, copy_whole
from tests.make_run import make_run
from tests.results.publishing import ENVIRONMENT, PUBLISH, dvc, pointers, publish, sh

pytestmark = pytest.mark.workflow


def whole(root: Path, runs: int) -> None:
    """Every published folder is intact and complete, and there are as many runs as there should be."""
    found = [path.parent for path in (root / "results/raw").rglob(MANIFEST)]
    assert len(found) == runs
    assert not [fault for folder in found for fault in manifest_faults(folder)]
    assert not list((root / "results/raw").rglob("*.partial"))
    assert not [path for path in (root / "results/raw").rglob("*.dvc") if incomplete(path)]
    assert dvc(root, "status", "-q", check=False).returncode == 0
    assert dvc(root, "status", "-q", "-c", "-r", "reference", check=False).returncode == 0, "all is in the remote"


def test_a_full_disk_is_said_and_publishing_again_completes(repository: Path) -> None:
    """A real one: a file system of 2 MB, of this test's own."""
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a small file system (unshare --map-root-user --mount)")
    for precision in ("bf16", "fp8_current", "fp8_delayed"):
        folder = make_run(repository / "runs", precision)
        (folder / "more.bin").write_bytes(os.urandom(2**20))
        lines = (folder / MANIFEST).read_text()
        digest = subprocess.run(["sha256sum", "more.bin"], cwd=folder, capture_output=True, text=True, check=True)
        (folder / MANIFEST).write_text(lines + digest.stdout)
    script = """
        mkdir -p results/raw && mount -t tmpfs -o size=2m tmpfs results/raw
        "$@" runs; echo "code $?"
        find results/raw -name '*.partial' -o -name '*.dvc'
        mount -o remount,size=64m results/raw
        "$@" runs; echo "code $?"
        cp -r results/raw kept
    """
    done = sh(repository, "unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *PUBLISH)
    first, *left, said, second = done.stdout.splitlines()
    assert (first, left) == ("code 2", [])
    assert (said, second) == ("published 3 experiments from runs", "code 0")
    (line,) = done.stderr.splitlines()
    assert "No space left on device; nothing is lost or half published; publish again" in line
    shutil.rmtree(repository / "results/raw")
    (repository / "kept").rename(repository / "results/raw")
    whole(repository, runs=3)


def test_a_cache_that_cannot_be_written_is_said(repository: Path) -> None:
    make_run(repository / "runs", "bf16")
    (repository / ".dvc/cache").write_text("a file, so that no folder can be made here")
    done = publish(repository, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("publish: dvc add failed: ")
    assert "nothing is lost or half published; publish again" in line
    (repository / ".dvc/cache").unlink()
    publish(repository)
    whole(repository, runs=1)


@pytest.mark.parametrize("after_s", [0.5, 1.4])
def test_a_killed_publication_is_completed_by_the_next(repository: Path, after_s: float) -> None:
    for precision in ("bf16", "fp8_current"):
        make_run(repository / "runs", precision)
    publication = subprocess.Popen(
        [*PUBLISH, "runs"], cwd=repository, env=ENVIRONMENT, start_new_session=True, stderr=subprocess.DEVNULL
    )
    time.sleep(after_s)
    os.killpg(publication.pid, signal.SIGKILL)
    publication.wait()
    publish(repository)
    whole(repository, runs=2)


def test_a_remote_that_goes_away_is_said_and_caught_up_with(repository: Path) -> None:
    make_run(repository / "runs", "bf16")
    (repository / "results").mkdir()
    (repository / "results/reference").write_text("not mounted")
    done = publish(repository, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("publish: dvc push failed: ")
    assert "remote reference lacks them: publish again when it can be reached" in line
    assert list(pointers(repository))
    (repository / "results/reference").unlink()
    publish(repository)
    whole(repository, runs=1)


def test_a_run_that_changes_under_the_copy_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(repository / "runs", "bf16")
    copied = publishing._copy

    def changing(source: str, target: str) -> None:
        (folder / METRICS).write_text("still written to\n")
        copied(source, target)

    monkeypatch.setattr(publishing, "_copy", changing)
    with pytest.raises(Refused, match=r"metrics\.jsonl is not what was recorded"):
        copy_run(folder, repository / "results/raw")
    assert not [path for path in (repository / "results/raw").rglob("*") if path.is_file()]


def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", "bf16")
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/te_layers").write_text("a file")
    with pytest.raises(Exception, match=r"Not a directory; nothing is lost or half published"):
        copy_whole(folder, tmp_path / "raw" / Path(*folder.parts[-3:]))


def folders_of_runs(repository: Path, count: int) -> list[Path]:
    """Each with a run of an experiment of its own, and one of an experiment that all share."""
    places = [repository / f"runs{number}" for number in range(count)]
    own = [one for one in all_experiments() if one.kind == "layers" and one.precision != "bf16"]
    for number, place in enumerate(places):
        make_run(place, "bf16", session=f"s{number}")
        make_run(place, own[number].precision, model=own[number].model)
    return places


@pytest.mark.parametrize("count", [3, pytest.param(16, marks=pytest.mark.slow)])
def test_many_at_once(repository: Path, count: int) -> None:
    started = [
        subprocess.Popen([*PUBLISH, place.name], cwd=repository, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        for place in folders_of_runs(repository, count)
    ]
    said = [one.communicate()[1] for one in started]
    assert [one.returncode for one in started] == [0] * count, said
    assert pointers(repository)["te_layers/layers-llama3_8b-bf16.dvc"] == count * 5
    whole(repository, runs=2 * count)


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "tmp/publish.lock"
    code = (
        "import time; from pathlib import Path; from results.publish import alone\n"
        f"with alone(Path({str(lock)!r})):\n print(1, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "1\n"
    waiting = subprocess.Popen(
        [sys.executable, "-c", code.replace("time.sleep(60)", "pass")],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "publish: waiting for another one in this repository\n"
    assert waiting.poll() is None
    holder.kill()
    assert waiting.communicate(timeout=20)[0] == "1\n"
    with alone(lock):
        pass
