"""Intervals: right on known cases, covering about as often as they say, and the same digits every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.stats import block_length, median, ratio_of_medians

positive = st.floats(0.001, 1000, allow_nan=False)


def test_constant_series_have_no_width() -> None:
    found = ratio_of_medians([[2.0] * 10] * 3, [[1.0] * 10] * 3)
    assert (found.value, found.low, found.high, found.n, found.repeats) == (2, 2, 2, 60, 3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(positive, min_size=1, max_size=20), min_size=1, max_size=4))
def test_the_interval_lies_within_the_data(repeats: list[list[float]]) -> None:
    found = median(repeats)
    flat = [value for repeat in repeats for value in repeat]
    assert min(flat) <= found.low <= found.high <= max(flat)
    assert found.value == np.median(flat)
    assert found.n == len(flat)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(positive, min_size=5, max_size=9), min_size=2, max_size=3), st.floats(0.1, 10))
def test_the_ratio_scales(repeats: list[list[float]], factor: float) -> None:
    scaled = [[value * factor for value in repeat] for repeat in repeats]
    found = ratio_of_medians(scaled, repeats)
    assert found.value == pytest.approx(factor)
    unscaled = ratio_of_medians(repeats, repeats)
    assert (found.low, found.high) == pytest.approx((unscaled.low * factor, unscaled.high * factor))


def test_the_same_input_gives_the_same_digits() -> None:
    data = [list(np.random.default_rng(1).normal(10, 1, 40)) for _ in range(3)]
    assert median(data) == median(data)


def test_coverage_for_independent_repeats() -> None:
    """Repeats that differ by more than their iterations do: iterations alone would give far too narrow an interval."""
    rng = np.random.default_rng(7)
    hits, narrow = 0, 0
    for _ in range(60):
        repeats = [list(100 + rng.normal(0, 1) + rng.normal(0, 0.2, 40)) for _ in range(5)]
        found = median(repeats)
        hits += found.low <= 100 <= found.high
        flat = median([[value for repeat in repeats for value in repeat]])
        narrow += flat.low <= 100 <= flat.high
    assert hits >= 42
    assert hits > narrow


def test_blocks_widen_the_interval_of_a_drifting_series() -> None:
    drift = [list(np.sin(np.arange(200) / 10))]
    shuffled = [list(np.random.default_rng(0).permutation(drift[0]))]
    wide, small = median(drift), median(shuffled)
    assert wide.high - wide.low > 1.5 * (small.high - small.low)


@pytest.mark.parametrize("repeats", [[], [[]], [[1.0], []]])
def test_an_empty_repeat_is_refused(repeats: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="at least one value"):
        median(repeats)


def test_block_length() -> None:
    assert [block_length(n) for n in (1, 8, 27, 80, 1000)] == [1, 2, 3, 4, 10]
