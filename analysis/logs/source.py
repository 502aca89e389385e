"""Raw bytes of a log: from a file, standard input or a compressed file, as blocks of whole lines in bounded memory.

A log is somebody's upload. Whatever it holds, a block is at most a few MiB, a line at most 1 MiB (the rest is dropped
and said), and a compressed file that grows beyond belief is given up.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from analysis.logs.run import Reason
from recipes.runs import RunError

# What is read at a time, and how much of it is handed on together: what a block costs besides its lines counts less.
CHUNK, BLOCK = 1 << 20, 4 << 20
LONGEST_LINE = 1 << 20
_PLAIN = 1 << 17
# Beyond both, a compressed file is taken for a decompression bomb. Real logs shrink 10 to 50 times.
MOST_GROWTH, LEAST_SUSPECT = 2000, 256 << 20

_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]?")
_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz"))


# Behind every block: room for reading in words of eight bytes (scanner.py).
PAD = b"\0" * 8


@dataclass(frozen=True)
class Block:
    """Whole lines, each with its newline, and PAD behind them. `cut`: the file ends inside this block's only line.
    `too_long`: the index of a line whose text was dropped."""

    padded: bytes
    cut: bool = False
    too_long: int | None = None

    @property
    def size(self) -> int:
        """Bytes without the padding."""
        return len(self.padded) - len(PAD)


class Source:
    """One input. Iterate `blocks()` once; afterwards `sha256` (of the bytes as stored) and `reasons` are known.

    Raises RunError when it cannot be opened.
    """

    def __init__(self, path: Path | None, stream: BinaryIO | None = None) -> None:
        self.name = str(path) if path else "-"
        self.reasons: list[Reason] = []
        self.stored_bytes = 0
        self._hash = hashlib.sha256()
        try:
            self._file: Any = stream or (path.open("rb") if path else sys.stdin.buffer)
        except OSError as error:
            raise RunError(
                f"{self.name}: cannot be read ({error.strerror}); check the path and its permissions"
            ) from error

    @property
    def sha256(self) -> str:
        """Hash of the bytes as stored (compressed, where the file is)."""
        return self._hash.hexdigest()

    def blocks(self) -> Iterator[Block]:
        """Blocks of cleaned lines: no ANSI codes, no carriage returns. A line that is too long is left empty."""
        carry, dropping = b"", False
        parts: list[bytes] = []
        for chunk in self._plain():
            end = chunk.rfind(b"\n") + 1
            if not end:
                carry = b"" if dropping else carry + chunk
                dropping = dropping or len(carry) > LONGEST_LINE
                continue
            first = chunk[: chunk.index(b"\n")] if len(carry) > LONGEST_LINE - CHUNK else b""
            long = dropping or len(carry) + len(first) > LONGEST_LINE
            if long and parts:
                yield Block(b"".join((*parts, PAD)))
                parts = []
            head = chunk[chunk.index(b"\n") : end] if long else chunk[:end]
            parts += [b"" if long else _clean(carry), _clean(head)]
            carry, dropping = chunk[end:], False
            if long or sum(map(len, parts)) >= BLOCK:
                yield Block(b"".join((*parts, PAD)), too_long=0 if long else None)
                parts = []
        if parts:
            yield Block(b"".join((*parts, PAD)))
        if carry and not dropping:
            yield Block(b"".join((_clean(carry), b"\n", PAD)), cut=True)
        elif dropping:
            yield Block(b"\n" + PAD, cut=True, too_long=0)

    def _plain(self) -> Iterator[bytes]:
        """The stored bytes, decompressed where their first bytes say that they are compressed."""
        head = self._take(6)
        kind = next((name for magic, name in _MAGIC if head.startswith(magic)), None)
        if kind is None:
            while chunk := head + self._take(CHUNK):
                yield chunk
                head = b""
            return
        reader = io.BufferedReader(_Counted(self, head), CHUNK)
        plain: Any
        if kind == "gzip":
            plain = gzip.GzipFile(fileobj=reader)
        elif kind == "xz":
            plain = lzma.LZMAFile(reader)  # noqa: SIM115 - closed with the reader
        else:
            plain = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(reader, read_across_frames=True)
        try:
            yield from self._checked(plain, kind)
        finally:
            while reader.read(CHUNK):
                pass  # the hash is that of the whole file, also when reading was given up

    def _checked(self, plain: Any, kind: str) -> Iterator[bytes]:
        grown = 0
        while True:
            try:
                chunk = plain.read1(_PLAIN)  # what there is: a fault behind it is met at the next call
            except EOFError:
                self.reasons.append(Reason("input_truncated", f"the {kind} stream ends too early"))
                return
            except (OSError, lzma.LZMAError, zlib.error, zstandard.ZstdError) as error:
                detail = " ".join(str(error).split())[:120]
                self.reasons.append(Reason("input_unreadable", f"reading failed: {detail or type(error).__name__}"))
                return
            if not chunk:
                return
            grown += len(chunk)
            if grown > LEAST_SUSPECT and grown > MOST_GROWTH * self.stored_bytes:
                self.reasons.append(Reason("decompression_bomb", f"grows more than {MOST_GROWTH} times: given up"))
                return
            yield chunk

    def _take(self, size: int) -> bytes:
        """The next stored bytes, hashed. Reading errors end the input, and are said."""
        try:
            chunk: bytes = self._file.read(size)
        except OSError as error:
            self.reasons.append(Reason("input_unreadable", f"reading failed: {error.strerror}"))
            return b""
        self._hash.update(chunk)
        self.stored_bytes += len(chunk)
        return chunk


class _Counted(io.RawIOBase):
    """The stored bytes as a file, from the first ones on, hashed as they are read."""

    def __init__(self, source: Source, head: bytes) -> None:
        self._source, self._head = source, head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._head or self._source._take(len(buffer))
        self._head = b""
        buffer[: len(chunk)] = chunk
        return len(chunk)


def _clean(text: bytes) -> bytes:
    if b"\x1b" in text:
        text = _ANSI.sub(b"", text)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    return text.replace(b"\0", b"\x01") if b"\0" in text else text
