"""Reads many lines at once: a line that differs from one already understood only in its digits needs no new look.

A framework prints millions of lines from a few format strings. A reader's `parse` understands one line and says where
its numbers stand. Lines that are the same but for their digits have one *shape* (a hash of the line with its digits
blanked; the blanked line itself is compared, too), and are then read as columns, in NumPy. What has no known shape goes
to `parse`, so that speed never changes what is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]

# A number as frameworks print it: 1,234  1.249e+03  nan  -inf
NUMBER = re.compile(rb"([-+]?)(?:(\d[\d,]*)?(?:\.(\d*))?(?:[eE]([-+]?\d+))?|(nan|inf(?:inity)?))", re.I)
# Shapes kept for one length of line, and in all; beyond it they are learned anew: hostile input costs time, not memory.
MOST_PER_LENGTH, MOST_SHAPES = 512, 4096
LONGEST = 1 << 16  # longer lines are read one by one
_WEIGHTS = np.random.default_rng(1).integers(1, 2**63, size=LONGEST // 8, dtype=np.uint64) | np.uint64(1)
_MOST_DIGITS, _MOST_EXPONENT = 40, 3
_POWERS = 10.0 ** np.arange(300)
_ZERO = 1 << 40  # a place behind every block, where a '0' stands


@dataclass(frozen=True)
class Spot:
    """Where a number stands in a line (`start`, `end`), and by what it is divided to be in the column's unit.

    `packed`: all digits there, whatever stands between them, are one whole number (a date, a time of day).
    """

    start: int
    end: int
    divisor: float = 1.0
    packed: bool = False


@dataclass(frozen=True)
class Parsed:
    """What `parse` found in a line: where its numbers stand, by column. No spots: an event, to be read by itself."""

    spots: Mapping[int, Spot]


EVENT = Parsed({})


@dataclass
class Rows:
    """Steps read from one block of lines, in their order: `values` (columns x n, NaN where absent), `present` (same
    shape) and `line` (line numbers, n)."""

    values: Floats
    present: Bools
    line: Ints


def number(line: bytes, spot: Spot) -> float | None:
    """The value of a printed number, or None when the text is not one. Thousands commas are allowed."""
    text = line[spot.start : spot.end]
    if spot.packed:
        return float(re.sub(rb"\D", b"", text) or b"nan") / spot.divisor
    match = NUMBER.fullmatch(text)
    if not match or not (match[2] or match[3] or match[5]):
        return None
    return float(text.replace(b",", b"")) / spot.divisor


def values_of(line: bytes, parsed: Parsed) -> dict[int, float]:
    """The numbers of one line, by column."""
    values = {column: number(line, spot) for column, spot in parsed.spots.items()}
    return {column: value for column, value in values.items() if value is not None}


class _Shape:
    """One known shape: the blanked line, and for each of its columns which bytes are its digits."""

    def __init__(self, line: bytes, blanked: Hashes, parsed: Parsed | None, columns: int) -> None:
        self.template = blanked.copy()
        self.columns = sorted(parsed.spots) if parsed else []
        self.digits = np.full((columns, _MOST_DIGITS), _ZERO, dtype=np.int64)
        self.exponent = np.full((columns, _MOST_EXPONENT), _ZERO, dtype=np.int64)
        self.factor = np.ones((4, columns))  # sign, divisor, constant, sign of the exponent
        self.factor[2] = 0.0
        for column in self.columns:
            assert parsed is not None
            self._place(line, column, parsed.spots[column])

    def _place(self, line: bytes, column: int, spot: Spot) -> None:
        if spot.packed:
            places = [place for place in range(spot.start, spot.end) if line[place] in b"0123456789"]
            self.digits[column, _MOST_DIGITS - len(places) :] = places
            self.factor[1, column] = spot.divisor
            return
        match = NUMBER.fullmatch(line, spot.start, spot.end)
        assert match is not None  # `number` read it before
        sign = -1.0 if match[1] == b"-" else 1.0
        if match[5] is not None:
            self.factor[2, column] = np.nan if match[5][:1] in b"nN" else sign * np.inf
            return
        digits = [*range(*match.span(2)), *range(*match.span(3))]
        digits = [place for place in digits if line[place] != 0x2C]
        self.digits[column, _MOST_DIGITS - len(digits) :] = digits
        # dividing by an exact power of ten rounds correctly, multiplying by 0.1 would not
        self.factor[0, column], self.factor[1, column] = sign, _POWERS[len(match[3] or b"")] * spot.divisor
        if match[4] is not None:
            places = [place for place in range(*match.span(4)) if line[place] not in b"+-"]
            self.exponent[column, _MOST_EXPONENT - len(places) :] = places
            self.factor[3, column] = -1.0 if match[4][:1] == b"-" else 1.0

    @staticmethod
    def fits(line: bytes, spots: Mapping[int, Spot]) -> bool:
        """Whether all numbers are short enough to be read as columns."""
        for spot in spots.values():
            if spot.packed:
                continue
            match = NUMBER.fullmatch(line, spot.start, spot.end)
            whole, fraction, power = (match[2] or b"", match[3] or b"", match[4] or b"") if match else (b"",) * 3
            if len(whole) + len(fraction) > _MOST_DIGITS or len(power.lstrip(b"+-")) > _MOST_EXPONENT - 1:
                return False
        return True


class _Family:
    """The known shapes of one length, as arrays."""

    def __init__(self) -> None:
        self.shapes: dict[int, _Shape] = {}
        self.stale = True

    def add(self, key: int, shape: _Shape) -> None:
        self.shapes[key] = shape
        self.stale = True

    def _refresh(self) -> None:
        self.keys = np.array(sorted(self.shapes), dtype=np.uint64)
        shapes = [self.shapes[int(key)] for key in self.keys]
        self.templates = np.stack([shape.template for shape in shapes])
        self.columns = sorted({column for shape in shapes for column in shape.columns})
        # mantissas first, then the exponents of those columns that have one; of each only as many places as are used
        blocks = [np.stack([shape.digits[column] for shape in shapes]) for column in self.columns]
        exponents = [np.stack([shape.exponent[column] for shape in shapes]) for column in self.columns]
        self.raised = [at for at, block in enumerate(exponents) if (block != _ZERO).any()]
        blocks += [exponents[at] for at in self.raised]
        blocks = [_fours(block[:, (block != _ZERO).any(axis=0)]) for block in blocks]
        self.places = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(shapes), 0), dtype=np.int64)
        self.weights = np.zeros((self.places.shape[1] // 4, len(blocks)))
        at = 0
        for index, block in enumerate(blocks):
            width = block.shape[1] // 4
            self.weights[at : at + width, index] = (_POWERS[: 4 * width : 4])[::-1]
            at += width
        self.factor = np.stack([shape.factor[:, self.columns] for shape in shapes])
        self.present = np.array([[column in shape.columns for column in self.columns] for shape in shapes], dtype=bool)
        self.noise = np.array([not shape.columns for shape in shapes])
        self.stale = False

    def find(self, hashes: Hashes, blanked: Hashes) -> Ints:
        """The index of each line's shape, or -1."""
        if not self.shapes:
            return np.full(hashes.size, -1, dtype=np.int64)
        if self.stale:
            self._refresh()
        index = np.minimum(np.searchsorted(self.keys, hashes), self.keys.size - 1)
        known = self.keys[index] == hashes
        one = int(index[0])
        templates = self.templates[one] if (index == one).all() else self.templates[index]
        known &= (blanked == templates).all(axis=1)
        return np.where(known, index, -1)

    def read(self, raw: Bytes, starts: Ints, index: Ints) -> Floats:
        """Values (n x columns of the family) of lines whose shapes are known. The last byte of `raw` is a '0'."""
        which: Any = index
        if (index == index[0]).all():  # usually: then columns of bytes are the same for all
            which, places = index[:1], self.places[index[0]]
            width = self.templates.shape[1] * 8
            windows: Bytes = np.ndarray((raw.size - width, width), np.uint8, raw, strides=(1, 1))
            absent = places == _ZERO
            digits = np.take(windows[starts], np.where(absent, 0, places), axis=1)
            digits -= np.uint8(48)
            digits[:, absent] = 0
        else:
            digits = raw.take(self.places[which] + starts[:, None], mode="clip")
            digits -= np.uint8(48)
        # two digits, then four: up to here in single bytes and words, which is cheap
        twos = digits[:, ::2] * np.uint8(10) + digits[:, 1::2]
        fours = twos[:, ::2] * np.uint16(100) + twos[:, 1::2]
        read = fours.astype(np.float64) @ self.weights
        factor = self.factor[which]
        count = len(self.columns)
        values = read[:, :count] * factor[:, 0]
        for at, column in enumerate(self.raised, count):
            power = (read[:, at] * factor[:, 3, column]).astype(np.int64)
            values[:, column] *= _POWERS[np.maximum(power, 0)]
            values[:, column] /= _POWERS[np.maximum(-power, 0)]
        values /= factor[:, 1]
        values += factor[:, 2]
        return np.asarray(values)


def _fours(places: Ints) -> Ints:
    """Places padded in front to a multiple of four."""
    return np.pad(places, ((0, 0), (-places.shape[1] % 4, 0)), constant_values=_ZERO)


@dataclass
class Scanner:
    """Turns blocks of lines into rows. `parse` decides by a line's text, never by its digits: a step's numbers, an
    event (no numbers), or None for a line that says nothing; what is said of one line holds for its shape."""

    columns: int
    parse: Callable[[bytes], Parsed | None]
    _families: dict[int, _Family] = field(default_factory=dict)
    _seen_once: set[int] = field(default_factory=set)
    _shapes: int = 0
    _forget: bool = False

    def __post_init__(self) -> None:
        # glibc gives large blocks back to the system and asks for them anew, which costs more than the work on them,
        # until a larger one was freed once (mallopt(3), M_MMAP_THRESHOLD); no page of this one is touched
        np.empty(30 << 20, dtype=np.uint8)

    def scan(self, block: bytes, first_line: int) -> tuple[Rows, list[int], Ints]:
        """Rows of a block of whole lines, the indices of its event lines, and where each line starts (and the end).

        Behind the lines stand eight bytes that are no newlines, and a '0'.
        """
        if self._forget:
            self._families, self._shapes, self._forget = {}, 0, False
        raw = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(raw == 10)
        bounds = np.concatenate((np.zeros(1, dtype=np.int64), ends + 1))
        lengths = ends - bounds[:-1]
        # in place: fresh memory for every step would cost more than the steps
        blanked = raw - np.uint8(48)
        np.greater_equal(blanked, 10, out=blanked.view(bool))
        np.negative(blanked, out=blanked)
        np.bitwise_and(raw, blanked, out=blanked)
        order = np.argsort(lengths, kind="stable")
        found = _Found(self.columns)
        for lines in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
            length = int(lengths[lines[0]]) if lines.size else 0
            if length > LONGEST:
                for index in lines:
                    self._one(block[bounds[index] : bounds[index] + length], int(index), found)
            elif length:
                self._group(_Group(block, raw, lines, bounds[lines], length), blanked, found)
        return found.rows(first_line), sorted(found.events), bounds

    def _group(self, group: _Group, blanked: Bytes, found: _Found) -> None:
        """All lines of one length."""
        width = -(-group.length // 8) * 8
        windows: Bytes = np.ndarray((blanked.size - width + 1, width), np.uint8, blanked, strides=(1, 1))
        rows = windows[group.starts]
        rows[:, group.length :] = 0
        words = rows.view(np.uint64)
        hashes = words @ _WEIGHTS[: width // 8]
        family = self._families.setdefault(group.length, _Family())
        index = family.find(hashes, words)
        for _ in range(2):
            if not self._learn(group, words, hashes, index, family, found):
                break
            index = np.where(index == -2, -2, family.find(hashes, words))  # learning renumbers shapes
        for at in np.flatnonzero(index == -1):  # no room to learn their shapes
            self._one(group.line(int(at)), int(group.lines[at]), found)
        known = index >= 0
        if known.any():
            known[known] = ~family.noise[index[known]]
        if known.any():
            lines, starts, index = (values[known] for values in (group.lines, group.starts, index))
            found.add(lines, family, index, family.read(group.raw, starts, index))

    def _learn(self, group: _Group, words: Hashes, hashes: Hashes, index: Ints, family: _Family, found: _Found) -> bool:
        """Look at lines of unknown shape: one by one, or (a shape seen twice) learn it. True: shapes were learned."""
        learned: set[int] = set()
        for at in np.flatnonzero(index == -1):
            key = int(hashes[at])
            if key in learned:
                continue
            line = group.line(int(at))
            parsed = self._parse(line) if key in self._seen_once else None
            if key not in self._seen_once or (
                parsed is not None and (not parsed.spots or not _Shape.fits(line, parsed.spots))
            ):
                if len(self._seen_once) >= 1 << 16:
                    self._seen_once.clear()
                self._seen_once.add(key)
                self._one(line, int(group.lines[at]), found)
                index[at] = -2
                continue
            if len(family.shapes) >= MOST_PER_LENGTH or self._shapes >= MOST_SHAPES:
                # full of shapes that did not come again: begin anew with the next block
                self._forget = True
                break
            self._shapes += 1
            family.add(key, _Shape(line, words[at], parsed, self.columns))
            learned.add(key)
        return bool(learned)

    def _parse(self, line: bytes) -> Parsed | None:
        """As `parse`, but an event where something that should be a number is none."""
        parsed = self.parse(line)
        if parsed and any(number(line, spot) is None for spot in parsed.spots.values()):
            return EVENT
        return parsed

    def _one(self, line: bytes, index: int, found: _Found) -> None:
        parsed = self._parse(line)
        if parsed is None:
            return
        if not parsed.spots:
            found.events.append(index)
            return
        found.single.append((index, values_of(line, parsed)))


@dataclass(frozen=True)
class _Group:
    """The lines of one length in a block: their indices and where they start."""

    block: bytes
    raw: Bytes
    lines: Ints
    starts: Ints
    length: int

    def line(self, at: int) -> bytes:
        """The text of one of them."""
        start = int(self.starts[at])
        return self.block[start : start + self.length]


class _Found:
    """What one block gave, until it is put in order."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.groups: list[tuple[Ints, list[int], Floats, Bools]] = []
        self.single: list[tuple[int, dict[int, float]]] = []
        self.events: list[int] = []

    def add(self, lines: Ints, family: _Family, index: Ints, values: Floats) -> None:
        """Lines read together; a family changes later, so what it says of them is taken now."""
        self.groups.append((lines, family.columns, values, family.present[index]))

    def rows(self, first_line: int) -> Rows:
        """Everything found, in order of the lines."""
        total = sum(group[0].size for group in self.groups) + len(self.single)
        values = np.full((self.columns, total), np.nan)
        present = np.zeros((self.columns, total), dtype=bool)
        line = np.zeros(total, dtype=np.int64)
        at = 0
        for lines, columns, read, there in self.groups:
            here = slice(at, at + lines.size)
            for index, column in enumerate(columns):
                values[column, here] = np.where(there[:, index], read[:, index], np.nan)
                present[column, here] = there[:, index]
            line[here] = lines
            at += lines.size
        for number_of_line, given in self.single:
            for column, value in given.items():
                values[column, at], present[column, at] = value, True
            line[at] = number_of_line
            at += 1
        line += first_line
        if np.all(line[1:] > line[:-1]):
            return Rows(values, present, line)
        order = np.argsort(line, kind="stable")
        return Rows(values[:, order], present[:, order], line[order])
