"""Lines read together give what lines read one by one give, bit for bit where a double can hold the digits."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.logs.formats import FORMATS
from analysis.logs.layout import EVENT, Parsed, Spot, number, values_of
from analysis.logs.scanner import Scanner
from analysis.logs.source import PAD
from tests.write_logs import WRITERS, text

_VALUE = re.compile(rb"v=(\S+) w=(\S+)")


def parse(line: bytes) -> Parsed | None:
    match = _VALUE.search(line)
    if not match:
        return EVENT if b"event" in line else None
    return Parsed({0: Spot(*match.span(1)), 1: Spot(*match.span(2), 1000.0)})


def scan(lines: list[bytes]) -> tuple[Scanner, np.ndarray, list[int]]:
    scanner = Scanner(2, parse)
    values, events = [], []
    for _ in range(3):  # seen once, seen twice, known
        rows, found, _ = scanner.scan(b"".join(line + b"\n" for line in lines) + PAD, 1)
        values, events = rows.values, found
    return scanner, values, events


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda x: f"{x:.4}"),
            st.floats(min_value=0, max_value=1e9).map(lambda x: f"{x:.6E}"),
            st.floats(min_value=0, max_value=1e6).map(lambda x: f"{x:,.2f}"),
            st.integers(-(10**12), 10**12).map(str),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_many_numbers_at_once(numbers: list[str]) -> None:
    lines = [f"x v={one} w={one}".encode() for one in numbers]
    _, values, _ = scan(lines)
    wanted = [float(one.replace(",", "")) for one in numbers]
    np.testing.assert_allclose(values[0], wanted, rtol=1e-15, atol=0)
    np.testing.assert_allclose(values[1], np.array(wanted) / 1000, rtol=1e-15, atol=0)


def test_numbers_with_17_digits_lose_at_most_the_last_place() -> None:
    lines = [f"x v={value!r} w=1".encode() for value in (np.random.default_rng(3).random(500) * 20).tolist()]
    _, values, _ = scan(lines)
    np.testing.assert_allclose(values[0], [float(line.split()[1][2:]) for line in lines], rtol=4e-16)


@pytest.mark.parametrize("bad", [b"1.2.3", b"--1", b"e5", b".", b"0x10", b"1e", b"12a"])
def test_what_is_no_number_makes_the_line_an_event(bad: bytes) -> None:
    _, values, events = scan([b"x v=" + bad + b" w=1", b"x v=1 w=1"])
    assert values.shape[1] == 1
    assert events == [0]


@pytest.mark.parametrize(("printed", "value"), [(b"nan", np.nan), (b"-inf", -np.inf), (b"Infinity", np.inf)])
def test_what_is_not_finite_is_read(printed: bytes, value: float) -> None:
    _, values, _ = scan([b"x v=" + printed + b" w=1"])
    np.testing.assert_equal(values[0, 0], value)


def test_a_changed_letter_is_another_line() -> None:
    _, values, events = scan([b"x v=1 w=2", b"y v=3 w=4", b"x event 5", b"x noise 6", b"x v=7 w=8"])
    assert values[0].tolist() == [1, 3, 7]
    assert events == [2]


def test_a_byte_that_is_no_digit_is_not_read_as_one() -> None:
    # NUL is what digits are blanked with; the source replaces it, the scanner must not trust that alone
    _, values, _ = scan([b"x v=123 w=2", b"x v=\xb22\xb3 w=2"])
    assert values[0].tolist() == [123]


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_reads_the_same_in_bulk_and_one_by_one(name: str) -> None:
    known = FORMATS[{"bridge": "megatron"}.get(name, name)]
    lines = text(WRITERS[name](steps=200)).splitlines()
    scanner = Scanner(32, known.parse)
    rows, _, _ = scanner.scan(b"".join(line + b"\n" for line in lines) + PAD, 1)
    single = [(at, parsed) for at, line in enumerate(lines, 1) if (parsed := known.parse(line)) and parsed.spots]
    assert rows.line.tolist() == [at for at, _ in single]
    for index, (at, parsed) in enumerate(single):
        wanted = values_of(lines[at - 1], parsed)
        assert {int(column) for column in np.flatnonzero(rows.present[:, index])} == set(wanted)
        for column, value in wanted.items():
            assert rows.values[column, index] == pytest.approx(value, rel=5e-16, nan_ok=True)


def test_shapes_are_bounded() -> None:
    scanner = Scanner(2, parse)
    words = [bytes([97 + i % 26, 97 + i // 26 % 26, 97 + i // 676 % 26]) for i in range(9000)]
    block = b"".join(b"%s v=1 w=2\n" % word for word in words)
    for _ in range(3):
        rows, _, _ = scanner.scan(block + PAD, 1)
        assert rows.line.size == 9000
    assert sum(len(family.shapes) for family in scanner._families.values()) <= 4096


def test_packed_numbers_skip_what_stands_between() -> None:
    assert number(b"2026-03-27", Spot(0, 10, packed=True)) == 20260327
    assert number(b"17:30:57,471", Spot(0, 12, 1000.0, packed=True)) == 173057.471
