"""Checkpoints of a run: set aside from its folder, so that evidence stays small; run.json names their manifest."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from recipes.runs import MANIFEST, manifest_text, sha256_of, write_atomically

CHECKPOINTS = "checkpoints"


def place_of(run: Path) -> Path:
    """Where a run's checkpoints lie: beside all runs (`<runs>/<stack>/<experiment>/<run_id>`), under `checkpoints`."""
    return run.parents[2] / CHECKPOINTS / Path(*run.parts[-3:])


def set_aside(found: Path, run: Path) -> dict[str, Any] | None:
    """Move what a framework saved in `found` to the run's place; returns what run.json says of it, None without any.

    Keys: `folder` (relative to the runs), `files`, `bytes`, `manifest_sha256`.
    """
    if not found.is_dir() or not any(path.is_file() for path in found.rglob("*")):
        return None
    target = place_of(run)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(found, target)
    files = [path for path in target.rglob("*") if path.is_file()]
    said = {
        "folder": target.relative_to(run.parents[2]).as_posix(),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }
    write_atomically(target / MANIFEST, manifest_text(target))
    return said | {"manifest_sha256": sha256_of(target / MANIFEST)}
