"""Verdicts: each fault gets the right one, all reasons are listed, and the worst decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.judge import judge
from analysis.logs import read_run
from analysis.verdicts import VERDICTS
from recipes.runs import LOG, METRICS, RUN_JSON, RunFolder
from tests.analysis.test_reader import reseal
from tests.make_run import make_run


def test_a_good_run_is_valid(tmp_path: Path) -> None:
    for kind in ("layers", "gemms"):
        for precision in ("bf16", "fp8_block"):
            judged = judge(read_run(make_run(tmp_path, precision, kind=kind)))
            assert judged.verdict == "VALID", judged.reasons


def rewrite(path: Path, name: str, change: Any) -> None:
    """Apply `change` to the text of a file and make the manifest fit."""
    (path / name).write_text(change((path / name).read_text()))
    reseal(path)


def record_with(**changes: Any) -> Any:
    def change(record: dict[str, Any]) -> None:
        for key, value in changes.items():
            target = record
            *parents, last = key.split("__")
            for parent in parents:
                target = target[parent]
            target[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "verdict", "code"),
    [
        (record_with(outcome={"status": "running"}), "INCOMPLETE", "run_unfinished"),
        (record_with(outcome={"status": "failed", "reason": "out of memory"}), "INCOMPLETE", "run_failed"),
        (record_with(outcome={"status": "unsupported", "reason": "no"}), "UNSUPPORTED", "gate_refused"),
        (record_with(effective_precision=None), "AMBIGUOUS", "precision_unknown"),
        (record_with(effective_precision="bf16"), "INCONSISTENT", "precision_mismatch"),
        (record_with(effective_precision=["bf16", "mxfp8"]), "INCONSISTENT", "precision_mismatch"),
        (record_with(kind="dreamt"), "AMBIGUOUS", "precision_unknown"),
        (record_with(schema_version=99), "AMBIGUOUS", "schema_unknown"),
        (record_with(experiment="layers-llama3_8b-mxfp8"), "INCONSISTENT", "folder_mismatch"),
        (record_with(configuration__model="llama3_70b"), "INCONSISTENT", "configuration_mismatch"),
        (record_with(configuration__dimensions={}), "INCONSISTENT", "configuration_mismatch"),
        (record_with(configuration__sequence=4096), "INCONSISTENT", "configuration_mismatch"),
        (record_with(configuration__iterations=50), "INCOMPLETE", "steps_missing"),
        (record_with(configuration__iterations=2), "INCONSISTENT", "steps_repeated"),
        (record_with(configuration__iterations=None), "INCOMPLETE", "steps_missing"),
        (record_with(timed_end=1.0), "INCONSISTENT", "time_disagrees"),
        (record_with(timed_end=None), "AMBIGUOUS", "time_unmarked"),
        (record_with(configuration__iterations=10**12), "INCOMPLETE", "steps_missing"),
        (record_with(configuration__layers=400), "INCONSISTENT", "above_peak"),
    ],
)
def test_each_fault_of_the_record(tmp_path: Path, change: Any, verdict: str, code: str) -> None:
    judged = judge(read_run(make_run(tmp_path, "fp8_current", change=change)))
    assert code in [reason.code for reason in judged.reasons]
    assert judged.verdict == verdict


@pytest.mark.parametrize(
    ("name", "old", "new", "verdict", "code"),
    [
        (METRICS, '"output_l2": 1.0', '"output_l2": "NaN"', "DIVERGED", "not_finite"),
        (METRICS, '"input_grad_l2": 1.0', '"input_grad_l2": "Infinity"', "DIVERGED", "not_finite"),
        (METRICS, '"step_time_s": 0.0909', '"step_time_s": -0.0909', "INCONSISTENT", "time_not_positive"),
        (METRICS, '"step_time_s": 0.0909', '"step_time_s": "NaN"', "DIVERGED", "not_finite"),
        (METRICS, '"step_time_s": 0.0909', '"step_time_s": 0.0809', "INCONSISTENT", "log_disagrees"),
        (LOG, "step 3 ", "step 4 ", "INCONSISTENT", "log_disagrees"),
        (METRICS, '"tokens": 8192', '"tokens": 4096', "INCONSISTENT", "configuration_mismatch"),
        (
            METRICS,
            '{"record": "numerics", "output_l2": 1.0, "input_grad_l2": 1.0}\n',
            "",
            "INCOMPLETE",
            "steps_missing",
        ),
    ],
)
def test_each_fault_of_the_metrics(tmp_path: Path, name: str, old: str, new: str, verdict: str, code: str) -> None:
    path = make_run(tmp_path)
    assert old in (path / name).read_text()
    rewrite(path, name, lambda text: text.replace(old, new, 1))
    judged = judge(read_run(path))
    assert code in [reason.code for reason in judged.reasons]
    if verdict == "DIVERGED":  # changed by hand, it also disagrees with log.txt, which wins
        assert judged.verdict in ("DIVERGED", "INCONSISTENT")
    else:
        assert judged.verdict == verdict


@pytest.mark.parametrize(("error", "verdict"), [(0.0, "INCONSISTENT"), (1e-5, "INCONSISTENT"), (0.04, "VALID")])
def test_a_narrow_run_that_equals_bf16_is_not_believed(tmp_path: Path, error: float, verdict: str) -> None:
    """The silent fall-back to BF16: whatever label and modules say, the numbers are BF16's."""
    path = make_run(tmp_path, "fp8_current")
    line = json.dumps({"record": "numerics", "output_relative_error_to_bf16": error}) + "\n"
    rewrite(path, METRICS, lambda text: text + line)
    assert judge(read_run(path)).verdict == verdict


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=json_values)
def test_whatever_run_json_says_the_judge_answers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, value: Any
) -> None:
    path = make_run(tmp_path_factory.mktemp("run"), "fp8_current", iterations=1)
    record = json.loads((path / RUN_JSON).read_text())
    inner = data.draw(st.sampled_from([record, record["configuration"], record["hardware"], record["outcome"]]))
    inner[data.draw(st.sampled_from(sorted(inner)))] = value
    rewrite(path, RUN_JSON, lambda _: json.dumps(record))
    judged = judge(read_run(path))
    assert judged.verdict in VERDICTS
    assert judged.valid == (not judged.reasons)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=json_values)
def test_whatever_a_record_says_the_judge_answers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, value: Any
) -> None:
    kind = data.draw(st.sampled_from(["layers", "gemms"]))
    path = make_run(tmp_path_factory.mktemp("run"), "fp8_current", kind=kind, iterations=1)
    lines = (path / METRICS).read_text().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    record = json.loads(lines[number])
    record[data.draw(st.sampled_from(sorted(record)))] = value
    lines[number] = json.dumps(record)
    rewrite(path, METRICS, lambda _: "\n".join(lines) + "\n")
    assert judge(read_run(path)).verdict in VERDICTS


def test_a_diverged_run_is_diverged(tmp_path: Path) -> None:
    """Written by the run itself, all files agree, and the verdict is DIVERGED whatever the exit code says."""
    path = make_run(tmp_path)
    rewrite(path, METRICS, lambda text: text.replace('"output_l2": 1.0', '"output_l2": "NaN"'))
    assert judge(read_run(path)).verdict == "DIVERGED"


def test_all_reasons_are_listed_and_the_worst_decides(tmp_path: Path) -> None:
    path = make_run(tmp_path, change=record_with(effective_precision=None, kind="dreamt", schema_version=7))
    rewrite(path, METRICS, lambda text: text.replace('"output_l2": 1.0', '"output_l2": "NaN"'))
    judged = judge(read_run(path))
    assert {"precision_unknown", "schema_unknown", "not_finite"} <= {reason.code for reason in judged.reasons}
    assert judged.verdict == "DIVERGED"


def test_a_killed_run_is_incomplete(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "te_layers", "layers-llama3_8b-bf16", "r", {})
    judged = judge(read_run(folder.path))
    assert judged.verdict == "INCOMPLETE"
    assert "manifest_missing" in [reason.code for reason in judged.reasons]


def test_a_run_that_lost_its_record_is_still_a_run(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    (path / RUN_JSON).unlink()
    judged = judge(read_run(path))
    assert judged.verdict == "INCOMPLETE"
    assert {"file_missing", "run_json_unreadable"} <= {reason.code for reason in judged.reasons}


def test_two_runs_with_swapped_files_are_found(tmp_path: Path) -> None:
    slow, fast = make_run(tmp_path, "bf16"), make_run(tmp_path, "fp8_current", scale=0.7)
    one, two = (slow / METRICS).read_bytes(), (fast / METRICS).read_bytes()
    (slow / METRICS).write_bytes(two)
    (fast / METRICS).write_bytes(one)
    assert not judge(read_run(slow)).valid
    assert not judge(read_run(fast)).valid


def test_real_reference_runs_are_valid_or_say_why_not() -> None:
    raw = Path("results/raw")
    folders = sorted(path.parent for path in raw.glob("*/*/*/run.json"))
    if not folders:
        pytest.skip("raw results are not here: `dvc pull` fetches them from results/reference")
    judged = [judge(read_run(folder)) for folder in folders]
    assert [one.run.name for one in judged if not one.valid and not one.says_itself] == []
    assert sum(one.valid for one in judged) > len(judged) / 2
    assert all(json.loads((folder / RUN_JSON).read_text())["git"]["dirty"] is False for folder in folders)
