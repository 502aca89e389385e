"""Input of any kind: compressed, cut, endless lines, bombs, junk. Memory stays bounded; what was lost is said."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from analysis.judge_log import judge_logs
from analysis.logs import source as module
from analysis.logs.read import UnknownFormat, read_log
from analysis.logs.source import PAD, Source
from recipes.runs import RunError
from tests.write_logs import megatron, text

LOG = text(megatron())
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def lines_of(content: bytes) -> bytes:
    return b"".join(block.padded[: -len(PAD)] for block in Source(None, io.BytesIO(content)).blocks())


@pytest.mark.parametrize("kind", COMPRESS)
def test_compressed_logs_are_read_and_hashed_as_stored(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run.log"  # by content, not by name
    path.write_bytes(COMPRESS[kind](LOG))
    (run,) = read_log(Source(path))
    assert run.timeline.rows == 30
    assert run.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", COMPRESS)
def test_several_compressed_parts_in_one_file(kind: str) -> None:
    half = LOG.index(b" iteration        9/")
    both = COMPRESS[kind](LOG[:half]) + COMPRESS[kind](LOG[half:])
    assert lines_of(both) == LOG


@pytest.mark.parametrize("kind", COMPRESS)
def test_a_cut_compressed_log_is_not_valid(kind: str) -> None:
    content = COMPRESS[kind](LOG)
    for share in (0.5, 0.9, 0.99):
        source = Source(None, io.BytesIO(content[: int(len(content) * share)]))
        try:
            judged = judge_logs(read_log(source))
        except UnknownFormat:
            continue
        assert not any(item.valid for item in judged)


def test_a_damaged_compressed_log_is_said(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(text(megatron(400))))
    content[len(content) // 2] ^= 0xFF
    judged = judge_logs(read_log(Source(None, io.BytesIO(bytes(content)))))
    assert not any(item.valid for item in judged)
    assert "input_unreadable" in {reason.code for item in judged for reason in item.reasons}


def test_a_decompression_bomb_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_SUSPECT", 4 << 20)
    monkeypatch.setattr(module, "MOST_GROWTH", 100)
    bomb = lzma.compress(LOG + b"\n" * (64 << 20))
    (run,) = read_log(Source(None, io.BytesIO(bomb)))
    assert "decompression_bomb" in {reason.code for reason in run.reasons}
    assert run.sha256 == hashlib.sha256(bomb).hexdigest()


def test_a_line_of_a_hundred_megabytes_costs_no_memory() -> None:
    half = LOG.index(b" iteration       15/")
    half = LOG.rindex(b"\n", 0, half) + 1
    stream = _Pieces([LOG[:half], *[b"x" * (1 << 20)] * 100, b"\n", LOG[half:]])
    tracemalloc.start()
    (run,) = read_log(Source(None, stream))  # type: ignore[arg-type]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20
    (reason,) = [reason for reason in run.reasons if reason.code == "line_too_long"]
    assert reason.lines == (LOG[:half].count(b"\n") + 1,)
    assert run.timeline.rows == 30


class _Pieces:
    """A stream that gives its pieces one by one."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = list(pieces)

    def read(self, size: int) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if len(piece) > size:
            self._pieces.insert(0, piece[size:])
        return piece[:size]


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (b"a\r\nb\r\n", b"a\nb\n"),
        (b"10%\r20%\rdone\n", b"10% 20% done\n"),
        (b"\x1b[31mred\x1b[0m \x1b[38;2;1;2;3mx\n", b"red x\n"),
        (b"nul\0here\n", b"nul\x01here\n"),
        (b"no end", b"no end\n"),
        (b"", b""),
        (b"\n\n", b"\n\n"),
    ],
)
def test_lines_are_cleaned(raw: bytes, clean: bytes) -> None:
    assert lines_of(raw) == clean


@pytest.mark.parametrize("size", [1, 2, 7, 100, 4096])
def test_where_blocks_end_changes_nothing(size: int) -> None:
    pieces = [LOG[at : at + size] for at in range(0, len(LOG), size)]
    (run,) = read_log(Source(None, _Pieces(pieces)))  # type: ignore[arg-type]
    (whole,) = read_log(Source(None, io.BytesIO(LOG)))
    assert run.timeline.table()["loss"].tolist() == whole.timeline.table()["loss"].tolist()
    assert run.timeline.table()["line"].tolist() == whole.timeline.table()["line"].tolist()


def test_a_file_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot be read \(No such file or directory\); check the path"):
        Source(tmp_path / "absent.log")


@pytest.mark.parametrize("junk", [b"", b"\n", b"\xff\xfe\x00" * 500, bytes(range(256)) * 40, b"\x1f\x8b junk", b"{}"])
def test_junk_is_an_unknown_format(junk: bytes) -> None:
    with pytest.raises(UnknownFormat, match="no line of a known format"):
        read_log(Source(None, io.BytesIO(junk)))
