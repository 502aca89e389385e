"""Build the smoke image from what the locks pin, with no network inside the build: `fewbits images build`.

The base is a Debian made by mmdebstrap from the configured mirror, so that no image registry is needed; the image holds
NeMo's environment for CPU on top. Two builds from one base and the same locks have the same manifest digest with podman
and buildah: what installing leaves of its time and place stays out.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from containers.engine import Engine, called
from envs.locks import normalise, read_lock
from recipes.launching import CHECKOUT
from recipes.runs import RunError, sha256_of, to_json, write_atomically

NAME = "localhost/fewbits-smoke"
BASE = "localhost/fewbits-base"
SUITE = "bookworm"  # Python 3.11, as NeMo's environment for CPU
LOCKS = ("envs/nemo/requirements.lock", "envs/nemo/release.lock")
# compiled files and uv's notes hold times and paths of this machine
LEFT_OUT = shutil.ignore_patterns("__pycache__", "uv_*.json")


def debian_packages(rootfs: Path) -> list[str]:
    """`name=version` of every package in a root file system's tar, sorted."""
    with tarfile.open(rootfs) as tar:
        member = tar.extractfile("./var/lib/dpkg/status")
        assert member is not None  # mmdebstrap wrote it
        blocks = member.read().decode().split("\n\n")
    found = [dict(re.findall(r"^(Package|Version): (.+)$", block, re.MULTILINE)) for block in blocks]
    return sorted(f"{one['Package']}={one['Version']}" for one in found if one)


def make_base(work: Path, engine: Engine) -> dict[str, Any]:
    """The Debian base, made anew only where `work` holds none. Returns its digests and packages. Raises RunError."""
    context = work / "base"
    rootfs = context / "rootfs.tar"
    if not rootfs.is_file():
        if shutil.which("mmdebstrap") is None:
            raise RunError("mmdebstrap is not installed; it makes the Debian base (Debian: apt install mmdebstrap)")
        if os.geteuid():
            raise RunError(f"making a Debian needs root; make {rootfs} as root once, the rest does not need it")
        context.mkdir(parents=True, exist_ok=True)
        aside = context / "rootfs.part.tar"
        options = ["--mode=root", "--variant=minbase", "--include=python3,ca-certificates"]
        called(["mmdebstrap", *options, SUITE, str(aside)], f"making a Debian {SUITE}")
        aside.rename(rootfs)
    containerfile = context / "Containerfile"
    containerfile.write_text("FROM scratch\nADD rootfs.tar /\n", encoding="utf-8")
    tag = f"{BASE}:{SUITE}"
    engine.build(context, containerfile, tag, {})
    return {
        "image": engine.reference(tag),
        "rootfs_sha256": sha256_of(rootfs),
        "packages": debian_packages(rootfs),
    }


def installed(site: Path, locks: Sequence[Path]) -> list[str]:
    """`name==version` of every package in an environment, sorted. Raises RunError where the locks pin others."""
    versions = {normalise(one.name): one.version for one in distributions(path=[str(site)])}
    other = [
        f"{pin.name}=={pin.version}"
        for lock in locks
        for pin in read_lock(lock)
        if versions.get(pin.name, "").split("+")[0] != pin.version.split("+")[0]  # torch for CPU: 2.7.1+cpu
    ]
    if other:
        raise RunError(
            f"{site}: not what the locks pin ({', '.join(other[:3])}, {len(other)} in all); make it anew: remove"
            " build/envs/nemo.done, then snakemake nemo_environment"
        )
    return sorted(f"{name}=={version}" for name, version in versions.items())


def link_or_copy(source: str, target: str) -> None:
    """A hard link where the file system allows it: an environment is 2 GB."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def fill(context: Path, environment: Path, locks: Sequence[Path]) -> list[str]:
    """Put an environment's packages into a build context; returns `name==version` of each, sorted.

    Raises RunError when the environment is not there, is of another Python than the base's, or not what the locks pin.
    """
    source = environment / "lib/python3.11/site-packages"
    if not source.is_dir():
        raise RunError(f"{environment}: no environment of Python 3.11 there; make it: snakemake nemo_environment")
    packages = installed(source, locks)
    shutil.rmtree(context / "site", ignore_errors=True)
    shutil.copytree(source, context / "site", ignore=LEFT_OUT, copy_function=link_or_copy, symlinks=True)
    for record in (context / "site").glob("*.dist-info/RECORD"):
        # commands in bin/ name the environment's path, are listed by hash, and do not come along
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        write_atomically(record, "".join(line for line in lines if not line.startswith("../")))
    return packages


def build(environment: Path, work: Path, engine: Engine) -> dict[str, Any]:
    """Build the smoke image; returns what is written to `work`/smoke.json, which runs inside name by digest.

    `environment` is NeMo's for CPU, which its locks made. Raises RunError.
    """
    context = work / "context"
    context.mkdir(parents=True, exist_ok=True)
    locks = [CHECKOUT / lock for lock in LOCKS]
    packages = fill(context, environment, locks)
    base = make_base(work, engine)
    tag = f"{NAME}:{SUITE}"
    engine.build(context, CHECKOUT / "containers/smoke/Containerfile", tag, {"BASE": f"{BASE}:{SUITE}"})
    record = {
        "image": engine.reference(tag),
        "tag": tag,
        "engine": engine.name,
        "engine_version": engine.version(),
        "base": base,
        "locks": {lock: sha256_of(CHECKOUT / lock) for lock in LOCKS},
        "packages": packages,
    }
    write_atomically(work / "smoke.json", to_json(record))
    return record
