"""Edits to raw results: found by the manifest, always; found in a bare log, or listed as not to be found there.

docs/logs.md says the same; this is its proof.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.judge import judge
from analysis.judge_log import judge_logs
from analysis.logs import read_run
from analysis.logs.read import read_log
from analysis.logs.source import Source
from recipes.runs import LOG, METRICS, RUN_JSON
from tests.break_logs import FAULTS
from tests.make_run import make_run
from tests.write_logs import is_step, megatron, text

Edit = Callable[[list[str]], list[str]]
EDITS: dict[str, Edit] = {
    "a number changed": lambda lines: [
        re.sub(r"\d(?=\D*$)", "7", line, count=1) if i == 3 else line for i, line in enumerate(lines)
    ],
    "a line dropped": lambda lines: lines[:3] + lines[4:],
    "two lines swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "cut short": lambda lines: lines[:-2],
    "a blank added": lambda lines: [*lines, ""],
}


@pytest.mark.parametrize("name", [LOG, METRICS])
@pytest.mark.parametrize("edit", EDITS)
def test_any_edit_of_a_published_run_is_found(tmp_path: Path, name: str, edit: str) -> None:
    folder = make_run(tmp_path)
    path = folder / name
    path.write_text("\n".join(EDITS[edit](path.read_text().splitlines())) + "\n")
    judged = judge(read_run(folder))
    assert "file_changed" in {reason.code for reason in judged.reasons} and not judged.valid


def test_swapped_files_are_found(tmp_path: Path) -> None:
    one, two = make_run(tmp_path, repeat=1), make_run(tmp_path, repeat=2, scale=1.1)
    first, second = (one / METRICS).read_bytes(), (two / METRICS).read_bytes()
    (one / METRICS).write_bytes(second)
    (two / METRICS).write_bytes(first)
    assert not judge(read_run(one)).valid and not judge(read_run(two)).valid


def test_a_changed_seed_is_found(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    path = folder / RUN_JSON
    path.write_text(re.sub(r'"seed": \d+', '"seed": 99', path.read_text()))
    assert not judge(read_run(folder)).valid


def verdict(lines: list[str]) -> str:
    (judged,) = judge_logs(read_log(Source(None, io.BytesIO(text(lines)))))
    return judged.verdict


@pytest.mark.parametrize("fault", ["missing_step", "missing_end", "swapped_steps", "changed_time", "all_times_halved"])
def test_found_in_a_bare_log(fault: str) -> None:
    assert verdict(FAULTS[fault].make(megatron())) != "VALID"


def _one_loss(lines: list[str]) -> list[str]:
    at = next(i for i, line in enumerate(lines) if " iteration       20/" in line)
    return [re.sub(r"(lm loss: )\S+", r"\g<1>7.000000E+00", line) if i == at else line for i, line in enumerate(lines)]


def _all_consistent(lines: list[str]) -> list[str]:
    """Times, rates and time stamps all scaled: a log of another machine, that never ran."""

    def scale(line: str) -> str:
        line = re.sub(r"^ \[[^\]]*\] ", " ", line)  # without stamps there is no clock to contradict
        line = re.sub(r"(\(ms\): )(\S+)", lambda m: f"{m[1]}{float(m[2]) / 2:.2f}", line)
        return re.sub(r"(GPU\): )(\S+)", lambda m: f"{m[1]}{float(m[2]) * 2:.1f}", line)

    return [scale(line) if is_step(line) else line for line in lines]


@pytest.mark.parametrize(
    "edit",
    [
        lambda lines: [re.sub(r"(  seed \.+ )\d+", r"\g<1>99", line) for line in lines],
        _one_loss,
        _all_consistent,
    ],
    ids=["the seed", "one loss, still finite", "every time and rate, consistently"],
)
def test_not_to_be_found_without_a_manifest(edit: Edit) -> None:
    """A bare log cannot show these: that is what the manifest, its DVC pointer and git are for."""
    edited = edit(megatron())
    assert edited != megatron()
    assert verdict(edited) == "VALID"
