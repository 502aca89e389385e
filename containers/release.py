"""Build the image of a release on NVIDIA's own, with this project's code: `fewbits images build nemo`."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from containers.engine import Engine
from recipes.images import check_pinned, load_images, pinned
from recipes.launching import CHECKOUT
from recipes.runs import RunError, git_state, to_json, write_atomically

NAMES = tuple(load_images())
# what a job's launchers read; results and analysis stay where they are looked at
PARTS = ("config", "containers", "envs", "recipes")
LIST_PACKAGES = (
    "import json; from importlib.metadata import distributions;"
    " print(json.dumps(sorted({f'{one.name}=={one.version}' for one in distributions()})))"
)


def fill(context: Path) -> str:
    """Put the committed code into a build context; returns the commit. Raises RunError."""
    state = git_state(CHECKOUT)
    if state["commit"] is None:
        raise RunError(f"{CHECKOUT}: no git repository; an image holds what is committed")
    if state["dirty"]:
        raise RunError("the checkout has uncommitted changes, and an image holds what is committed; commit them first")
    archive = subprocess.run(
        ["git", "-C", str(CHECKOUT), "archive", "HEAD", *PARTS], capture_output=True, check=True
    ).stdout
    shutil.rmtree(context, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(context / "checkout", filter="data")
    return str(state["commit"])


def build_release(name: str, base: str, work: Path, engine: Engine) -> dict[str, Any]:
    """Build the image `name` of the lock; returns what is written to `work`/NAME.json.

    `base`: another image than the lock's, by digest. Raises RunError for a base without a digest, for a checkout with
    uncommitted changes, and where the base does not hold the release; CatalogError for an unknown name.
    """
    known = base or pinned(name)
    check_pinned(known)
    context = work / name
    commit = fill(context)
    tag = f"localhost/fewbits-{name}:{commit[:12]}"
    arguments = {"BASE": known, "COMMIT": commit}
    engine.build(context, CHECKOUT / "containers" / name / "Containerfile", tag, arguments, pull=not base)
    record = {
        "image": engine.reference(tag),
        "tag": tag,
        "engine": engine.name,
        "engine_version": engine.version(),
        "base": known,
        "commit": commit,
        "packages": json.loads(engine.output(tag, ["python3", "-c", LIST_PACKAGES])),
    }
    write_atomically(work / f"{name}.json", to_json(record))
    return record
