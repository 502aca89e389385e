"""Dropping GPU code: what is kept stays byte for byte, the rest becomes zeros, damage is refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.fatbin import FatbinError, keep_architectures

MAGIC = 0xBA55ED50


def image(architecture: int, body: bytes, ptx: bool = False) -> bytes:
    header = struct.pack("<HHIQ", 1 if ptx else 2, 1, 64, len(body))
    return (header + bytes(28 - len(header)) + struct.pack("<I", architecture)).ljust(64, b"\0") + body


def library(images: list[bytes]) -> bytes:
    """A minimal 64-bit ELF file with one .nv_fatbin section of one container."""
    payload = b"".join(images)
    section = bytes(8) + struct.pack("<IHHQ", MAGIC, 1, 16, len(payload)) + payload
    names = b"\0.nv_fatbin\0.shstrtab\0"
    at = 64
    table = at + len(section) + len(names)

    def row(name: int, offset: int, size: int) -> bytes:
        return struct.pack("<IIQQQQ", name, 1, 0, 0, offset, size).ljust(64, b"\0")

    rows = row(0, 0, 0) + row(1, at, len(section)) + row(12, at + len(section), len(names))
    header = bytearray(64)
    header[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", header, 0x28, table)
    struct.pack_into("<HHH", header, 0x3A, 64, 3, 2)
    return bytes(header) + section + names + rows


def test_keeps_one_architecture(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(library([image(80, b"A" * 40), image(90, b"B" * 50), image(90, b"P" * 30, ptx=True)]))
    size = path.stat().st_size
    assert keep_architectures(path, {90}) == {80: 40, 90: 50}
    data = path.read_bytes()
    assert len(data) == size
    assert b"B" * 50 in data
    assert b"A" not in data
    assert b"P" * 2 not in data


def test_a_missing_architecture_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    before = library([image(80, b"A" * 40)])
    path.write_bytes(before)
    with pytest.raises(FatbinError, match=r"no code for sm_\[90\]; present: \[80\]"):
        keep_architectures(path, {90})
    assert path.read_bytes() == before


@pytest.mark.parametrize("data", [b"not an ELF file at all", b"\x7fELF\x02\x01" + bytes(20), library([])])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(data)
    with pytest.raises(FatbinError):
        keep_architectures(path, {90})
    assert path.read_bytes() == data


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_never_crashes(tmp_path_factory: pytest.TempPathFactory, position: int, value: int) -> None:
    data = bytearray(library([image(80, b"A" * 40), image(90, b"B" * 50)]))
    data[position % len(data)] = value
    path = tmp_path_factory.mktemp("fat") / "lib.so"
    path.write_bytes(data)
    try:
        keep_architectures(path, {90})
    except FatbinError:
        assert path.read_bytes() == data
