"""Run a command of this checkout inside the image that was built here: `fewbits images run`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from containers.build import called, digest_of, require
from recipes.launching import CHECKOUT, IMAGE, commit_told
from recipes.runs import RunError


def run_inside(command: Sequence[str], work: Path) -> int:
    """Run a command in the built image, with the checkout at its own path; returns the command's exit code.

    A run that is written there names the image by digest. Raises RunError where nothing was built, or where the store
    holds another image by now than the one that smoke.json describes.
    """
    require("buildah")
    built = work / "smoke.json"
    if not built.is_file():
        raise RunError(f"{built}: no image was built here; build it: fewbits images build")
    record = json.loads(built.read_text(encoding="utf-8"))
    if digest_of(record["tag"]) != record["image"].split("@")[1]:
        raise RunError(f"{record['tag']}: not the image of {built} any more; build it again: fewbits images build")
    container = called(["buildah", "from", "--pull-never", record["tag"]], "starting a container")
    try:
        inside = ["--volume", f"{CHECKOUT}:{CHECKOUT}", "--workingdir", str(CHECKOUT)]
        told = {
            IMAGE: record["image"],
            "FEWBITS_COMMIT": commit_told(CHECKOUT),
            "PYTHONPATH": str(CHECKOUT),
            "HOME": "/root",
        }
        for name, value in told.items():
            inside += ["--env", f"{name}={value}"]
        start = ["buildah", "run", "--isolation", "chroot", *inside, container, "--", *command]
        return subprocess.run(start, env={**os.environ, "BUILDAH_ISOLATION": "chroot"}).returncode
    finally:
        subprocess.run(["buildah", "rm", container], capture_output=True)
