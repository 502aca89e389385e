"""Build the smoke image from what the locks pin, with no network inside the build: `fewbits images build`.

The base is a Debian made by mmdebstrap from the configured mirror, so that no image registry is needed; the image holds
NeMo's environment for CPU on top. Two builds from one base and the same locks have the same manifest digest: file times
and the image's own are EPOCH, compiled Python and installers' notes stay out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from recipes.images import CONTAINERS
from recipes.runs import RunError, sha256_of, to_json, write_atomically

NAME = "localhost/fewbits-smoke"
BASE = "localhost/fewbits-base"
SUITE = "bookworm"  # Python 3.11, as NeMo's environment for CPU
EPOCH = "1735689600"  # 2025-01-01: every time in an image
LOCKS = ("envs/nemo/requirements.lock", "envs/nemo/release.lock")
# compiled files and what uv notes hold times and paths of this machine
LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "uv_*.json", "_virtualenv.*", "distutils-precedence.pth", "torch_*.pth"
)


def require(*programs: str) -> None:
    """Raises RunError naming what is not installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise RunError(
            f"{', '.join(missing)} not installed, so no image is built here (Debian: apt install {' '.join(missing)});"
            " the locked environment runs the same without: snakemake nemo_cpu"
        )


def called(command: list[str], what: str) -> str:
    """Standard output of a command, stripped. Raises RunError with the last line of what it complained about."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH})
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise RunError(f"{what}: {said[:300]}")
    return done.stdout.strip()


def bud(context: Path, containerfile: Path, tag: str, *options: str) -> str:
    """Build an image with buildah; returns its manifest digest. Raises RunError."""
    command = ["buildah", "bud", "--isolation", "chroot", "--timestamp", EPOCH, "--pull-never", "--no-cache", "--quiet"]
    called([*command, *options, "--file", str(containerfile), "--tag", tag, str(context)], f"building {tag}")
    return digest_of(tag)


def digest_of(tag: str) -> str:
    """Manifest digest of an image in buildah's store. Raises RunError when there is none."""
    return str(json.loads(called(["buildah", "images", "--json", tag], tag))[0]["digest"])


def debian_packages(rootfs: Path) -> list[str]:
    """`name=version` of every package in a root file system's tar, sorted."""
    with tarfile.open(rootfs) as tar:
        member = tar.extractfile("./var/lib/dpkg/status")
        assert member is not None  # mmdebstrap wrote it
        blocks = member.read().decode().split("\n\n")
    found = [dict(line.split(": ", 1) for line in block.splitlines() if ": " in line[:40]) for block in blocks]
    return sorted(f"{one['Package']}={one['Version']}" for one in found if "Package" in one)


def make_base(work: Path) -> dict[str, Any]:
    """The Debian base, made anew only where `work` holds none. Returns its digests and packages. Raises RunError."""
    context = work / "base"
    rootfs = context / "rootfs.tar"
    if not rootfs.is_file():
        context.mkdir(parents=True, exist_ok=True)
        aside = context / "rootfs.part.tar"
        options = ["--mode=root", "--variant=minbase", "--include=python3,ca-certificates"]
        called(["mmdebstrap", *options, SUITE, str(aside)], f"making a Debian {SUITE}")
        aside.rename(rootfs)
    containerfile = context / "Containerfile"
    containerfile.write_text("FROM scratch\nADD rootfs.tar /\n", encoding="utf-8")
    digest = bud(context, containerfile, f"{BASE}:{SUITE}")
    return {"digest": digest, "rootfs_sha256": sha256_of(rootfs), "packages": debian_packages(rootfs)}


def fill(context: Path, environment: Path) -> list[str]:
    """Put an environment's packages into a build context as hard links; returns `name==version` of each, sorted.

    Raises RunError when the environment is not there or is of another Python than the base's.
    """
    source = environment / "lib/python3.11/site-packages"
    if not source.is_dir():
        raise RunError(f"{environment}: no environment of Python 3.11 there; make it: snakemake nemo_environment")
    shutil.rmtree(context / "site", ignore_errors=True)
    shutil.copytree(source, context / "site", ignore=LEFT_OUT, copy_function=os.link, symlinks=True)
    return sorted(f"{one.name}=={one.version}" for one in distributions(path=[str(source)]))


def build(environment: Path, work: Path, checkout: Path) -> dict[str, Any]:
    """Build the smoke image; returns what is written to `work`/smoke.json, which runs inside name by digest.

    `environment` is NeMo's for CPU, which its locks made. Raises RunError.
    """
    require("buildah", "mmdebstrap")
    if os.geteuid():
        raise RunError("building an image from a Debian of one's own needs root (mmdebstrap, buildah's chroot)")
    context = work / "context"
    context.mkdir(parents=True, exist_ok=True)
    packages = fill(context, environment)
    base = make_base(work)
    tag = f"{NAME}:{SUITE}"
    digest = bud(context, CONTAINERS / "smoke/Containerfile", tag, "--build-arg", f"BASE={BASE}:{SUITE}")
    record = {
        "image": f"{NAME}@{digest}",
        "tag": tag,
        "engine": called(["buildah", "--version"], "buildah"),
        "base": base,
        "locks": {lock: sha256_of(checkout / lock) for lock in LOCKS},
        "packages": packages,
    }
    write_atomically(work / "smoke.json", to_json(record))
    return record
