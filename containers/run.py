"""Run a command of this checkout inside an image that was built here: `fewbits images run`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from containers.engine import Inside, pick
from recipes.launching import CHECKOUT, IMAGE, commit_told
from recipes.runs import RunError


def run_inside(command: Sequence[str], work: Path, name: str = "smoke") -> int:
    """Run a command in the built image of a name, with the checkout at its own path; returns the command's exit code.

    A run that is written there names the image by digest. Raises RunError where nothing was built, or where the store
    holds another image than the one that was.
    """
    built = work / f"{name}.json"
    if not built.is_file():
        raise RunError(f"{built}: no image was built here; build it: fewbits images build")
    record = json.loads(built.read_text(encoding="utf-8"))
    engine = pick(record["engine"])
    if engine.reference(record["tag"]) != record["image"]:
        raise RunError(f"{record['tag']}: not the image of {built} any more; build it again: fewbits images build")
    told = {
        IMAGE: record["image"],
        "FEWBITS_COMMIT": commit_told(CHECKOUT),
        "PYTHONPATH": str(CHECKOUT),
        "HOME": "/root",
    }
    return engine.start(record["tag"], Inside([CHECKOUT], told, CHECKOUT), command)
