"""The smoke image: what is refused, what goes in, and (slow) a real build that is the same twice and trains."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import containers.release
from containers.build import build, debian_packages, fill
from containers.engine import ENGINES, called
from containers.release import build_release
from containers.run import run_inside
from recipes.launching import CHECKOUT
from recipes.runs import RunError, git_state
from tests.workflow.test_workflow import copy_checkout


def program(folder: Path, name: str, script: str) -> None:
    """A stand-in for a program, in `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_the_context_holds_packages_and_nothing_of_this_machine(tmp_path: Path) -> None:
    site = tmp_path / "env/lib/python3.11/site-packages"
    (site / "one/__pycache__").mkdir(parents=True)
    (site / "one/__init__.py").write_text("")
    (site / "one/__pycache__/__init__.pyc").write_text("")
    (site / "one-1.0.dist-info").mkdir()
    (site / "one-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: one\nVersion: 1.0\n")
    (site / "one-1.0.dist-info/uv_build.json").write_text("{}")
    record = site / "one-1.0.dist-info/RECORD"
    record.write_text("one/__init__.py,sha256=a,0\n../../../bin/one,sha256=b,9\n")
    lock = tmp_path / "one.lock"
    lock.write_text(f"one==1.0 --hash=sha256:{'0' * 64}\n")
    assert fill(tmp_path / "context", tmp_path / "env", [lock]) == ["one==1.0"]
    copied = tmp_path / "context/site"
    files = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert files == {"one/__init__.py", "one-1.0.dist-info/METADATA", "one-1.0.dist-info/RECORD"}
    assert (copied / "one-1.0.dist-info/RECORD").read_text() == "one/__init__.py,sha256=a,0\n"
    assert "bin/one" in record.read_text(), "the environment itself is as it was"
    lock.write_text(f"one==1.1 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(RunError, match=r"not what the locks pin \(one==1\.1, 1 in all\)"):
        fill(tmp_path / "context", tmp_path / "env", [lock])
    with pytest.raises(RunError, match=r"no environment of Python 3\.11 there; make it: snakemake nemo_environment"):
        fill(tmp_path / "context", tmp_path, [lock])


def test_packages_are_read_from_the_root_file_system(tmp_path: Path) -> None:
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text("Package: b\nVersion: 2:1-1\nDescription: x\n more: y\n\nPackage: a\nVersion: 3\n\n")
    with tarfile.open(tmp_path / "rootfs.tar", "w") as tar:
        tar.add(status, "./var/lib/dpkg/status")
    assert debian_packages(tmp_path / "rootfs.tar") == ["a=3", "b=2:1-1"]


def test_another_image_than_the_described_one_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "podman", f'echo \'[{{"Digest": "sha256:{"0" * 64}"}}]\'')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(RunError, match="no image was built here; build it: fewbits images build"):
        run_inside(["true"], tmp_path)
    described = {"tag": "localhost/x:y", "image": f"localhost/x@sha256:{'1' * 64}", "engine": "podman"}
    (tmp_path / "smoke.json").write_text(json.dumps(described))
    with pytest.raises(RunError, match=r"not the image of .* any more; build it again"):
        run_inside(["true"], tmp_path)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The smoke image, built from nothing: the folder it was built in, and its record."""
    environment = CHECKOUT / "build/envs/nemo"
    if os.geteuid() or shutil.which("buildah") is None or shutil.which("mmdebstrap") is None:
        pytest.skip("building an image needs root, buildah and mmdebstrap")
    if not environment.is_dir():
        pytest.skip("NeMo's environment for CPU is not built: snakemake nemo_environment")
    work = CHECKOUT / "build" / tmp_path_factory.mktemp("smoke").name  # the image sees this checkout
    try:
        yield work, build(environment, work, ENGINES["buildah"])
    finally:
        shutil.rmtree(work)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["podman", "docker", "buildah"])  # the last is the one of the test that follows
def test_every_engine_builds_an_image_in_which_nemo_trains(smoke: tuple[Path, dict[str, Any]], name: str) -> None:
    work, first = smoke
    if not ENGINES[name].usable():
        pytest.skip(f"{name} does not work here")
    built = build(CHECKOUT / "build/envs/nemo", work, ENGINES[name])
    if name == "docker":
        assert "docker image ID sha256:" in built["image"]
    else:
        assert (built["image"], built["base"], built["packages"]) == (first["image"], first["base"], first["packages"])
    if run_inside(["true"], work):
        pytest.skip(f"{name} starts no container here")
    runs = work / f"runs-{name}"
    command = ["python3", "-m", "recipes.nemo.launch", "llama3_8b-cpu-bf16", "--runs", str(runs)]
    assert run_inside(command, work) == 0
    (record,) = runs.glob("nemo/*/*/run.json")
    assert json.loads(record.read_text())["environment"]["image"] == built["image"]
    assert run_inside(["sh", "-c", "exit 7"], work) == 7


@pytest.mark.slow
def test_a_release_is_built_on_a_base_that_holds_it(
    smoke: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's images cannot be had here; the smoke image holds NeMo 25.04, and neither 25.07 nor MaxText."""
    monkeypatch.setattr(containers.release, "git_state", lambda checkout: {**git_state(checkout), "dirty": False})
    base, engine = smoke[1]["image"], ENGINES["buildah"]
    first, second = (build_release("nemo", base, tmp_path, engine) for _ in range(2))
    assert first == second
    assert "nemo-toolkit==2.3.0" in first["packages"]
    for name, says in (("nemo-25.07", "nemo-toolkit 2.3.0 found, this is for 2.4"), ("maxtext", "not installed")):
        with pytest.raises(RunError, match=says):
            build_release(name, base, tmp_path, engine)


@pytest.mark.slow
def test_snakemakes_container_path_trains_in_it(smoke: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Through a stand-in for Apptainer, which this project has no way to install."""
    if shutil.which("bwrap") is None:
        pytest.skip("the stand-in for Apptainer needs bubblewrap")
    standin = (CHECKOUT / "tests/workflow/apptainer_standin.sh").read_text().removeprefix("#!/bin/sh\n")
    program(tmp_path / "bin", "apptainer", standin)
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    checkout = copy_checkout(tmp_path / "checkout")
    target = "build/sessions/nemo/llama3_8b-cpu-bf16.json"
    container = called(["buildah", "from", "--pull-never", smoke[1]["tag"]], "starting a container")
    try:
        image = called(["buildah", "mount", container], "mounting an image")
        command = ["snakemake", target, "--sdm", "apptainer", "--config", f"nemo={{container: {image}}}"]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        called(["buildah", "rm", container], "removing a container")
    (path,) = checkout.glob("runs/nemo/*/*/run.json")
    record = json.loads(path.read_text())
    assert record["environment"]["image"] == image
    assert record["outcome"]["status"] == "completed"
    assert re.fullmatch("[0-9a-f]{40}", record["git"]["commit"]), "told from outside: the image has no git"
