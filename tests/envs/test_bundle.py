"""Bundles: what goes in is the lock's, parts are reproducible, and unpacking cannot be led astray."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from envs.bundle import ENVS, BundleError, BundleSpec, chosen, make_bundle, stacks, write_parts
from envs.locks import LockError, read_lock
from recipes.catalog.reading import read_yaml

UNPACK = ENVS / "unpack.py"


def test_every_lock_is_pinned_with_hashes_and_names_no_registry() -> None:
    locks = sorted(ENVS.glob("*/*.lock"))
    assert {path.parent.name for path in locks} == {
        "core",
        "dev",
        "maxtext",
        "nemo",
        "maxtext_gpu",
        "nemo_25_07",
        "nemo_gpu",
        "te_layers",
    }
    for path in locks:
        assert len(read_lock(path)) > (10 if path.name == "requirements.lock" else 1)
        assert "://" not in path.read_text()


def test_a_lock_without_a_hash_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requirements.lock"
    path.write_text("numpy==2.0.0\n")
    with pytest.raises(LockError, match="not pinned with a hash"):
        read_lock(path)


def test_te_layers_parts_of_transformer_engine_agree() -> None:
    pins = {pin.name: pin.version for pin in read_lock(ENVS / "te_layers" / "requirements.lock")}
    versions = {version for name, version in pins.items() if name.startswith("transformer-engine")}
    assert len(versions) == 1


def test_what_a_bundle_holds() -> None:
    spec = read_yaml(ENVS / "te_layers" / "bundle.yaml", BundleSpec)
    install, build, left_out = chosen(read_lock(ENVS / "te_layers" / "requirements.lock"), spec)
    names = {pin.name for pin in install}
    assert {"transformer-engine", "transformer-engine-cu13", "pydantic", "pyyaml"} <= names
    assert [pin.name for pin in build] == ["transformer-engine-torch"]
    assert {"torch", "nvidia-cublas"} <= {pin.name for pin in left_out}
    assert not names & {pin.name for pin in left_out}


def test_unknown_stack() -> None:
    assert stacks() == ["core", "maxtext_gpu", "nemo_25_07", "nemo_gpu", "te_layers"]
    with pytest.raises(BundleError, match="allowed: core, maxtext_gpu, nemo_25_07, nemo_gpu, te_layers"):
        make_bundle("maxtext", Path("x"), set(), 10)


def bundle(folder: Path, files: dict[str, bytes], part_bytes: int = 100) -> Path:
    """A small bundle for this Python, in parts of at most `part_bytes`."""
    site = folder / "site_source"
    for name, data in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(data)
    out = folder / "bundle"
    out.mkdir()
    parts = write_parts(site, out, 1)
    (whole,) = parts
    data = (out / whole["name"]).read_bytes()
    (out / whole["name"]).unlink()
    pieces = [data[i : i + part_bytes] for i in range(0, len(data), part_bytes)]
    return seal(out, pieces)


def seal(out: Path, pieces: list[bytes]) -> Path:
    parts = []
    for number, piece in enumerate(pieces):
        name = f"part-{number:03d}"
        (out / name).write_bytes(piece)
        parts.append({"name": name, "bytes": len(piece), "sha256": hashlib.sha256(piece).hexdigest()})
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    content = {"python": python, "platform": f"{platform.machine()}-linux", "parts": parts, "build": []}
    (out / "bundle.json").write_text(json.dumps(content))
    shutil.copy(UNPACK, out / "unpack.py")
    return out


def unpack(out: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, out / "unpack.py", "--site", site], capture_output=True, text=True)


def test_round_trip_in_parts(tmp_path: Path) -> None:
    files = {"package/__init__.py": b"x = 1\n", "package/data.bin": bytes(range(256)) * 50, "näme with space": b"y"}
    out = bundle(tmp_path, files)
    assert len(list(out.glob("part-*"))) > 2
    site = tmp_path / "with space" / "site"
    done = unpack(out, site)
    assert done.returncode == 0, done.stderr
    for name, data in files.items():
        assert (site / name).read_bytes() == data
    again = unpack(out, site)
    assert again.returncode == 0
    assert "already" in again.stdout


def test_parts_are_reproducible(tmp_path: Path) -> None:
    hashes = []
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        out = bundle(tmp_path / run, {"p/a.py": b"1", "p/b.py": b"2" * 500})
        hashes.append([p["sha256"] for p in json.loads((out / "bundle.json").read_text())["parts"]])
    assert hashes[0] == hashes[1]


def test_missing_and_damaged_parts_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    out = bundle(tmp_path, {"p/a.py": bytes(range(256)) * 9})
    (out / "part-000").unlink()
    data = (out / "part-001").read_bytes()
    (out / "part-001").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    done = unpack(out, tmp_path / "site")
    assert done.returncode == 2
    assert "part-000 is missing" in done.stderr
    assert "part-001 is damaged" in done.stderr
    assert not list(tmp_path.glob("site*.partial"))
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\..\\evil", "./evil"])
def test_no_member_leaves_the_site(tmp_path: Path, name: str) -> None:
    done = unpack(hostile(tmp_path, tarfile.TarInfo(name)), tmp_path / "in" / "site")
    assert done.returncode == 2
    assert "unsafe name" in done.stderr
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("evil")
    member.type, member.linkname = kind, "/etc/passwd"
    done = unpack(hostile(tmp_path, member), tmp_path / "site")
    assert done.returncode == 2
    assert "not a plain file" in done.stderr
    assert not (tmp_path / "site").exists()


def hostile(folder: Path, member: tarfile.TarInfo) -> Path:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(member)
    out = folder / "bundle"
    out.mkdir()
    return seal(out, [lzma.compress(buffer.getvalue())])


def test_another_python_is_told(tmp_path: Path) -> None:
    out = bundle(tmp_path, {"a": b"1"})
    content = json.loads((out / "bundle.json").read_text())
    (out / "bundle.json").write_text(json.dumps(content | {"python": "3.8"}))
    done = unpack(out, tmp_path / "site")
    assert done.returncode == 2
    assert "for Python 3.8" in done.stderr


def test_a_foreign_folder_is_not_overwritten(tmp_path: Path) -> None:
    out = bundle(tmp_path, {"a": b"1"})
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "mine").write_text("keep")
    done = unpack(out, tmp_path / "site")
    assert done.returncode == 2
    assert (tmp_path / "site" / "mine").read_text() == "keep"


def test_the_script_runs_on_old_interpreters() -> None:
    """No syntax newer than Python 3.8 in what air-gapped hosts run."""
    import ast

    ast.parse(UNPACK.read_text(), feature_version=(3, 8))
