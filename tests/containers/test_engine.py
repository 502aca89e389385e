"""Engines: which is taken, what is said when a build fails, and signals that reach what runs inside."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import containers.release
from containers.engine import ENGINES, pick
from containers.release import build_release
from recipes.images import load_images
from recipes.launching import CHECKOUT
from recipes.runs import RunError
from tests.containers.test_build import program

CONTAINERFILES = sorted((CHECKOUT / "containers").glob("*/Containerfile"))


def test_the_first_that_works_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"no docker daemon, no podman and no buildah here.*snakemake nemo_cpu"):
        pick()
    program(tmp_path, "docker", "exit 1")  # a client without a daemon
    program(tmp_path, "buildah", "")
    assert pick().name == "buildah"
    program(tmp_path, "podman", "")
    assert pick().name == "podman"
    assert pick("buildah").name == "buildah"
    with pytest.raises(RunError, match="docker does not work here"):
        pick("docker")
    with pytest.raises(RunError, match="must be one of docker, podman, buildah"):
        pick("kaniko")


def test_a_failed_check_inside_is_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo 'recipes.runs.RunError: nemo-toolkit 1.0 found' >&2; echo 'Error: exit status 1' >&2; exit 125"
    program(tmp_path, "podman", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(RunError, match=r"^building localhost/x:y: recipes\.runs\.RunError: nemo-toolkit 1\.0 found$"):
        ENGINES["podman"].build(tmp_path, tmp_path / "Containerfile", "localhost/x:y", {"BASE": "b"})


def test_what_runs_inside_is_sent_our_sigterm(tmp_path: Path) -> None:
    """A launcher inside seals its run as interrupted; killed with its engine it would leave it open."""
    program(tmp_path, "podman", "trap 'echo sealed; exit 143' TERM; echo started; while :; do sleep 0.1; done")
    code = (
        "import sys; from containers.engine import ENGINES, Inside;"
        " sys.exit(ENGINES['podman'].start('localhost/x:y', Inside(), ['true']))"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "started\n"
    time.sleep(0.2)
    started.send_signal(signal.SIGTERM)
    assert started.communicate(timeout=20)[0] == "sealed\n"
    assert started.returncode == 143


def test_a_base_without_a_digest_and_a_changed_checkout_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ENGINES["buildah"]
    for name in (name for name, image in load_images().items() if not image.digest):
        with pytest.raises(RunError, match=f"fewbits images resolve {name}"):
            build_release(name, "", tmp_path, engine)
    with pytest.raises(RunError, match="a tag can be moved"):
        build_release("nemo", "nvcr.io/nvidia/nemo:25.04", tmp_path, engine)
    base = f"localhost/x@sha256:{'0' * 64}"
    for state, says in (({"commit": "a", "dirty": True}, "uncommitted"), ({"commit": None, "dirty": None}, "no git")):
        monkeypatch.setattr(containers.release, "git_state", lambda checkout, state=state: state)
        with pytest.raises(RunError, match=says):
            build_release("nemo", base, tmp_path, engine)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.parent.name)
def test_containerfiles_take_their_base_by_argument(path: Path) -> None:
    steps = [line for line in path.read_text().splitlines() if re.match("[A-Z]+ ", line)]
    assert steps[:2] == ["ARG BASE", "FROM ${BASE}"]
    # nothing is fetched, and no feature that one of the engines lacks
    assert not [line for line in steps if re.search(r"http|apt|pip install|--mount|<<", line)]


def test_every_pinned_image_has_a_containerfile() -> None:
    assert {path.parent.name for path in CONTAINERFILES} == {*load_images(), "smoke"}
