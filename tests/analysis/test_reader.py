"""The te_layers reader: whatever a folder holds, no exception, and nothing missing passes as VALID."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.judge import judge
from analysis.logs import read_run
from recipes.runs import LOG, MANIFEST, METRICS, POWER, RUN_JSON, manifest_text
from tests.make_run import make_run


def reseal(path: Path) -> None:
    """Write a manifest that fits, so that only the reader and the judge's other checks can find the fault."""
    (path / MANIFEST).write_text(manifest_text(path))


def test_reads_what_was_written(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, "fp8_current"))
    assert run.reasons == []
    assert len(run.steps) == 30 + 12
    assert len(run.timed_steps_s) == 12
    assert run.peak_memory_bytes == 10**10
    assert run.name.startswith("te_layers/layers-llama3_8b-fp8_current/")


def test_reads_operations(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, "fp8_current", kind="gemms"))
    assert len(run.ops) == 4 * 6 * 12
    assert {op.op for op in run.ops} >= {"fprop", "quantize_weight"}


@pytest.mark.parametrize("name", [RUN_JSON, METRICS, POWER])
@pytest.mark.parametrize(
    "data", [b"", b"\x00\xff\xfe", b"[]", b"{", b'{"record": []}\n', b"[" * 100_000, b"1e999\n", "ключ\r\n".encode()]
)
def test_junk_becomes_a_reason(tmp_path: Path, name: str, data: bytes) -> None:
    path = make_run(tmp_path)
    (path / name).write_bytes(data)
    reseal(path)
    judged = judge(read_run(path))
    assert not judged.valid
    assert all("\n" not in reason.message for reason in judged.reasons)


@pytest.mark.parametrize(
    "line",
    [
        {"record": "step", "step": 0, "timed": True, "step_time_s": "0.1", "tokens": 8192},
        {"record": "step", "step": 1.5, "timed": True, "step_time_s": 0.1, "tokens": 8192},
        {"record": "step", "step": 0, "timed": True, "step_time_s": None, "tokens": 8192},
        {"record": "step", "step": 0, "timed": True},
        {"record": "surprise"},
        {"record": "op", "gemm": "qkv", "op": "fprop", "step": 0, "time_s": True, "m": 1, "n": 1, "k": 1},
    ],
)
def test_a_wrong_record_is_a_reason_with_its_line(tmp_path: Path, line: dict[str, object]) -> None:
    path = make_run(tmp_path)
    with (path / METRICS).open("a") as file:
        file.write(json.dumps(line) + "\n")
    reseal(path)
    reasons = {reason.code: reason for reason in judge(read_run(path)).reasons}
    assert reasons["metrics_line_unreadable"].lines == (45,)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    """A metrics file cut at any byte, with a manifest made to fit, is never VALID."""
    path = make_run(tmp_path, iterations=2)
    data = (path / METRICS).read_bytes()
    for size in range(0, len(data), 7):
        (path / METRICS).write_bytes(data[:size])
        reseal(path)
        assert not judge(read_run(path)).valid, f"cut at byte {size}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_dropped_repeated_or_shuffled_steps_are_never_valid(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = make_run(tmp_path_factory.mktemp("run"), iterations=3)
    lines = (path / METRICS).read_text().splitlines(keepends=True)
    fault = data.draw(st.sampled_from(["drop", "repeat", "swap"]))
    steps = [i for i, line in enumerate(lines) if '"step"' in line]
    first = data.draw(st.sampled_from(steps))
    if fault == "drop":
        del lines[first]
    elif fault == "repeat":
        lines.insert(first, lines[first])
    else:
        second = data.draw(st.sampled_from([i for i in steps if i != first]))
        lines[first], lines[second] = lines[second], lines[first]
    (path / METRICS).write_text("".join(lines))
    reseal(path)
    assert not judge(read_run(path)).valid


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([RUN_JSON, METRICS, LOG, POWER]), where=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_always_found(
    tmp_path_factory: pytest.TempPathFactory, name: str, where: int, bit: int
) -> None:
    path = make_run(tmp_path_factory.mktemp("run"), iterations=2)
    data = bytearray((path / name).read_bytes())
    data[where % len(data)] ^= 1 << bit
    (path / name).write_bytes(data)
    judged = judge(read_run(path))
    assert judged.verdict == "INCONSISTENT" or judged.verdict == "INCOMPLETE"
    assert any(name in reason.message for reason in judged.reasons)
