"""Reads many lines at once: a line that differs from one already understood only in its digits needs no new look.

A framework prints millions of lines from a few format strings. A reader's `parse` understands one line and says where
its numbers stand. Lines that are the same but for their digits have one *shape*, and are read as columns, in NumPy
(scanner.py finds them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

# A number as frameworks print it: 1,234  1.249e+03  nan  -inf
NUMBER = re.compile(rb"([-+]?)(?:(\d[\d,]*)?(?:\.(\d*))?(?:[eE]([-+]?\d+))?|(nan|inf(?:inity)?))", re.I)
_MOST_DIGITS, _MOST_EXPONENT = 40, 2
_POWERS = 10.0 ** np.arange(300)


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


class Shape:
    """One known shape: the line with a '0' for every digit, by how much each byte may exceed that, and which bytes are
    whose digits: `digits` by (is an exponent, column)."""

    def __init__(self, line: bytes, parsed: Parsed | None, columns: int) -> None:
        text = np.frombuffer(line + b"\n", dtype=np.uint8)
        digit = text - np.uint8(48) < 10
        self.template = np.where(digit, np.uint8(48), text)
        self.limit = np.where(digit, np.uint8(9), np.uint8(0))
        self.columns = sorted(parsed.spots) if parsed else []
        self.digits: dict[tuple[bool, int], list[int]] = {(False, column): [] for column in self.columns}
        self.negative_exponent: set[int] = set()
        self.divisor = np.ones((columns, 1))
        self.constant = np.full((columns, 1), np.nan)
        self.constant[self.columns] = 0.0
        for column in self.columns:
            assert parsed is not None
            self._place(line, column, parsed.spots[column])
        self.places = np.array([place for places in self.digits.values() for place in places], dtype=np.int64)

    def _place(self, line: bytes, column: int, spot: Spot) -> None:
        if spot.packed:
            places = range(spot.start, spot.end)
            self.digits[False, column] = [place for place in places if line[place] in b"0123456789"]
            self.divisor[column] = spot.divisor
            return
        match = NUMBER.fullmatch(line, spot.start, spot.end)
        assert match is not None  # `number` read it before
        sign = -1.0 if match[1] == b"-" else 1.0
        if match[5] is not None:
            self.constant[column] = np.nan if match[5][:1] in b"nN" else sign * np.inf
            return
        digits = [*range(*match.span(2)), *range(*match.span(3))]
        self.digits[False, column] = [place for place in digits if line[place] != 0x2C]
        # dividing by an exact power of ten rounds correctly, multiplying by 0.1 would not
        self.divisor[column] = sign * _POWERS[len(match[3] or b"")] * spot.divisor
        if match[4] is not None:
            self.digits[True, column] = [place for place in range(*match.span(4)) if line[place] not in b"+-"]
            if match[4][:1] == b"-":
                self.negative_exponent.add(column)

    @staticmethod
    def fits(line: bytes, spots: Mapping[int, Spot]) -> bool:
        """Whether all numbers are short enough to be read as columns."""
        for spot in spots.values():
            if spot.packed:
                continue
            match = NUMBER.fullmatch(line, spot.start, spot.end)
            whole, fraction, power = (match[2] or b"", match[3] or b"", match[4] or b"") if match else (b"",) * 3
            if len(whole) + len(fraction) > _MOST_DIGITS or len(power.lstrip(b"+-")) > _MOST_EXPONENT:
                return False
        return True


@dataclass(frozen=True)
class Batch:
    """Lines of one shape: their indices, and their digits (places of the shape x lines)."""

    shape: Shape
    lines: Ints
    digits: Bytes


@dataclass(frozen=True)
class _Room:
    """Where a shape's digits go, whose value is multiplied or divided by which power of ten, and what follows."""

    rows: Ints
    raised: Sequence[tuple[int, int, np.ufunc]]
    divisor: Floats
    constant: Floats


class Numbers:
    """Reads the numbers of many lines at once, of all shapes. For each part of a number (its mantissa, its exponent)
    there is room for the longest one so far, in groups of four digits; mantissas come first."""

    def __init__(self) -> None:
        self._widths: dict[tuple[bool, int], int] = {}
        self._ends: dict[tuple[bool, int], int] = {}
        self._known: dict[Shape, _Room] = {}

    def widen(self, shape: Shape) -> None:
        """Make room for a new shape."""
        for part, places in shape.digits.items():
            self._widths[part] = max(self._widths.get(part, 0), -(-len(places) // 4) * 4)
        self._ends, end = {}, 0
        for part in sorted(self._widths):
            end += self._widths[part]
            self._ends[part] = end
        self._known.clear()

    def _room(self, shape: Shape) -> _Room:
        if shape not in self._known:
            ends = [(self._ends[part], len(places)) for part, places in shape.digits.items()]
            rows = np.array([row for end, width in ends for row in range(end - width, end)], dtype=np.int64)
            order = list(self._ends)
            raised = [
                (order.index((False, column)), row, np.divide if column in shape.negative_exponent else np.multiply)
                for row, (exponent, column) in enumerate(order)
                if exponent and (exponent, column) in shape.digits
            ]
            columns = [column for exponent, column in order if not exponent]
            self._known[shape] = _Room(rows, raised, shape.divisor[columns], shape.constant[columns])
        return self._known[shape]

    def read(self, batches: list[Batch]) -> tuple[list[int], Floats]:
        """Columns and their values (columns x lines), batch by batch; NaN where a shape has no such column."""
        slots = np.cumsum([0, *(batch.lines.size for batch in batches)]).tolist()
        rooms = [(self._room(batch.shape), slice(*slot)) for batch, slot in zip(batches, pairwise(slots), strict=True)]
        # digits of one place lie side by side, so that each step works through long rows
        digits = np.zeros((sum(self._widths.values()), slots[-1]), dtype=np.uint8)
        for batch, (room, here) in zip(batches, rooms, strict=True):
            digits[room.rows, here] = batch.digits
        twos = digits[::2] * np.uint8(10)
        twos += digits[1::2]
        fours = twos[::2] * np.uint16(100)
        fours += twos[1::2]
        read = np.zeros((len(self._ends), slots[-1]))
        for number_read, (part, end) in zip(read, self._ends.items(), strict=True):
            for four in fours[(end - self._widths[part]) // 4 : end // 4]:
                number_read *= 10_000
                number_read += four
        columns = [column for exponent, column in self._ends if not exponent]
        values = read[: len(columns)]
        for room, here in rooms:
            for row, exponent, raise_ in room.raised:
                raise_(values[row, here], _POWERS[read[exponent, here].astype(np.int64)], out=values[row, here])
            values[:, here] /= room.divisor
            values[:, here] += room.constant
        return columns, values
