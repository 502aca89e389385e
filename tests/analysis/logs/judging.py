"""Writes logs into a folder and judges what is found there, as `fewbits verify FOLDER` does."""

from __future__ import annotations

from pathlib import Path

from analysis.expected import Expected
from analysis.inputs import gather
from analysis.judge_log import JudgedLog, judge_logs
from tests.write_logs import text


def judge_files(folder: Path, expected: Expected | None = None, **files: list[str]) -> list[JudgedLog]:
    for name, lines in files.items():
        (folder / f"{name}.log").write_bytes(text(lines))
    return judge_logs(gather([folder]).logs, expected)


def codes(judged: JudgedLog) -> set[str]:
    return {reason.code for reason in judged.reasons}
