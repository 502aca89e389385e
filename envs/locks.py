"""Reading locks: requirements files with exact versions and hashes, from `uv pip compile --generate-hashes`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;\\]+)")


class Pin(NamedTuple):
    """One locked distribution: normalised name, version, its lines in the lock (requirement and hashes)."""

    name: str
    version: str
    text: str


class LockError(ValueError):
    """A lock cannot be read; the message says where."""


def normalise(name: str) -> str:
    """A distribution's name as PEP 503 compares them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> list[Pin]:
    """Every pin of a lock, in its order. Raises LockError for a line without `==` or a pin without a hash."""
    pins: list[Pin] = []
    logical = path.read_text(encoding="utf-8").replace("\\\n", "\x00")
    for number, line in enumerate(logical.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _PIN.match(line)
        if not match or "--hash=" not in line:
            raise LockError(f"{path}: entry {number} is not pinned with a hash: {line[:80]!r}; run `make locks`")
        pins.append(Pin(normalise(match[1]), match[2], line.replace("\x00", "\\\n")))
    return pins


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a distribution's name fits one of the shell-style patterns."""
    return any(fnmatch.fnmatchcase(name, normalise(pattern) if "*" not in pattern else pattern) for pattern in patterns)
