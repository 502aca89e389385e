"""Finds the lines of each known shape in a block, and has them read together (layout.py).

A shape is found by a hash of the line with its digits blanked, or tried first where many lines had it lately; either
way every byte is compared. What has no known shape goes to `parse`, so that speed never changes what is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from analysis.logs.layout import EVENT, Batch, Bytes, Ints, Numbers, Parsed, Rows, Shape, number, values_of

# Shapes kept for one length of line, and in all; beyond it they are learned anew: hostile input costs time, not memory.
MOST_PER_LENGTH, MOST_SHAPES = 512, 4096
LONGEST = (1 << 16) - 1  # lines of that length and longer ones are read one by one
_WEIGHTS = np.random.default_rng(1).integers(1, 2**63, size=LONGEST // 8 + 1, dtype=np.uint64) | np.uint64(1)
_AT_ONCE = 1 << 18  # bytes that stay in a core's cache while they are worked on


@dataclass
class _Family:
    """The known shapes of one length by hash, and the one that most of the last block's lines had, if any."""

    shapes: dict[int, Shape] = field(default_factory=dict)
    usual: Shape | None = None


@dataclass
class Scanner:
    """Turns blocks of lines into rows. `parse` decides by a line's text, never by its digits: a step's numbers, an
    event (no numbers), or None for a line that says nothing; what is said of one line holds for its shape."""

    columns: int
    parse: Callable[[bytes], Parsed | None]
    _families: dict[int, _Family] = field(default_factory=dict)
    _numbers: Numbers = field(default_factory=Numbers)
    _seen_once: set[int] = field(default_factory=set)
    _shapes: int = 0
    _forget: bool = False

    def __post_init__(self) -> None:
        # glibc gives large blocks back to the system and asks for them anew, which costs more than the work on them,
        # until a larger one was freed once (mallopt(3), M_MMAP_THRESHOLD); no page of this one is touched
        np.empty(30 << 20, dtype=np.uint8)

    def scan(self, block: bytes, first_line: int) -> tuple[Rows, list[int], Ints]:
        """Rows of a block of whole lines, the indices of its event lines, and where each line starts (and the end).

        Behind the lines stand eight bytes that are no newlines.
        """
        if self._forget:
            self._families, self._numbers, self._shapes, self._forget = {}, Numbers(), 0, False
        raw = np.frombuffer(block, dtype=np.uint8)
        bounds = np.concatenate((np.zeros(1, dtype=np.int64), _newlines(raw) + 1))
        found = _Found(block, raw, bounds)
        lengths = np.minimum(np.diff(bounds) - 1, LONGEST).astype(np.uint16)  # sixteen bits: sorted fast
        order = np.argsort(lengths, kind="stable")
        for lines in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
            length = int(lengths[lines[0]]) if lines.size else 0
            if length == LONGEST:
                self._single(lines, found)
            elif length:
                self._group(lines, length, found)
        return self._rows(found, first_line), sorted(found.events), bounds

    def _group(self, lines: Ints, length: int, found: _Found) -> None:
        """All lines of one length. Its usual shape is tried first, without a hash: which pays when half have it."""
        family = self._families.setdefault(length, _Family())
        left = found.take(family.usual, lines) if family.usual else lines
        if left.size:
            width = -(-length // 8) * 8
            blanked = found.bytes_of(left, width)
            blanked[:, length:] = 0
            blanked *= blanked - np.uint8(48) >= 10
            hashes = blanked.view(np.uint64) @ _WEIGHTS[: width // 8]
            order = np.argsort(hashes, kind="stable")
            for same in np.split(order, np.flatnonzero(np.diff(hashes[order])) + 1):
                self._same(left[same], int(hashes[same[0]]), family, found)
        family.usual = found.usual(lines.size)

    def _same(self, lines: Ints, key: int, family: _Family, found: _Found) -> None:
        """Lines of one hash. A shape seen twice is learned; until then, lines are looked at one by one."""
        if key not in family.shapes and key not in self._seen_once:
            if len(self._seen_once) >= 1 << 16:
                self._seen_once.clear()
            self._seen_once.add(key)
            self._single(lines[:1], found)
            lines = lines[1:]
        if lines.size:
            shape = family.shapes.get(key) or self._learn(found.line(int(lines[0])), key, family)
            self._single(found.take(shape, lines) if shape else lines, found)

    def _learn(self, line: bytes, key: int, family: _Family) -> Shape | None:
        """The shape of a line, to be remembered; None where each such line must be looked at, or there is no room."""
        parsed = self._parse(line)
        if parsed is not None and (not parsed.spots or not Shape.fits(line, parsed.spots)):
            return None
        if len(family.shapes) >= MOST_PER_LENGTH or self._shapes >= MOST_SHAPES:
            # full of shapes that did not come again: begin anew with the next block
            self._forget = True
            return None
        self._shapes += 1
        family.shapes[key] = shape = Shape(line, parsed, self.columns)
        if shape.columns:
            self._numbers.widen(shape)
        return shape

    def _parse(self, line: bytes) -> Parsed | None:
        """As `parse`, but an event where something that should be a number is none."""
        parsed = self.parse(line)
        if parsed and any(number(line, spot) is None for spot in parsed.spots.values()):
            return EVENT
        return parsed

    def _single(self, lines: Ints, found: _Found) -> None:
        """Lines looked at one by one."""
        for index in lines.tolist():
            line = found.line(index)
            parsed = self._parse(line)
            if parsed and parsed.spots:
                found.single.append((index, values_of(line, parsed)))
            elif parsed:
                found.events.append(index)

    def _rows(self, found: _Found, first_line: int) -> Rows:
        """Everything found, in order of the lines."""
        single = np.array([index for index, _ in found.single], dtype=np.int64)
        line = np.concatenate([*(batch.lines for batch in found.batches), single])
        there = np.zeros(found.bounds.size, dtype=bool)
        there[line] = True
        row = np.cumsum(there)[line] - 1
        values = np.full((self.columns, line.size), np.nan)
        present = np.zeros((self.columns, line.size), dtype=bool)
        if found.batches:
            columns, read = self._numbers.read(found.batches)
            for column, numbers in zip(columns, read, strict=True):
                values[column, row[: numbers.size]] = numbers
        alike = len({tuple(batch.shape.columns) for batch in found.batches}) == 1
        end = 0
        for batch in found.batches:
            begin, end = end, end + batch.lines.size
            if not alike:
                present[np.ix_(batch.shape.columns, row[begin:end])] = True
            elif not begin:
                present[batch.shape.columns] = True
        for at, (_, given) in zip(row[end:].tolist(), found.single, strict=True):
            present[:, at] = False
            for column, value in given.items():
                values[column, at], present[column, at] = value, True
        return Rows(values, present, np.flatnonzero(there) + first_line)


class _Found:
    """One block of lines, and what it gave until it is put in order."""

    def __init__(self, block: bytes, raw: Bytes, bounds: Ints) -> None:
        self.block, self.raw, self.bounds = block, raw, bounds
        self.batches: list[Batch] = []
        self.single: list[tuple[int, dict[int, float]]] = []
        self.events: list[int] = []
        self._met: list[tuple[Shape, int]] = []

    def line(self, index: int) -> bytes:
        """The text of one line."""
        return self.block[self.bounds[index] : self.bounds[index + 1] - 1]

    def bytes_of(self, lines: Ints, width: int) -> Bytes:
        """A copy of so many bytes from the start of each line on (n x width)."""
        windows: Bytes = np.ndarray((self.raw.size - width + 1, width), np.uint8, self.raw, strides=(1, 1))
        return np.asarray(windows[self.bounds[lines]])

    def take(self, shape: Shape, lines: Ints) -> Ints:
        """Take those lines that are of a shape, which is as long as they are; the others are returned."""
        width = shape.template.size
        at_once = max(1, _AT_ONCE // width)
        taken, digits, others = [], [], []
        for at in range(0, lines.size, at_once):
            part = lines[at : at + at_once]
            above = self.bytes_of(part, width)
            above -= shape.template
            wrong = above > shape.limit
            if wrong.any():
                odd = wrong.any(axis=1)
                others.append(part[odd])
                part, above = part[~odd], above[~odd]
            taken.append(part)
            digits.append(above.T[shape.places])
        left = np.concatenate(others) if others else lines[:0]
        self._met.append((shape, lines.size - left.size))
        if shape.columns and left.size < lines.size:
            self.batches.append(Batch(shape, np.concatenate(taken), np.concatenate(digits, axis=1)))
        return left

    def usual(self, count: int) -> Shape | None:
        """The shape that half of so many lines had, of those met since the last call."""
        usual = next((shape for shape, met in self._met if 2 * met >= count), None)
        self._met = []
        return usual


def _newlines(raw: Bytes) -> Ints:
    """Where the newlines are. Bytes are looked through in eights, of which few have one, and hardly any have two."""
    found = []
    for begin in range(0, raw.size, 2 * _AT_ONCE):
        marks = raw[begin : begin + 2 * _AT_ONCE] == 10
        eights = np.packbits(marks, bitorder="little")
        at = np.flatnonzero(eights != 0)
        bits = eights[at]
        if (bits & (bits - np.uint8(1))).any():
            at = np.flatnonzero(marks)
        else:
            at = at * 8 + np.bitwise_count(bits - np.uint8(1))
        found.append(at + begin)
    return np.concatenate(found)
