"""Make a bundle: a stack's locked packages as one site folder, in parts, for a GPU host without a network.

    fewbits bundle te_layers --arch 90 --part-mib 48 --out build/bundles/te_layers

What goes in is decided by the stack's requirements.lock (hashes checked by uv) and its bundle.yaml (what the host
brings, what is built there). The same inputs give the same parts byte for byte. On the host:
`python3 unpack.py --site SITE`.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pydantic import Field

from envs.fatbin import keep_architectures
from envs.locks import Pin, matches, normalise, read_lock
from recipes.catalog.reading import Entry, read_yaml
from recipes.runs import sha256_of, to_json, write_atomically

ENVS = Path(__file__).parent
_EPOCH = 1735689600  # 2025-01-01: every member's time, so that parts are reproducible


class BuildSpec(Entry):
    """A source distribution that the host builds."""

    environment: dict[str, str] = Field(default_factory=dict)
    include: tuple[str, ...] = ()
    library: tuple[str, ...] = ()


class BundleSpec(Entry):
    """`envs/<stack>/bundle.yaml`."""

    python: str
    platform: str
    host: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    pure: tuple[str, ...] = Field(default=(), description="source-only packages without compiled code, built here")
    build: dict[str, BuildSpec] = Field(default_factory=dict)
    fat_libraries: tuple[str, ...] = ()
    locks: tuple[str, ...] = Field(default=("requirements.lock",), description="from the folder of bundle.yaml")
    wheel_python: dict[str, str] = Field(
        default_factory=dict,
        description="distributions whose wheel for another Python is taken: its compiled part is lost",
    )
    stubs: dict[str, str] = Field(default_factory=dict, description="small files written into the site: path, content")


class BundleError(RuntimeError):
    """A bundle cannot be made; the message is one line."""


def stacks() -> list[str]:
    """Stacks that can be bundled: those with a bundle.yaml."""
    return sorted(path.parent.name for path in ENVS.glob("*/bundle.yaml"))


def chosen(pins: list[Pin], spec: BundleSpec) -> tuple[list[Pin], list[Pin], list[Pin]]:
    """The lock's pins parted into wheels to install, sources to build, and what the host brings or nobody needs."""
    builds = {normalise(name) for name in spec.build}
    left_out = [pin for pin in pins if matches(pin.name, (*spec.host, *spec.skip))]
    rest = [pin for pin in pins if pin not in left_out]
    return [p for p in rest if p.name not in builds], [p for p in rest if p.name in builds], left_out


def _uv(*arguments: str) -> None:
    # plain HTTPS trust of the machine: behind a private authority, uv's own roots would refuse every host
    environment = {"UV_SYSTEM_CERTS": "true", **os.environ}
    done = subprocess.run(["uv", *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        said = " ".join(done.stderr.split())[:500] or "no message"
        raise BundleError(f"uv {' '.join(arguments[:2])} failed: {said}")


def install_wheels(pins: list[Pin], spec: BundleSpec, site: Path, work: Path) -> None:
    """Install wheels for the bundle's Python and platform into `site`, hashes checked; scripts are left out."""
    for python in sorted({spec.python, *spec.wheel_python.values()}):
        those = [pin for pin in pins if spec.wheel_python.get(pin.name, spec.python) == python]
        requirements = work / f"wheels-{python}.txt"
        requirements.write_text("\n".join(pin.text for pin in those) + "\n", encoding="utf-8")
        target = ["--python-version", python, "--python-platform", spec.platform, "--target", str(site)]
        wheels_only = [f"--only-binary={pin.name}" for pin in those if not matches(pin.name, spec.pure)]
        _uv("pip", "install", "-q", "--no-deps", "--require-hashes", *wheels_only, *target, "-r", str(requirements))
    shutil.rmtree(site / "bin", ignore_errors=True)  # scripts name this machine's interpreter


def fetch_sources(pins: list[Pin], spec: BundleSpec, site: Path, work: Path) -> dict[str, str]:
    """Put each source distribution under `site/.sources`; returns distribution name -> path in the site.

    uv tells where the index keeps the file; its hash must be one of the lock's.
    """
    if not pins:
        return {}
    requirements, lock = work / "sources.txt", work / "pylock.toml"
    requirements.write_text("\n".join(pin.text for pin in pins) + "\n", encoding="utf-8")
    target = ["--python-version", spec.python, "--python-platform", spec.platform]
    _uv("pip", "compile", "-q", "--no-deps", *target, "--format", "pylock.toml", "-o", str(lock), str(requirements))
    packages = {p["name"]: p for p in tomllib.loads(lock.read_text(encoding="utf-8"))["packages"]}
    found = {}
    for pin in pins:
        source = packages[pin.name].get("sdist")
        if source is None:
            raise BundleError(
                f"{pin.name} {pin.version} has no source distribution; take it out of bundle.yaml's build"
            )
        name = Path(urllib.parse.urlparse(source["url"]).path).name
        path = site / ".sources" / name
        path.parent.mkdir(exist_ok=True)
        with urllib.request.urlopen(source["url"], timeout=60) as response, path.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(response, file)
        if f"sha256:{sha256_of(path)}" not in pin.text:
            raise BundleError(f"{name}: its hash is not in the lock; run `make locks` and look at what changed")
        found[pin.name] = path.relative_to(site).as_posix()
    return found


class _Parts:
    """A binary sink that writes files of at most `limit` bytes, and hashes each."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._file: IO[bytes] | None = None
        self._hash, self._size = hashlib.sha256(), 0
        self.parts: list[dict[str, Any]] = []

    def write(self, data: bytes) -> int:
        total = len(data)
        while data:
            if self._file is None:
                self._name = f"part-{len(self.parts):03d}"
                self._file = (self._folder / self._name).open("wb")
                self._hash, self._size = hashlib.sha256(), 0
            piece, data = data[: self._limit - self._size], data[self._limit - self._size :]
            self._file.write(piece)
            self._hash.update(piece)
            self._size += len(piece)
            if self._size == self._limit:
                self.close()
        return total

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self.parts.append({"name": self._name, "bytes": self._size, "sha256": self._hash.hexdigest()})
            self._file = None


def _members(site: Path) -> Iterator[tuple[tarfile.TarInfo, Path]]:
    for path in sorted(p for p in site.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        info = tarfile.TarInfo(path.relative_to(site).as_posix())
        info.size, info.mtime = path.stat().st_size, _EPOCH
        info.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
        yield info, path


def write_parts(site: Path, out: Path, part_mib: int) -> list[dict[str, Any]]:
    """The site folder as one tar.xz stream cut into parts; returns name, bytes and sha256 of each."""
    sink = _Parts(out, part_mib * 2**20)
    compressor = lzma.LZMACompressor(preset=6)

    class _Compressed:
        def write(self, data: bytes) -> int:
            sink.write(compressor.compress(data))
            return len(data)

    with tarfile.open(fileobj=_Compressed(), mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for info, path in _members(site):
            with path.open("rb") as file:
                archive.addfile(info, file)
    sink.write(compressor.flush())
    sink.close()
    return sink.parts


def make_bundle(
    stack: str, out: Path, architectures: set[int], part_mib: int, wheels: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Make the bundle of a stack under `out`; returns bundle.json's content.

    `architectures` (90 for sm_90) to keep in the fat libraries, empty keeps all. `wheels` are built wheels kept from a
    host: they replace the source of the same distribution. Raises BundleError, LockError, FatbinError, CatalogError.
    """
    if stack not in stacks():
        raise BundleError(f"unknown stack {stack!r}; allowed: {', '.join(stacks())}")
    spec = read_yaml(ENVS / stack / "bundle.yaml", BundleSpec)
    locks = [ENVS / stack / name for name in spec.locks]
    install, build, left_out = chosen([pin for lock in locks for pin in read_lock(lock)], spec)
    prebuilt = {normalise(wheel.name.split("-")[0]): wheel for wheel in wheels}
    unknown = sorted(prebuilt.keys() - {pin.name for pin in build})
    if unknown:
        raise BundleError(f"wheels for {unknown} are not among what bundle.yaml builds: {sorted(spec.build)}")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fewbits-bundle-") as name:
        work = Path(name)
        site = work / "site"
        site.mkdir()
        install_wheels(install, spec, site, work)
        for wheel in prebuilt.values():
            target = ["--python-version", spec.python, "--python-platform", spec.platform, "--target", str(site)]
            _uv("pip", "install", "-q", "--no-deps", "--no-index", *target, str(wheel))
        sources = fetch_sources([pin for pin in build if pin.name not in prebuilt], spec, site, work)
        for path, text in spec.stubs.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text, encoding="utf-8")
        if architectures:
            for library in spec.fat_libraries:
                keep_architectures(site / library, architectures)
        for old in out.glob("part-*"):
            old.unlink()
        parts = write_parts(site, out, part_mib)
    content: dict[str, Any] = {
        "stack": stack,
        "lock_sha256": sha256_of(locks[0]) if len(locks) == 1 else [sha256_of(lock) for lock in locks],
        "python": spec.python,
        "platform": spec.platform,
        "architectures": sorted(architectures) or "all",
        "distributions": {pin.name: pin.version for pin in [*install, *build]},
        "from_host": {pin.name: pin.version for pin in left_out},
        "prebuilt": {name: sha256_of(wheel) for name, wheel in sorted(prebuilt.items())},
        "build": [
            {"name": name, "file": path, **spec.build[name].model_dump(mode="json")} for name, path in sources.items()
        ],
        "parts": parts,
    }
    shutil.copyfile(ENVS / "unpack.py", out / "unpack.py")
    write_atomically(out / "bundle.json", to_json(content))
    return content
