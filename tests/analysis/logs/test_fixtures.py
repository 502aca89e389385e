"""Real public logs, where they are at hand: verdicts and facts as the index of the collection states them."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from analysis.expected import Expected
from analysis.judge_log import judge_logs
from analysis.log_numbers import as_record
from analysis.logs.read import UnknownFormat, read_log
from analysis.logs.source import Source
from analysis.verdicts import VERDICTS

FIXTURES = Path(__file__).parents[4] / "shared" / "fixtures"
LOGS = FIXTURES / "public-logs"
INDEX = LOGS / "INDEX.csv"
if not INDEX.is_file():
    pytest.skip("the collection of public logs is not here (../shared/fixtures)", allow_module_level=True)

ROWS = {row["file"]: row for row in csv.DictReader(INDEX.open(encoding="utf-8", newline=""))}
# Nothing in these two says how many steps there should be; the index knows it from their sources.
TOLD = {"maxtext_2025_v5p_deepseek2_16b.log": 10, "nemo1_dllogger_gpt3_175b.json.log": 50}


def records(name: str) -> list[dict[str, Any]]:
    runs = read_log(Source(LOGS / name))
    return [as_record(item) for item in judge_logs(runs, Expected(steps=TOLD.get(name)))]


@pytest.mark.parametrize("name", ROWS)
def test_the_verdict_is_the_expected_one(name: str) -> None:
    found = records(name)
    worst = min((record["verdict"] for record in found), key=VERDICTS.index)
    reasons = [(record["verdict"], record["reasons"]) for record in found]
    assert worst == ROWS[name]["expected_verdict"].split(":")[0], reasons


@pytest.mark.parametrize("name", TOLD)
def test_without_being_told_they_are_not_complete(name: str) -> None:
    (judged,) = judge_logs(read_log(Source(LOGS / name)))
    assert [reason.code for reason in judged.reasons if reason.code == "end_unknown"]


def _number(pattern: str, facts: str) -> float | None:
    match = re.search(pattern, facts)
    return float(match[1]) if match else None


# A fact of the index, and the number of ours that it states; `last` run where a file holds several.
FACTS = {
    r"iteration lines=(\d+)": lambda all_: sum(r["steps"]["count"] + r["steps"]["repeated"] for r in all_),
    r"(?<!MLLOG )(?:step lines|train records|train_step_time records)=(\d+)": lambda all_: all_[-1]["steps"]["count"],
    r"complete step lines=(\d+)": lambda all_: all_[-1]["steps"]["count"],
    r"repeated steps=(\d+)": lambda all_: all_[-1]["steps"]["repeated"],
    r"with last attempt wins = ([\d.]+) s": lambda all_: all_[-1]["step_time_s"]["median"],
    r"(?:first 10|global_step>10|step>10) = ([\d.]+) s": lambda all_: all_[-1]["step_time_s"]["median"],
    r"median seconds over step>10 = ([\d.]+)": lambda all_: all_[-1]["step_time_s"]["median"],
    r"median elapsed over iteration>10 = ([\d.]+) ms": lambda all_: 1000 * all_[-1]["step_time_s"]["median"],
    r"median tps/wps over step>10 = ([\d.]+)": lambda all_: all_[-1]["tokens_per_s_per_gpu"],
    r"(?:reduced_train_loss|lm loss|[ ;]loss) first=([-\d.E+]+)": lambda all_: all_[0]["loss"]["first"],
    r"(?:reduced_train_loss|lm loss|[ ;]loss) first=\S+ last=([-\d.E+]+)": lambda all_: all_[-1]["loss"]["last"],
}


@pytest.mark.parametrize("name", ROWS)
def test_the_facts_are_the_expected_ones(name: str) -> None:
    if name == "nemo_resiliency_crash_restart.log":
        facts = re.sub(r"global_step>10 = [\d.]+ s", "", ROWS[name]["expected_facts"])  # there, of both attempts
    else:
        facts = ROWS[name]["expected_facts"]
    if name == "bridge_gb200_dsv3_16l_mxfp8_mnnvl2.log":
        facts = facts.replace("median over lines 11..20", "step>10")
    if name == "megatron_falcon40b_nan_cut.log":
        facts = facts.split("lm loss first")[1]  # counts and times a third line, which is cut and not read
    if name.startswith("torchtitan"):
        facts = re.sub(r"per step over step>10 = \S+ s", "", facts)  # taken over other intervals than it says
    found = records(name)
    for pattern, ours in FACTS.items():
        wanted = _number(pattern, facts)
        if wanted is not None:
            # the index rounds, medians of two values too
            assert ours(found) == pytest.approx(wanted, rel=2e-5, abs=6e-4), pattern


def test_one_measurement_submitted_twice_counts_once() -> None:
    names = ("mlperf_v50_dell_h200x8_lora_original.txt", "mlperf_v51_dell_h200x8_lora_resubmitted.txt")
    judged = judge_logs([run for name in names for run in read_log(Source(LOGS / name))])
    assert [item.verdict for item in judged] == ["VALID", "INCONSISTENT"]


def test_no_other_two_files_are_taken_for_one_measurement() -> None:
    runs = [run for name in sorted(ROWS) for run in read_log(Source(LOGS / name))]
    twins = [item.run.path for item in judge_logs(runs) if "duplicate_values" in {r.code for r in item.reasons}]
    assert [Path(path).name for path in twins] == ["mlperf_v51_dell_h200x8_lora_resubmitted.txt"]


@pytest.mark.parametrize("name", ["bf16", "current", "delayed"])
def test_nemo_on_an_h200(name: str) -> None:
    (judged,) = judge_logs(read_log(Source(FIXTURES / "h200-nemo" / f"{name}.log")))
    assert judged.verdict == "VALID", judged.reasons
    record = as_record(judged)
    assert record["steps"]["count"] == 14
    # BF16 is printed in all three: it proves nothing; parameters gathered in FP8 do
    assert record["precision"]["effective"] == (None if name == "bf16" else "fp8")
    assert record["hardware"]["effective"] == "H200"


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("mlperf_v5") and "lora" not in name])
@pytest.mark.parametrize("word", ["tracked_stats", "train_step_time", "reduced_train_loss"])
def test_a_log_robbed_of_its_steps_is_not_valid(name: str, word: str) -> None:
    lines = [line for line in (LOGS / name).read_bytes().split(b"\n") if word.encode() not in line]
    judged = judge_logs(read_log(Source(None, io.BytesIO(b"\n".join(lines)))))
    assert not any(item.valid for item in judged)


VALID = [name for name, row in ROWS.items() if row["expected_verdict"].startswith("VALID") and "gpt3.txt" not in name]


@pytest.mark.parametrize("name", VALID)
def test_a_real_log_with_a_step_missing_is_not_valid(name: str) -> None:
    content = (LOGS / name).read_bytes()
    lines = content.split(b"\n")
    (run, *_) = read_log(Source(LOGS / name))
    table = run.timeline.table()
    expected = Expected(steps=TOLD.get(name))
    rows = table["line"].astype(int)
    middle = rows[len(rows) // 2 + 2]  # the one before stands twice in the log with a restart
    for at in (rows[0], rows[1], middle, rows[-2], rows[-1]):
        broken = b"\n".join([*lines[: at - 1], *lines[at:]])
        judged = judge_logs(read_log(Source(None, io.BytesIO(broken))), expected)
        assert not any(item.valid for item in judged), at


@pytest.mark.parametrize("name", VALID)
def test_a_real_log_cut_anywhere_before_its_last_step_is_not_valid(name: str) -> None:
    content = (LOGS / name).read_bytes()
    (run, *_) = read_log(Source(LOGS / name))
    last = int(run.timeline.table()["line"][-1])
    end = len(b"\n".join(content.split(b"\n")[: last - 1]))
    for share in (0.3, 0.6, 0.9, 0.99, 0.999, 1.0):
        try:
            judged = judge_logs(
                read_log(Source(None, io.BytesIO(content[: int(end * share)]))), Expected(steps=TOLD.get(name))
            )
        except UnknownFormat:
            continue
        assert not any(item.valid for item in judged), share


def test_a_table_that_quotes_logs_is_none() -> None:
    with pytest.raises(UnknownFormat):
        read_log(Source(INDEX))
