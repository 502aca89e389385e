"""Every fault, in every format in which it can occur, gets its verdict and its reason, with the line that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.judge_log import judge_logs
from analysis.logs.read import read_log
from analysis.logs.source import Source
from tests.break_logs import FAULTS
from tests.write_logs import WRITERS, text

CASES = [(fault, name) for fault, made in FAULTS.items() for name in made.formats]


@pytest.mark.parametrize(("fault", "name"), CASES)
def test_a_fault_is_found(tmp_path: Path, fault: str, name: str) -> None:
    broken = FAULTS[fault].make(WRITERS[name]())
    (tmp_path / "run.log").write_bytes(text(broken))
    judged = judge_logs(read_log(Source(tmp_path / "run.log")))
    codes = {reason.code for item in judged for reason in item.reasons}
    assert codes & set(FAULTS[fault].codes), [item.reasons for item in judged]
    assert FAULTS[fault].verdict in {item.verdict for item in judged}, [item.reasons for item in judged]


@pytest.mark.parametrize("name", WRITERS)
def test_the_line_of_a_nan_is_named(tmp_path: Path, name: str) -> None:
    broken = FAULTS["nan_loss"].make(WRITERS[name]())
    (tmp_path / "run.log").write_bytes(text(broken))
    (judged,) = judge_logs(read_log(Source(tmp_path / "run.log")))
    (reason,) = [reason for reason in judged.reasons if reason.code == "loss_not_finite"]
    line = broken[reason.lines[0] - 1]
    assert "nan" in line.lower() and reason.lines == (broken.index(line) + 1,)
