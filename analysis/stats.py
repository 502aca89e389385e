"""Medians and ratios of medians, with intervals from a block bootstrap over repeats.

Iterations next to each other are not independent (clocks and temperature drift), and repeats differ by more than their
iterations do. So a resample draws repeats with replacement and, within each, blocks of consecutive iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 2000
MOST_AT_ONCE = 1 << 19  # values drawn at a time
SEED = 20250401  # fixed: the same raw results give the same interval, digit for digit


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; `n` counts iterations, `repeats` the runs they come from."""

    value: float
    low: float
    high: float
    n: int
    repeats: int


def block_length(n: int) -> int:
    """Block length for n iterations: n to the power 1/3, the usual rate for the block bootstrap (Hall et al. 1995)."""
    length: int = round(float(n) ** (1 / 3))
    return max(1, length)


def _resampled_medians(
    rng: np.random.Generator, repeats: Sequence[NDArray[np.float64]], chosen: NDArray[np.int64]
) -> NDArray[np.float64]:
    """One median a resample. `chosen` (resamples x repeats) says which repeats each resample draws.

    Repeats of different length are padded with NaN, which the median leaves out.
    """
    sizes = np.array([series.size for series in repeats])
    longest = int(sizes.max())
    length = min(block_length(longest), int(sizes.min()))
    padded = np.full((len(repeats), longest), np.nan)
    for row, series in enumerate(repeats):
        padded[row, : series.size] = series
    blocks = -(-longest // length)
    last_start = (sizes[chosen] - length)[:, :, None]
    starts = rng.integers(0, last_start + 1, size=(*chosen.shape, blocks))
    # some resamples at a time: all of a long series would not fit into memory
    some = max(1, MOST_AT_ONCE // (longest * chosen.shape[1]))
    return np.concatenate(
        [
            _medians(padded, sizes, chosen[at : at + some], starts[at : at + some], length)
            for at in range(0, len(chosen), some)
        ]
    )


def _medians(
    padded: NDArray[np.float64],
    sizes: NDArray[np.int64],
    chosen: NDArray[np.int64],
    starts: NDArray[np.int64],
    length: int,
) -> NDArray[np.float64]:
    longest = padded.shape[1]
    positions = (starts[..., None] + np.arange(length)).reshape(*chosen.shape, -1)[..., :longest]
    drawn = padded[chosen[:, :, None], positions]
    if np.any(sizes != longest):
        drawn = np.where(np.arange(longest) < sizes[chosen][:, :, None], drawn, np.nan)
        return np.asarray(np.nanmedian(drawn.reshape(len(chosen), -1), axis=1))
    return np.asarray(np.median(drawn.reshape(len(chosen), -1), axis=1))


def _series(repeats: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
    if not repeats or any(len(values) == 0 for values in repeats):
        raise ValueError("every repeat needs at least one value, and there must be one repeat")
    return [np.asarray(values, dtype=np.float64) for values in repeats]


def _interval(samples: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(low), float(high)


def _draw(rng: np.random.Generator, repeats: int) -> NDArray[np.int64]:
    return rng.integers(0, repeats, size=(RESAMPLES, repeats))


def median(repeats: Sequence[Sequence[float]]) -> Estimate:
    """Median over all iterations of all repeats, with its interval. Raises ValueError for an empty repeat."""
    series = _series(repeats)
    rng = np.random.default_rng(SEED)
    low, high = _interval(_resampled_medians(rng, series, _draw(rng, len(series))))
    pooled = np.concatenate(series)
    return Estimate(float(np.median(pooled)), low, high, int(pooled.size), len(series))


def ratio_of_medians(base: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> Estimate:
    """median(base) / median(other): a speedup when both are times. `n` counts the iterations of both.

    With equally many repeats on both sides, a resample draws the same repeats of both: they ran interleaved, so that
    repeat i of one met the machine in the state that repeat i of the other did. Raises ValueError for an empty repeat.
    """
    first, second = _series(base), _series(other)
    rng = np.random.default_rng(SEED)
    chosen = _draw(rng, len(first))
    partner = chosen if len(first) == len(second) else _draw(rng, len(second))
    low, high = _interval(_resampled_medians(rng, first, chosen) / _resampled_medians(rng, second, partner))
    pooled = [np.concatenate(first), np.concatenate(second)]
    value = float(np.median(pooled[0]) / np.median(pooled[1]))
    return Estimate(value, low, high, int(pooled[0].size + pooled[1].size), min(len(first), len(second)))


def smoothed(values: NDArray[np.float64], width: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Running median over `width` values, at most 2000 of them, and the index of the last value in each."""
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    last = np.unique(np.linspace(0, len(windows) - 1, min(len(windows), 2000)).astype(np.int64))
    return np.concatenate([np.median(windows[part], axis=1) for part in np.array_split(last, 8) if part.size]), (
        last + width - 1
    )
