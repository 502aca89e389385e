"""The steps of one run as one rank printed them, in bounded memory: attempts, gaps, and what was watched on the way.

After a restart the last attempt wins: steps that were done again replace the earlier ones, which are compared with
them first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.logs.columns import Column, unix_s
from analysis.logs.layout import Rows
from analysis.logs.watch import Agreement, Clock, Floats, Frozen, Marked

# Rows kept; of more, every other stretch of 64 is dropped.
MOST_KEPT = 3 << 16
_STRETCH = 64
_EARLY = 64
MARKED = ("same_step", "loss_bad", "loss_absent", "grad_bad", "nan_counted", "time_bad", "learning_rate_odd")
KEPT = ("step", "time_s", "loss", "tokens_per_s", "unix_s", "line", "first_of_attempt", "learning_rate")


@dataclass
class Overlap:
    """What two attempts have in common: how many steps, the largest relative difference of their losses, and by how
    many samples the later one is off where it begins."""

    steps: int = 0
    worst_loss_difference: float = 0.0
    samples_off: float = 0.0


@dataclass
class Timeline:
    """Steps in order. `kept` columns are bounded; counts and watches see every step."""

    attempts: list[tuple[float, float, int]] = field(default_factory=list)  # first step, last step, line
    repeated: int = 0
    same_step: Marked = field(default_factory=Marked)
    rows: int = 0
    _early: list[tuple[float, float]] = field(default_factory=list)  # neighbours, while the usual distance is not known
    _gaps: list[tuple[float, float]] = field(default_factory=list)
    steps_apart: Counter[float] = field(default_factory=Counter)
    overlaps: list[Overlap] = field(default_factory=list)
    loss_bad: Marked = field(default_factory=Marked)
    loss_absent: Marked = field(default_factory=Marked)
    loss_seen: int = 0
    loss_not_zero: int = 0
    redone_bad: int = 0
    grad_bad: Marked = field(default_factory=Marked)
    nan_counted: Marked = field(default_factory=Marked)
    time_bad: Marked = field(default_factory=Marked)
    tokens: Agreement = field(default_factory=Agreement)
    work: Agreement = field(default_factory=Agreement)
    samples: Agreement = field(default_factory=Agreement)
    learning_rate_odd: Marked = field(default_factory=Marked)
    clock: Clock = field(default_factory=Clock)
    frozen: Frozen = field(default_factory=Frozen)
    skipped: bool = False  # whether some optimizer step was skipped (loss scaling)
    first_loss: float = float("nan")
    least_loss: float = float("inf")
    largest_tflops: float = 0.0
    settled_tflops: float = 0.0  # the largest after step 1: asynchronous dispatch makes the first ones look too fast
    last_row: dict[str, float] = field(default_factory=dict)
    first_row: dict[str, float] = field(default_factory=dict)
    _expect_samples: float = float("nan")
    batch_sizes: set[float] = field(default_factory=set)
    totals: set[float] = field(default_factory=set)
    _thinned: bool = False
    _room: Floats = field(default_factory=lambda: np.zeros((len(KEPT), 64)))  # of which the first _size rows are kept
    _size: int = 0
    _tail: Floats = field(default_factory=lambda: np.zeros((4, 0)))  # step, lr, consumed, batch of the last two rows
    _redone: Floats = field(default_factory=lambda: np.zeros((len(KEPT), 0)))

    @property
    def last_step(self) -> float:
        """The last step of the attempt that runs, NaN before the first."""
        return self.attempts[-1][1] if self.attempts else float("nan")

    def table(self) -> dict[str, Floats]:
        """Kept columns by name (see KEPT), in order of steps."""
        return dict(zip(KEPT, self._kept, strict=True))

    @property
    def _kept(self) -> Floats:
        return self._room[:, : self._size]

    def restart_at(self, step: float, line: int) -> None:
        """A new attempt begins at `step`: forget what it does again, and remember it for comparing."""
        cut = int(np.searchsorted(self._kept[0], step))
        redone = self._redone = self._kept[:, cut:].copy()
        self._size = cut
        # where older rows were thinned, they no longer count the steps that are done again
        again = round((self.last_step - step) / self.usual_apart()) + 1
        self.repeated += again if self._thinned and redone.shape[1] else redone.shape[1]
        self.overlaps.append(Overlap())
        self._gaps = [gap for gap in self._gaps if gap[1] < step]
        self._early = [pair for pair in self._early if pair[1] < step]
        for marked in (self.loss_bad, self.loss_absent, self.grad_bad, self.nan_counted):
            self.redone_bad += marked.forget_from(step).count
        if cut:
            self._early.append((float(self._kept[0, -1]), step))
        self._expect_samples = self._samples_at(step)
        self.attempts.append((step, step, line))
        self.clock.restart()
        self._tail = np.zeros((4, 0))

    def _samples_at(self, step: float) -> float:
        """Samples consumed at an earlier or the next step, by the last row and a batch that never changed; else NaN."""
        consumed = self.last_row.get("consumed_samples", np.nan)
        if len(self.batch_sizes) != 1:
            return float("nan")
        return consumed - next(iter(self.batch_sizes)) * (self.last_step - step)

    def join(self, later: Timeline) -> None:
        """Go on with the steps of another log of the same run, which resumed it; both are closed."""
        line, first = later.attempts[0][2], later.attempts[0][0]
        expected = self._samples_at(first)
        self.restart_at(first, line)
        self.attempts[-1] = later.attempts[0]
        self.attempts += later.attempts[1:]
        self._compare(later._kept)
        begin = later.first_row.get("consumed_samples", np.nan)
        if np.isfinite(expected) and np.isfinite(begin):
            self.overlaps[-1].samples_off = begin - expected
        self.overlaps += later.overlaps
        kept = self._keep(list(later._kept))
        if kept.size:
            kept[KEPT.index("first_of_attempt"), 0] = 1.0
        self._gaps += later._gaps
        self._early += later._early
        self.steps_apart.update(later.steps_apart)
        self.rows += later.rows
        self.repeated += later.repeated
        self._thinned = self._thinned or later._thinned
        self.redone_bad += later.redone_bad
        self.loss_seen += later.loss_seen
        self.loss_not_zero += later.loss_not_zero
        self.least_loss = min(self.least_loss, later.least_loss)
        self.largest_tflops = max(self.largest_tflops, later.largest_tflops)
        self.settled_tflops = max(self.settled_tflops, later.settled_tflops)
        self.last_row = later.last_row
        self.skipped = self.skipped or later.skipped
        self.batch_sizes |= later.batch_sizes
        self.totals |= later.totals
        if later.frozen.longest > self.frozen.longest:
            self.frozen = later.frozen
        for name in MARKED:
            getattr(self, name).take(getattr(later, name))
        for name in ("tokens", "work", "samples"):
            getattr(self, name).take(getattr(later, name))
        self.clock.take(later.clock)
        self._thin()

    def usual_apart(self) -> float:
        """How many steps lie between two printed ones: the most frequent distance."""
        if not self.steps_apart:
            return 1.0
        return max(self.steps_apart.items(), key=lambda item: (item[1], -item[0]))[0]

    def add(self, rows: Rows, tolerance: tuple[float, float], running_rate: bool, batch: float | None) -> None:
        """Rows of one attempt, steps strictly increasing. `tolerance`: rounding of the printed time (s) and relative.

        `batch`: samples of a step where the lines do not say and may count samples instead of steps.
        """
        values, line = rows.values, rows.line
        step = values[Column.STEP]
        begin = not self.attempts or self._begins(step, line)
        previous = self.last_step
        apart = np.diff(step, prepend=previous if self.rows and not begin else np.nan)
        self._distances(step, apart)
        unix, consumed = unix_s(rows), values[Column.CONSUMED_SAMPLES]
        if not self.attempts:
            self.attempts.append((float(step[0]), float(step[0]), int(line[0])))
        elif begin and np.isfinite(self._expect_samples) and np.isfinite(consumed[0]):
            self.overlaps[-1].samples_off = float(consumed[0]) - self._expect_samples
        first = np.zeros(step.size)
        first[0] = 1.0 if begin and len(self.attempts) > 1 else 0.0
        self._watch_rates(rows, step, line, apart, tolerance, running_rate)
        real = apart
        if batch and np.isfinite(consumed).all() and not rows.present[Column.BATCH_SAMPLES].any():
            real = np.diff(consumed, prepend=self.last_row.get("consumed_samples", np.nan)) / batch
        self.clock.see(unix, values[Column.STEP_TIME_S], np.nan_to_num(real, nan=1.0), step, line)
        self._watch_loss(rows, step, line, apart)
        columns = (Column.STEP_TIME_S, Column.LOSS, Column.TOKENS_PER_S)
        kept = [step, *(values[name] for name in columns), unix, line, first, values[Column.LEARNING_RATE]]
        self._compare(self._keep(kept))
        self.rows += step.size
        start = self.attempts[-1]
        self.attempts[-1] = (start[0], float(step[-1]), start[2])
        self._thin()

    def _begins(self, step: Floats, line: NDArray[np.int64]) -> bool:
        """Whether these are the first rows of an attempt."""
        first, last, at = self.attempts[-1]
        return first == last and at == int(line[0])

    def _distances(self, step: Floats, apart: Floats) -> None:
        known = apart[np.isfinite(apart)]
        if known.size == 0:
            return
        usual = self.usual_apart()
        room = _EARLY - len(self._early)
        if room > 0:
            at = np.flatnonzero(np.isfinite(apart))[:room]
            self._early += [(float(step[i] - apart[i]), float(step[i])) for i in at]
        if (known == usual).all():
            self.steps_apart[usual] += known.size
        else:
            sizes, counts = np.unique(known, return_counts=True)
            if len(self.steps_apart) < 1000:
                self.steps_apart.update(dict(zip(sizes.tolist(), counts.tolist(), strict=True)))
            usual = self.usual_apart()
        odd = np.flatnonzero(np.isfinite(apart) & (apart != usual))[: max(0, 10_000 - len(self._gaps))]
        self._gaps += [(float(step[i] - apart[i]), float(step[i])) for i in odd]

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """Neighbouring printed steps that lie further apart (or closer) than usual."""
        usual = self.usual_apart()
        return sorted({pair for pair in (*self._early, *self._gaps) if pair[1] - pair[0] != usual})

    def _watch_loss(self, rows: Rows, step: Floats, line: NDArray[np.int64], apart: Floats) -> None:
        values, present = rows.values, rows.present
        loss, printed = values[Column.LOSS], present[Column.LOSS]
        finite = np.isfinite(loss)
        skipped = values[Column.SKIPPED]
        # a printed interval without one successful step has no loss and no gradient: not a NaN
        all_skipped = skipped >= np.maximum(1, np.nan_to_num(apart, nan=1.0))
        self.loss_bad.see(printed & ~finite, step, line)
        self.loss_absent.see(~printed & ~all_skipped, step, line)
        grad = present[Column.GRAD_NORM] & ~np.isfinite(values[Column.GRAD_NORM]) & ~(skipped > 0)
        self.grad_bad.see(grad, step, line)
        self.nan_counted.see(values[Column.NAN_COUNT] > 0, step, line)
        seen = loss[finite]
        if seen.size:
            if not self.loss_seen:
                self.first_loss = float(seen[0])
            self.loss_seen += seen.size
            self.loss_not_zero += int(np.count_nonzero(seen))
            self.least_loss = min(self.least_loss, float(seen.min()))
        self.skipped = self.skipped or bool(np.any(skipped > 0))
        self.frozen.see(loss, line)
        names = {"loss": Column.LOSS, "grad_norm": Column.GRAD_NORM, "consumed_samples": Column.CONSUMED_SAMPLES}
        for name, column in names.items():
            if present[column, -1]:
                self.last_row[name] = float(values[column, -1])
            if not self.rows and present[column, 0]:
                self.first_row[name] = float(values[column, 0])
        for column, found in ((Column.BATCH_SAMPLES, self.batch_sizes), (Column.TOTAL, self.totals)):
            if present[column].any() and len(found) < 1000:
                found.update(np.unique(values[column][present[column]]).tolist())

    def _watch_rates(
        self,
        rows: Rows,
        step: Floats,
        line: NDArray[np.int64],
        apart: Floats,
        tolerance: tuple[float, float],
        running_rate: bool,
    ) -> None:
        values, present = rows.values, rows.present
        time_s = values[Column.STEP_TIME_S]
        self.time_bad.see(present[Column.STEP_TIME_S] & ~(np.isfinite(time_s) & (time_s > 0)), step, line)
        batch = values[Column.BATCH_SAMPLES]
        per_batch = np.where(present[Column.BATCH_SAMPLES] & (batch > 0), batch, 1.0)
        rated, worked = present[Column.TOKENS_PER_S].any(), present[Column.TFLOPS].any()
        with np.errstate(all="ignore"):
            rounding = tolerance[0] / time_s + tolerance[1]
            if rated:
                self.tokens.see(values[Column.TOKENS_PER_S] * time_s / per_batch, rounding, step, line)
            if worked:
                rate = values[Column.TFLOPS]
                rate = np.where(rate > 0, rate, np.nan)
                self.work.see(_work(rate, time_s, running_rate) / per_batch, rounding + 0.05 / rate, step, line)
                later = rate[int(np.searchsorted(step, 1, side="right")) :]
                self.largest_tflops = max(self.largest_tflops, float(np.fmax.reduce(rate, initial=0.0)))
                self.settled_tflops = max(self.settled_tflops, float(np.fmax.reduce(later, initial=0.0)))
        if present[Column.LEARNING_RATE].any() or present[Column.CONSUMED_SAMPLES].any():
            self._watch_samples(rows, step, line, batch)

    def _watch_samples(self, rows: Rows, step: Floats, line: NDArray[np.int64], batch: Floats) -> None:
        """Consumed samples and learning rate, from one row to the next."""
        learning_rate, consumed = (rows.values[name] for name in (Column.LEARNING_RATE, Column.CONSUMED_SAMPLES))
        tail = np.concatenate([self._tail, np.stack([step, learning_rate, consumed, batch])], axis=1)
        if tail.shape[1] > 1:
            moved, distance = np.diff(tail[2]), np.diff(tail[0])
            # the batch may grow (ramp-up): then samples of an interval lie between the two sizes
            steady = ~(tail[3, 1:] != tail[3, :-1]) | np.isnan(tail[3, 1:])
            expected = np.where(np.isnan(tail[3, 1:]), 1.0, tail[3, 1:])
            with np.errstate(all="ignore"):
                per_step = np.where(steady, moved / distance / expected, np.nan)
            count = min(per_step.size, line.size)
            self.samples.see(per_step[-count:], np.full(count, 1e-6), step[-count:], line[-count:])
            self._watch_learning_rate(tail[1], tail[0], line)
        self._tail = tail[:, -2:]

    def _watch_learning_rate(self, rate: Floats, step: Floats, line: NDArray[np.int64]) -> None:
        """A schedule is smooth: a row that stands out while its neighbours agree was not printed by one."""
        if rate.size < 3:
            return
        before, here, after = rate[:-2], rate[1:-1], rate[2:]
        with np.errstate(all="ignore"):
            apart = np.abs(after / before - 1)
            odd = (apart < 0.15) & (np.abs(here / ((before + after) / 2) - 1) > 0.05 + 2 * apart)
        at = np.arange(-odd.size - 1, -1)
        known = at >= -line.size
        self.learning_rate_odd.see(odd[known], step[1:-1][known], line[at[known]])

    def _compare(self, kept: Floats) -> None:
        """Losses of steps that are done again, with those of the earlier attempt."""
        if not self._redone.shape[1]:
            return
        _, old, new = np.intersect1d(self._redone[0], kept[0], return_indices=True)
        if old.size:
            overlap = self.overlaps[-1]
            overlap.steps += int(old.size)
            with np.errstate(all="ignore"):
                difference = np.abs(kept[2, new] / self._redone[2, old] - 1)
            difference = difference[np.isfinite(difference)]
            if difference.size:
                overlap.worst_loss_difference = max(overlap.worst_loss_difference, float(difference.max()))

    def _keep(self, columns: Sequence[NDArray[Any]]) -> Floats:
        """Put rows behind those that are kept; returns them, where they are kept."""
        begin, self._size = self._size, self._size + columns[0].size
        if self._size > self._room.shape[1]:
            room = np.empty((len(KEPT), max(self._size, 2 * self._room.shape[1])))
            room[:, :begin] = self._room[:, :begin]
            self._room = room
        for row, column in zip(self._kept, columns, strict=True):
            row[begin:] = column
        return self._kept[:, begin:]

    def _thin(self) -> None:
        """Drop every other stretch while there are too many rows; in place: fresh memory is slow."""
        while self._size > MOST_KEPT:
            pairs, rest = divmod(self._size, 2 * _STRETCH)
            rest = min(rest, _STRETCH)
            for row in self._kept:
                row[: pairs * _STRETCH] = row[: pairs * 2 * _STRETCH].reshape(pairs, 2, _STRETCH)[:, 0].ravel()
                row[pairs * _STRETCH : pairs * _STRETCH + rest] = row[pairs * 2 * _STRETCH :][:rest]
            self._size = pairs * _STRETCH + rest
            self._thinned = True

    def close(self) -> None:
        """No more rows will come."""
        for agreement in (self.tokens, self.work, self.samples):
            agreement.close()


def _work(rate: Floats, time_s: Floats, running: bool) -> Floats:
    """Work of a step: rate times time. A running rate lags: a row whose rate fits a neighbour's time, while its own
    time fits a neighbour's rate, counts as agreeing."""
    product = rate * time_s
    if not running or product.size < 2 or not np.isfinite(product).any():
        return product
    middle = float(np.nanmedian(product[:4096]))
    odd = np.flatnonzero(np.abs(product / middle - 1) > 0.05)
    sides = (np.maximum(odd - 1, 0), np.minimum(odd + 1, product.size - 1))

    def fits(one: Floats, other: Floats) -> NDArray[np.bool_]:
        near = [np.abs(one[odd] * other[side] / middle - 1) < 0.1 for side in sides]
        return np.asarray(near[0] | near[1])

    product[odd[fits(rate, time_s) & fits(time_s, rate)]] = middle
    return np.asarray(product)
