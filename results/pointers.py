"""DVC pointers of published experiments: where they lie, what they say, and whether all they name is here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def pointer_of(experiment: Path) -> Path:
    """The DVC pointer of an experiment's folder under `results/raw`."""
    return experiment.with_name(experiment.name + ".dvc")


def pointed(pointer: Path) -> dict[str, Any]:
    """What a pointer says of its folder (`md5`, `nfiles`, ...); empty when it cannot be read."""
    try:
        out = yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"][0]
        return dict(out)
    except (OSError, KeyError, IndexError, TypeError, ValueError, yaml.YAMLError):
        return {}


def incomplete(pointer: Path) -> bool:
    """Whether the folder holds fewer files here than were published."""
    here = sum(path.is_file() for path in pointer.with_suffix("").rglob("*"))
    return here < int(pointed(pointer).get("nfiles", 1))
