"""A real stream of tokens that every machine has: the bytes of MaxText's own source, as its lock pins it.

Written as MaxText's `olmo_grain` pipeline reads it: raw unsigned integers, and an index of windows of one sequence.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from recipes.runs import write_atomically

STREAM, INDEX = "tokens.u16", "index.json"
VOCABULARY = 256  # a token a byte
# what the pipeline makes of a window
FIELDS = ("inputs", "targets", "inputs_position", "inputs_segmentation", "targets_segmentation")


def stream_of(package: Path) -> bytes:
    """Every Python file of an installed package, by path, one after another."""
    files = sorted(path for path in package.rglob("*.py"))
    return b"".join(path.read_bytes() for path in sorted(files, key=lambda path: path.relative_to(package).as_posix()))


def write_tokens(package: Path, folder: Path, sequence: int) -> str:
    """Write the stream and its index into `folder`; returns what run.json says about the data.

    `folder` is relative to where MaxText will run, so that its log names no folder of this machine. Every window holds
    `sequence` tokens; what is left over at the end is dropped, as MaxText's own index builder does.
    """
    text = stream_of(package)
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{STREAM}.{os.getpid()}"  # processes of one host may share the folder
    aside.write_bytes(b"".join(bytes((byte, 0)) for byte in text))  # little-endian
    aside.replace(folder / STREAM)
    windows = len(text) // sequence
    entry = {
        "path": str(folder / STREAM),
        "label": "source",
        "n_tokens": len(text),
        "n_instances": windows,
        "instance_offset": 0,
    }
    index = {
        "format_version": "1",
        "sequence_length": sequence,
        "dtype": "uint16",
        "tokenizer": "bytes",
        "total_instances": windows,
        "total_tokens": len(text),
        "fingerprint": "",
        "files": [entry],
    }
    write_atomically(folder / INDEX, json.dumps(index))
    digest = hashlib.sha256(text).hexdigest()
    return (
        f"bytes of the Python files of {package.name} as installed, {len(text)} tokens, SHA-256 {digest}, through"
        " MaxText's olmo_grain pipeline, shuffled by windows"
    )
