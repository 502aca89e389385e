"""The columns that every log reader fills, and helpers that readers share to say where in a line they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from analysis.logs.layout import Rows, Spot


class Column(IntEnum):
    """What a step line can state; units in the names. A rate is per GPU (or TPU core)."""

    STEP = 0
    TOTAL = 1
    STEP_TIME_S = 2
    LOSS = 3
    GRAD_NORM = 4
    LEARNING_RATE = 5
    BATCH_SAMPLES = 6
    CONSUMED_SAMPLES = 7
    TOKENS_PER_S = 8
    TFLOPS = 9
    SKIPPED = 10
    NAN_COUNT = 11
    RANK = 12
    LOCAL_RANK = 13
    UNIX_S = 14
    DATE = 15  # digits of the date, 20260327 (or 327 without a year)
    CLOCK = 16  # digits of the time of day, 173057.471535


STAMP = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,](\d{1,9}))?)")
# who printed a line: srun -l ("31: "), torchrun ("[default3]:", "[rank3]:")
RANK = re.compile(rb"\s*(?:(\d{1,7}):\s)?\s*(?:\S{0,24}/\d+ )?(?:\[(?:default|rank)(\d{1,7})\]:)?")


def prefix(line: bytes, end: int) -> dict[int, Spot]:
    """Rank and time stamp in front of a step line's own text, which starts at `end`."""
    spots: dict[int, Spot] = {}
    rank = RANK.match(line, 0, end)
    if rank:
        for group, column in ((1, Column.RANK), (2, Column.LOCAL_RANK)):
            if rank[group] is not None:
                spots[column] = Spot(*rank.span(group))
    stamp = STAMP.search(line, 0, end)
    if stamp:
        spots[Column.DATE] = Spot(*stamp.span(1), packed=True)
        spots[Column.CLOCK] = Spot(*stamp.span(2), 10.0 ** len(stamp[3] or b""), packed=True)
    return spots


def named(
    line: bytes, fields: re.Pattern[bytes], start: int, columns: Mapping[bytes, tuple[Column, float]]
) -> dict[int, Spot]:
    """Spots of `key: value` fields from `start` on; `fields` has the groups key and value. A key counts once."""
    spots: dict[int, Spot] = {}
    for match in fields.finditer(line, start):
        known = columns.get(match["key"])
        if known and known[0] not in spots:
            spots[known[0]] = Spot(*match.span("value"), known[1])
    return spots


def unix_s(rows: Rows) -> NDArray[np.float64]:
    """When each step was printed: its own time stamp as seconds since 1970 (its own zone), NaN where there is none.

    Days by Howard Hinnant's days_from_civil; a stamp without a year counts from an arbitrary one.
    """
    stated, date, clock = (rows.values[column] for column in (Column.UNIX_S, Column.DATE, Column.CLOCK))
    if not rows.present[Column.DATE].any():
        return np.asarray(stated)
    # `%` takes ten times as long
    minutes = np.floor(clock / 100)
    hours = np.floor(minutes / 100)
    # a block seldom spans midnight
    day = _days(date[:1]) if (date == date[0]).all() else _days(date)
    printed = day * 86400 + hours * 3600 + (minutes - 100 * hours) * 60 + (clock - 100 * minutes)
    return np.asarray(np.where(np.isnan(stated), printed, stated))


def _days(date: NDArray[np.float64]) -> NDArray[np.float64]:
    """Days since 1970-01-01 of dates written as 20260327."""
    year, month, day = np.floor(date / 10000), np.floor(date / 100) % 100, date % 100
    year = np.where(year == 0, 2000.0, year) - (month <= 2)
    era = np.floor(year / 400)
    of_era = year - 400 * era
    of_year = np.floor((153 * (month + np.where(month > 2, -3, 9)) + 2) / 5) + day - 1
    return np.asarray(era * 146097 + of_era * 365 + np.floor(of_era / 4) - np.floor(of_era / 100) + of_year - 719468)
