"""Drop GPU code for other architectures from a CUDA library, in place: what is dropped becomes zeros.

Size, offsets and symbols stay as they are, so the library still loads, and compresses to little more than what was
kept. It then runs on the kept architectures only. Format (little-endian): an ELF section `.nv_fatbin` is a row of
containers {u32 magic, u16 version, u16 header size, u64 body size}; a body is a row of images {u16 kind (1 PTX, 2
machine code), u16 version, u32 header size, u64 size, ..., u32 architecture at byte 28}.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAGIC, _ALIGN, _PTX = 0xBA55ED50, 8, 1
_NAME = b".nv_fatbin\0"


class FatbinError(ValueError):
    """The file is not a library whose GPU code can be told apart; the message says why."""


class Image(NamedTuple):
    """One GPU code image: whether it is PTX, its architecture (90 for sm_90), where its bytes lie."""

    ptx: bool
    architecture: int
    offset: int
    size: int


def _sections(elf: mmap.mmap) -> list[tuple[int, int]]:
    """(offset, size) of every section named .nv_fatbin of a 64-bit little-endian ELF file."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise FatbinError("not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    rows = [struct.unpack_from("<IIQQQQ", elf, table + i * entry) for i in range(count)]
    starts = [rows[names][4] + row[0] for row in rows]
    # a start past the file (slices refuse what no index holds) names nothing
    named = [row for row, at in zip(rows, starts, strict=True) if at < len(elf) and elf[at : at + 11] == _NAME]
    return [(row[4], row[5]) for row in named]


def _images(elf: mmap.mmap, offset: int, size: int) -> Iterator[Image]:
    end = offset + size
    while offset + 16 <= end:
        magic, _, header, body = struct.unpack_from("<IHHQ", elf, offset)
        if magic != _MAGIC:  # padding between two containers
            offset += _ALIGN
            continue
        at, offset = offset + header, offset + header + body
        if offset > end:
            raise FatbinError(f"container at byte {at - header} runs past its section")
        while at < offset:
            kind, _, header, length = struct.unpack_from("<HHIQ", elf, at)
            (architecture,) = struct.unpack_from("<I", elf, at + 28)
            if not header or at + header + length > offset:
                raise FatbinError(f"damaged or unknown image header at byte {at}")
            yield Image(kind == _PTX, architecture, at + header, length)
            at += header + length


def keep_architectures(library: Path, keep: set[int]) -> dict[int, int]:
    """Zero everything but machine code for `keep` in `library`; returns bytes of machine code found per architecture.

    Raises FatbinError, leaving the file as it was, when nothing for one of `keep` is there or the format is unknown.
    """
    with library.open("r+b") as file, mmap.mmap(file.fileno(), 0) as elf:
        try:
            images = [image for section in _sections(elf) for image in _images(elf, *section)]
        except (struct.error, IndexError, OverflowError) as error:
            raise FatbinError(f"{library.name}: damaged ELF file ({error})") from error
        present: dict[int, int] = {}
        for image in images:
            if not image.ptx:
                present[image.architecture] = present.get(image.architecture, 0) + image.size
        missing = sorted(keep - present.keys())
        if missing:
            raise FatbinError(f"{library.name}: no code for sm_{missing}; present: {sorted(present)}")
        for image in images:
            if image.ptx or image.architecture not in keep:
                elf[image.offset : image.offset + image.size] = bytes(image.size)
    return dict(sorted(present.items()))
