"""Read an image's digest from its registry with skopeo, and write it into the lock."""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
from pathlib import Path

from recipes.catalog import lookup
from recipes.images import DIGEST, LOCK, load_images
from recipes.runs import RunError, write_atomically

TIMEOUT_S = 120


def digest_of(reference: str, tag: str) -> str:
    """The digest that a registry gives for a tag now. Raises RunError."""
    if shutil.which("skopeo") is None:
        raise RunError("skopeo is not installed; it reads a registry without pulling (Debian: apt install skopeo)")
    command = ["skopeo", "inspect", "--no-tags", "--format", "{{.Digest}}", f"docker://{reference}:{tag}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise RunError(f"{reference}:{tag}: the registry did not answer within {TIMEOUT_S} s") from None
    digest = done.stdout.strip()
    if done.returncode or not re.fullmatch(DIGEST, digest):
        said = (done.stderr.strip().splitlines() or [digest or "no answer"])[-1]
        raise RunError(f"{reference}:{tag}: no digest from the registry: {said[:300]}")
    return digest


def resolve(name: str, tag: str = "", lock: Path = LOCK) -> str:
    """Write the digest of an image's tag into the lock, nothing else in it changed; returns the digest.

    Raises RunError, CatalogError.
    """
    image = lookup("image", name, load_images())
    tag = tag or image.tag
    if not tag:
        raise RunError(f"image {name} has no tag yet: say which with --tag")
    if not re.fullmatch(r"\w[\w.-]{0,127}", tag):
        raise RunError(f"--tag {tag!r} is no tag")
    digest = digest_of(image.reference, tag)
    today = datetime.datetime.now(datetime.UTC).date()
    values = {"tag": tag, "digest": digest, "obtained": f"{image.reference}:{tag}, read on {today}"}
    text = lock.read_text(encoding="utf-8")
    block = re.search(rf"^  {re.escape(name)}:\n(?:    .*\n)+", text, re.MULTILINE)
    if block is None:
        raise RunError(f"{lock}: no block of image {name}")
    new = block[0]
    for key, value in values.items():
        new = re.sub(rf"^    {key}: .*$", f'    {key}: "{value}"', new, flags=re.MULTILINE)
    write_atomically(lock, text.replace(block[0], new))
    load_images.cache_clear()
    return digest
