"""The table that sets our verdicts beside other tools': our column is what the code says today."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from analysis.judge_log import judge_logs
from analysis.logs.read import read_log
from analysis.logs.source import Source
from analysis.verdicts import VERDICT_OF, VERDICTS
from tests.break_logs import FAULTS
from tests.write_logs import WRITERS, text

TABLE = Path("results/published/log_faults.csv")
ROWS = [row for row in csv.DictReader(TABLE.open(encoding="utf-8", newline="")) if row["tool"] == "fewbits"]
INVENTED = [row for row in ROWS if row["format"] in WRITERS and row["format"] != "mlperf"]


@pytest.mark.parametrize("row", INVENTED, ids=lambda row: f"{row['format']}-{row['fault']}")
def test_our_column_is_true(row: dict[str, str]) -> None:
    lines = WRITERS[row["format"]](60)
    broken = lines if row["fault"] == "clean" else FAULTS[row["fault"]].make(lines)
    judged = judge_logs(read_log(Source(None, io.BytesIO(text(broken)))))
    worst = min((item.verdict for item in judged), key=VERDICTS.index)
    assert worst == row["says"]
    codes = {reason.code for item in judged for reason in item.reasons if VERDICT_OF[reason.code] == worst}
    assert row["detail"] in codes or worst == "VALID"


def test_the_table_holds_every_fault() -> None:
    for name in ("megatron", "bridge", "nemo", "torchtitan"):
        faults = {row["fault"] for row in ROWS if row["format"] == name}
        assert faults == {"clean", *(fault for fault, made in FAULTS.items() if name in made.formats)}
