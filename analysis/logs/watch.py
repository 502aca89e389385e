"""What is watched while steps stream by: counts, first lines, and whether metrics that depend on each other agree.

Each watch takes batches of columns in order and keeps a bounded summary; none judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_MARKED = 1000


@dataclass
class Marked:
    """Steps at which something was seen: how many, and (step, line) of the first thousand."""

    count: int = 0
    where: list[tuple[float, int]] = field(default_factory=list)

    def see(self, mask: Bools, step: Floats, line: NDArray[np.int64]) -> None:
        """Count the rows of `mask`."""
        found = int(np.count_nonzero(mask))
        if not found:
            return
        self.count += found
        room = MOST_MARKED - len(self.where)
        if room > 0:
            at = np.flatnonzero(mask)[:room]
            self.where += [(float(step[i]), int(line[i])) for i in at]

    def forget_from(self, step: float) -> Marked:
        """Take out what was seen at `step` or later (it was done again), and return it."""
        gone = Marked(0, [pair for pair in self.where if pair[0] >= step])
        gone.count = len(gone.where)
        self.where = [pair for pair in self.where if pair[0] < step]
        self.count -= gone.count
        return gone

    def take(self, later: Marked) -> None:
        """Add what was seen in a later part."""
        self.count += later.count
        self.where = (self.where + later.where)[:MOST_MARKED]

    def lines(self) -> tuple[int, ...]:
        """Line numbers of the first ten."""
        return tuple(line for _, line in self.where[:10])


@dataclass
class Agreement:
    """Whether a quantity that must be the same at every step (a rate times a time, say) is.

    The reference is the median of the first 64 values; `odd` are the rows that deviate by more than their tolerance.
    """

    reference: float = float("nan")
    n: int = 0
    worst: float = 1.0
    odd: Marked = field(default_factory=Marked)
    _waiting: list[tuple[Floats, Floats, Floats, NDArray[np.int64]]] = field(default_factory=list)

    def see(self, value: Floats, tolerance: Floats, step: Floats, line: NDArray[np.int64]) -> None:
        """Rows with NaN are left out. `tolerance` is relative."""
        use = np.isfinite(value) & np.isfinite(tolerance)
        if not use.any():
            return
        if not use.all():
            value, tolerance, step, line = value[use], tolerance[use], step[use], line[use]
        self.n += value.size
        if np.isfinite(self.reference):
            self._compare(value, tolerance, step, line)
            return
        self._waiting.append((value, tolerance, step, line))
        if sum(part[0].size for part in self._waiting) >= 64:
            self.close()

    def close(self) -> None:
        """Fix the reference from what was seen so far."""
        if self._waiting:
            self.reference = float(np.median(np.concatenate([part[0] for part in self._waiting])))
            for part in self._waiting:
                self._compare(*part)
            self._waiting = []

    def take(self, later: Agreement) -> None:
        """Add a later part's rows, which were compared with that part's own reference; both are closed."""
        self.n += later.n
        self.odd.take(later.odd)
        if abs(later.worst - 1) > abs(self.worst - 1):
            self.worst = later.worst
        if np.isfinite(self.reference) and np.isfinite(later.reference) and self.reference:
            # parts that agree within themselves and not with each other: every row of the later one is odd
            if abs(later.reference / self.reference - 1) > 0.05:
                self.worst = later.reference / self.reference
                self.odd.count += later.n
        elif np.isfinite(later.reference):
            self.reference = later.reference

    def _compare(self, value: Floats, tolerance: Floats, step: Floats, line: NDArray[np.int64]) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = value / self.reference
        odd = ~(np.abs(ratio - 1) <= tolerance)
        if odd.any():
            self.odd.see(odd, step, line)
            bad = ratio[odd]
            far = float(bad[np.argmax(np.abs(bad - 1))])
            if not abs(self.worst - 1) >= abs(far - 1):
                self.worst = far


@dataclass
class Clock:
    """The log's own time stamps against its step times, within attempts."""

    backwards: Marked = field(default_factory=Marked)
    spacing: list[float] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)
    total_stated_s: float = 0.0
    total_clock_s: float = 0.0
    stated_rows: int = 0
    _last: float = float("nan")

    def restart(self) -> None:
        """Between attempts, time passes that no step took."""
        self._last = float("nan")

    def take(self, later: Clock) -> None:
        """Add a later part."""
        self.backwards.take(later.backwards)
        self.total_stated_s += later.total_stated_s
        self.total_clock_s += later.total_clock_s
        self.stated_rows += later.stated_rows
        self.spacing = (self.spacing + later.spacing)[:4096]
        self.stated = (self.stated + later.stated)[:4096]

    def see(self, unix: Floats, time_s: Floats, apart: Floats, step: Floats, line: NDArray[np.int64]) -> None:
        """`apart`: how many steps each row stands for."""
        spacing = np.diff(unix, prepend=self._last)
        self._last = float(unix[-1])
        self.backwards.see(spacing < -1e-3, step, line)
        use = np.isfinite(spacing) & np.isfinite(time_s) & np.isfinite(apart)
        self.stated_rows += int(np.count_nonzero(use))
        self.total_stated_s += float(np.sum((time_s * apart)[use]))
        self.total_clock_s += float(np.sum(spacing[use]))
        room = 4096 - len(self.spacing)
        if room > 0:
            self.spacing += (spacing / apart)[use][:room].tolist()
            self.stated += time_s[use][:room].tolist()


@dataclass
class Frozen:
    """The longest stretch of one and the same loss, and where it began."""

    longest: int = 0
    line: int = 0
    _value: float = float("nan")
    _length: int = 0
    _begin: int = 0

    def see(self, loss: Floats, line: NDArray[np.int64]) -> None:
        """Losses in order; NaN ends a stretch."""
        if loss.size == 0:
            return
        change = np.flatnonzero(np.concatenate(([loss[0] != self._value], loss[1:] != loss[:-1])))
        if change.size == 0:
            self._length += loss.size
        else:
            self._end(self._length + int(change[0]))
            ends = np.append(change[1:], loss.size)
            lengths = ends - change
            best = int(np.argmax(lengths))
            if lengths[best] > self.longest:
                self.longest, self.line = int(lengths[best]), int(line[change[best]])
            self._value, self._length, self._begin = float(loss[-1]), int(lengths[-1]), int(line[change[-1]])
        self._end(self._length)

    def _end(self, length: int) -> None:
        if length > self.longest:
            self.longest, self.line = length, self._begin
