"""Images are pinned by digests that were read somewhere: the lock, what resolves it, what refuses a tag."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import recipes.images
from containers.resolve import resolve
from recipes.catalog import CatalogError
from recipes.images import LOCK, PINNED, check_pinned, container_of, image_named, load_images, pinned
from recipes.nemo.experiment_file import load_experiments
from recipes.runs import RunError

DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the real lock that is the one in use."""
    copy = tmp_path / "images.lock.yaml"
    shutil.copy(LOCK, copy)
    monkeypatch.setattr(recipes.images, "LOCK", copy)
    load_images.cache_clear()
    yield copy
    load_images.cache_clear()


def skopeo(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A stand-in for skopeo, first on PATH; it keeps what it was asked."""
    program = folder / "bin/skopeo"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return folder / "asked"


def test_releases_name_images_of_the_lock() -> None:
    assert {release.image for release in load_experiments().releases.values()} <= set(load_images())
    assert "maxtext" in load_images()


def test_a_digest_is_written_and_nothing_else_changed(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = lock.read_text().splitlines()
    asked = skopeo(tmp_path, monkeypatch, f"echo {DIGEST}")
    assert resolve("maxtext", "maxtext-2026-11-30", lock) == DIGEST
    assert "docker://ghcr.io/nvidia/jax:maxtext-2026-11-30" in asked.read_text()
    image = load_images()["maxtext"]
    assert (image.tag, image.digest) == ("maxtext-2026-11-30", DIGEST)
    assert image.obtained.startswith("ghcr.io/nvidia/jax:maxtext-2026-11-30, read on 20")
    assert pinned("maxtext") == f"ghcr.io/nvidia/jax@{DIGEST}"
    changed = [line for line in lock.read_text().splitlines() if line not in before]
    assert [line.split(":")[0].strip() for line in changed] == ["tag", "digest", "obtained"]


@pytest.mark.parametrize(
    ("script", "hint"),
    [
        ("echo 'dial tcp: no such host' >&2; exit 1", "no digest from the registry: dial tcp: no such host"),
        ("echo latest", "no digest from the registry: latest"),
    ],
)
def test_what_is_no_digest_is_not_written(
    lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, hint: str
) -> None:
    before = lock.read_text()
    skopeo(tmp_path, monkeypatch, script)
    with pytest.raises(RunError, match=hint):
        resolve("nemo", lock=lock)
    assert lock.read_text() == before


def test_what_cannot_be_resolved_is_said(lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CatalogError, match="did you mean nemo"):
        resolve("nemmo", lock=lock)
    with pytest.raises(RunError, match="has no tag yet: say which with --tag"):
        resolve("maxtext", lock=lock)
    with pytest.raises(RunError, match="is no tag"):
        resolve("nemo", "25.04; rm -rf /", lock)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match="skopeo is not installed"):
        resolve("nemo", lock=lock)


def test_an_image_without_a_digest_is_not_taken() -> None:
    unresolved = [name for name, image in load_images().items() if not image.digest]
    for name in unresolved:
        with pytest.raises(RunError, match=f"fewbits images resolve {name}"):
            pinned(name)


def test_a_digest_says_where_it_was_read(lock: Path) -> None:
    lock.write_text(lock.read_text().replace('digest: ""', f'digest: "{DIGEST}"', 1))
    with pytest.raises(CatalogError, match="says where it was read"):
        load_images()


def test_a_tag_is_refused() -> None:
    check_pinned("/shared/nemo.sqsh")
    check_pinned(f"nvcr.io/nvidia/nemo@{DIGEST}")
    with pytest.raises(RunError, match="a tag can be moved"):
        check_pinned("nvcr.io/nvidia/nemo:25.04.00")


def test_what_snakemake_runs_in(lock: Path, tmp_path: Path) -> None:
    assert container_of("", "nemo") is None
    assert image_named(None) == ""
    with pytest.raises(RunError, match="is not resolved: run `fewbits images resolve nemo`"):
        container_of(PINNED, "nemo")
    for wrong, says in (("docker://nvcr.io/nvidia/nemo:25.04", "a tag can be moved"), ("/no/nemo.sif", "not there")):
        with pytest.raises(RunError, match=says):
            container_of(wrong, "nemo")
    assert container_of(str(tmp_path), "nemo") == str(tmp_path)
    lock.write_text(
        lock.read_text().replace('digest: ""\n    obtained: ""', f'digest: "{DIGEST}"\n    obtained: here', 1)
    )
    load_images.cache_clear()
    image = container_of(PINNED, "nemo")
    assert image == f"docker://nvcr.io/nvidia/nemo@{DIGEST}"
    assert image_named(image) == pinned("nemo")
