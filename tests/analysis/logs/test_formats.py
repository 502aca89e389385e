"""Every format's log is told apart, read whole and judged VALID; its numbers are those that were written."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from analysis.judge_log import JudgedLog, judge_logs
from analysis.log_numbers import as_record
from analysis.logs.format import precision
from analysis.logs.formats import FORMATS, detect
from analysis.logs.read import UnknownFormat, read_log
from analysis.logs.source import Source
from tests import write_logs
from tests.write_logs import WRITERS


def verdicts(path: Path, content: bytes) -> list[JudgedLog]:
    path.write_bytes(content)
    return judge_logs(read_log(Source(path)))


@pytest.mark.parametrize("name", WRITERS)
def test_a_clean_log_is_valid(tmp_path: Path, name: str) -> None:
    lines = WRITERS[name]()
    (judged,) = verdicts(tmp_path / "run.log", write_logs.text(lines))
    assert judged.verdict == "VALID", judged.reasons
    record = as_record(judged)
    assert record["format"] == {"bridge": "megatron"}.get(name, name)
    assert record["steps"]["count"] == len(write_logs.step_lines(lines))
    assert record["steps"]["missing"] == record["steps"]["repeated"] == record["loss"]["nan_steps"] == 0
    assert record["step_time_s"]["n"] >= 19


@pytest.mark.parametrize("name", WRITERS)
def test_losses_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    lines = WRITERS[name]()
    (judged,) = verdicts(tmp_path / "run.log", write_logs.text(lines))
    pattern = re.compile(r'(?:lm loss|reduced_train_loss|[ m]loss)"?: +([-+.\dEe]+)')
    written = [float(pattern.findall(lines[at])[-1]) for at in write_logs.step_lines(lines)]
    np.testing.assert_allclose(judged.run.timeline.table()["loss"], written, rtol=1e-14)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("prefix", ["31: ", " 2: ", "(pretraining, pid=4112) ", "[default3]:", "[rank5]:"])
def test_launchers_prefixes_change_nothing(tmp_path: Path, name: str, prefix: str) -> None:
    if name == "dllogger":
        pytest.skip("DLLogger writes its own file")
    if name == "torchtitan" and "rank" in prefix:
        pytest.skip("torchtitan prints this prefix itself")
    lines = [prefix + line for line in WRITERS[name]()]
    (judged,) = verdicts(tmp_path / "run.log", write_logs.text(lines))
    assert judged.verdict == "VALID", judged.reasons


@pytest.mark.parametrize("name", WRITERS)
def test_line_ends_of_windows_and_colours_change_nothing(tmp_path: Path, name: str) -> None:
    lines = WRITERS[name]()
    plain = as_record(verdicts(tmp_path / "a.log", write_logs.text(lines))[0])
    crlf = as_record(verdicts(tmp_path / "b.log", write_logs.text(lines).replace(b"\n", b"\r\n"))[0])
    coloured = write_logs.text([f"\x1b[31m{line}\x1b[0m" for line in lines])
    ansi = as_record(verdicts(tmp_path / "c.log", coloured)[0])
    for record in (plain, crlf, ansi):
        record.pop("path")
        record.pop("sha256")
    assert plain == crlf == ansi


def test_colours_inside_a_line(tmp_path: Path) -> None:
    content = write_logs.text(write_logs.torchtitan(colours=True))
    (judged,) = verdicts(tmp_path / "run.log", content)
    (lost,) = verdicts(tmp_path / "lost.log", content.replace(b"\x1b", b""))
    assert judged.verdict == lost.verdict == "VALID"
    assert judged.run.timeline.rows == lost.run.timeline.rows == 30


def test_wrapped_progress_lines_are_joined(tmp_path: Path) -> None:
    lines = []
    for line in write_logs.nemo():
        cut = line.find(" | global_step")
        lines += [line] if cut < 0 else [line[: cut + 3], line[cut + 3 :]]
    (judged,) = verdicts(tmp_path / "run.log", write_logs.text(lines))
    assert judged.verdict == "VALID", judged.reasons
    assert judged.run.timeline.rows == 30


def test_logging_every_tenth_step_is_no_gap(tmp_path: Path) -> None:
    (judged,) = verdicts(tmp_path / "run.log", write_logs.text(write_logs.torchtitan(100, every=10)))
    assert judged.verdict == "VALID", judged.reasons
    assert as_record(judged)["steps"] == {"first": 1, "last": 100, "count": 11, "repeated": 0, "missing": 0}


def test_other_losses_are_not_taken_for_the_loss(tmp_path: Path) -> None:
    lines = [
        line.replace(
            "| loss scale", "| load_balancing_loss: 1.0E+00 | z_loss: 9.9E+09 | mtp_1 loss: 5.0E+00 | loss scale"
        )
        for line in write_logs.megatron()
    ]
    (judged,) = verdicts(tmp_path / "run.log", write_logs.text(lines))
    assert judged.run.timeline.last_row["loss"] < 12


def test_an_unknown_format_names_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("\n\nsome notes \x1b[31m about training\n")
    with pytest.raises(UnknownFormat, match=r"no line of a known format; line 3 is 'some notes about training'"):
        read_log(Source(path))


@pytest.mark.parametrize("name", WRITERS)
def test_formats_are_not_mistaken_for_each_other(name: str) -> None:
    found = detect(write_logs.text(WRITERS[name]()))
    assert found is FORMATS[{"bridge": "megatron"}.get(name, name)]


def test_switches_come_before_recipes() -> None:
    assert precision({"fp8": ["None"], "fp8_recipe": ["delayed"], "bf16": ["True"]}) == "bf16"
    assert precision({"fp8": ["true", "'hybrid'", "False"], "fp8_recipe": ["tensorwise"]}) == "fp8_current"
    assert precision({"fp4": ["false"], "fp4_recipe": ["nvfp4"], "fp8": ["True"]}) == "fp8"
    assert precision({"bf16": ["True"]}) is None
    assert precision({"bf16": ["True"]}, before_fp8=True) == "bf16"
