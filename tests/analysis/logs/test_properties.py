"""Whatever is done to a log, reading it raises no unhandled error, and a log with a step missing is never VALID."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.judge_log import JudgedLog, judge_logs
from analysis.log_numbers import as_record
from analysis.logs.formats import FORMATS
from analysis.logs.read import UnknownFormat, read_log
from analysis.logs.source import Source
from tests.write_logs import WRITERS, step_lines, text

SHORT = {name: writer(steps=8 if name == "mlperf" else 6) for name, writer in WRITERS.items()}
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def judged(content: bytes, known: str | None = None) -> list[JudgedLog]:
    try:
        return judge_logs(read_log(Source(None, io.BytesIO(content)), FORMATS[known] if known else None))
    except UnknownFormat:
        return []


@pytest.mark.parametrize("name", WRITERS)
def test_cut_at_every_byte(name: str) -> None:
    lines = SHORT[name] if name == "mlperf" else WRITERS[name](steps=3)
    content, whole = text(lines), len(step_lines(lines))
    for end in range(0, len(content), 5 if name == "mlperf" else 1):
        for item in judged(content[:end]):
            as_record(item)
            assert not item.valid or item.run.timeline.rows == whole, (end, content[:end][-200:])


@pytest.mark.parametrize("name", WRITERS)
def test_any_step_line_missing(name: str) -> None:
    lines = SHORT[name]
    for at in step_lines(lines):
        found = judged(text([*lines[:at], *lines[at + 1 :]]))
        assert found and not any(item.valid for item in found), at


@pytest.mark.parametrize("name", WRITERS)
def test_shuffled(name: str) -> None:
    lines = SHORT[name]
    for seed in range(40):
        shuffled = list(lines)
        random.Random(seed).shuffle(shuffled)
        order = [shuffled[at] for at in step_lines(shuffled)]
        if order != [lines[at] for at in step_lines(lines)]:
            assert not any(item.valid for item in judged(text(shuffled))), seed


@pytest.mark.parametrize("name", WRITERS)
def test_a_log_written_twice_is_two_runs_and_one_measurement(name: str) -> None:
    found = judged(text(SHORT[name]) * 2)
    assert len(found) == 2, [item.reasons for item in found]
    assert "duplicate_values" in {reason.code for reason in found[1].reasons}
    assert found[0].verdict == "VALID" and found[1].verdict == "INCONSISTENT"


@pytest.mark.parametrize("name", WRITERS)
def test_two_runs_in_one_file_are_split(name: str) -> None:
    other = WRITERS[name](steps=8, seed=2)
    found = judged(text(SHORT[name]) + text(other))
    assert [item.verdict for item in found] == ["VALID", "VALID"], [item.reasons for item in found]
    assert [item.run.part for item in found] == [1, 2]


@QUIET
@given(st.binary(max_size=400))
def test_junk_is_no_log(junk: bytes) -> None:
    assert not any(item.valid for item in judged(junk))


@QUIET
@given(st.sampled_from(sorted(WRITERS)), st.data())
def test_bytes_changed_anywhere(name: str, data: st.DataObject) -> None:
    content = bytearray(text(SHORT[name]))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    for known in (None, {"bridge": "megatron"}.get(name, name)):
        for item in judged(bytes(content), known):
            as_record(item)


@QUIET
@given(st.sampled_from(sorted(WRITERS)), st.sampled_from(sorted(FORMATS)))
def test_the_wrong_format_reads_nothing(name: str, known: str) -> None:
    if known != {"bridge": "megatron"}.get(name, name):
        assert not any(item.valid for item in judged(text(SHORT[name]), known))


@QUIET
@given(st.sampled_from(sorted(WRITERS)), st.randoms(use_true_random=False))
def test_lines_dropped_doubled_and_moved(name: str, rng: random.Random) -> None:
    lines = list(SHORT[name])
    whole = [lines[at] for at in step_lines(lines)]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        what = rng.choice(("drop", "double", "move"))
        line = lines.pop(at)
        if what != "drop":
            lines.insert(at, line)
            lines.insert(rng.randrange(len(lines) + 1), line)
        if what == "move":
            lines.remove(line)
    steps = [lines[at] for at in step_lines(lines)]
    for item in judged(text(lines)):
        if item.valid:
            assert set(whole) <= set(steps)


def test_a_cut_last_number_does_not_count(tmp_path: Path) -> None:
    lines = SHORT["maxtext"]
    (item,) = judged(text(lines)[:-2])
    assert item.verdict == "INCOMPLETE"
    assert "line_cut" in {reason.code for reason in item.reasons}
    assert item.run.timeline.rows == 5
