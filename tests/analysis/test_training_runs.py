"""Run folders of NeMo: what makes one VALID, each thing that takes it away, and a rerun against its reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.agreement import agreement, configured_alike, main, within_tolerance
from analysis.judge import Judged, judge
from analysis.logs import read_run
from analysis.logs.run import Run, Trained
from fewbits import app
from recipes.maxtext.experiments import experiment as maxtext_experiment
from recipes.nemo.experiments import experiment
from recipes.runs import LOG, MANIFEST, METRICS, RUN_JSON, find_runs, manifest_text
from tests.make_nemo_run import make_nemo_run

NAME = "llama3_8b-h200-fp8_current"


def reseal(folder: Path) -> None:
    (folder / MANIFEST).write_text(manifest_text(folder))


def edit_record(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads((folder / RUN_JSON).read_text())
    change(record)
    (folder / RUN_JSON).write_text(json.dumps(record))


def edit_rows(folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    rows = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    change(rows)
    (folder / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def drop_end(folder: Path) -> None:
    lines = (folder / LOG).read_text().splitlines(keepends=True)
    (folder / LOG).write_text("".join(lines[:-2]))


def halve_times(folder: Path) -> None:
    def halve(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["step_time_s"] /= 2

    edit_rows(folder, halve)
    text = (folder / LOG).read_text()
    (folder / LOG).write_text(text.replace("in s: 5", "in s: 2.5").replace("in s: 10", "in s: 5"))


def test_a_complete_run_is_valid_and_times_its_later_steps(tmp_path: Path) -> None:
    judged = judge(read_run(make_nemo_run(tmp_path, NAME)))
    assert judged.valid, judged.reasons
    assert len(judged.run.timed_steps_s) == 7
    assert max(judged.run.timed_steps_s) < 5.1
    assert judged.run.steps[0].tokens == 32 * 8192


@pytest.mark.parametrize("name", ["llama3_8b-cpu-bf16", "llama31_405b-cpu-bf16", "nemotron4_340b-h200-bf16-scaled"])
def test_other_experiments_are_valid_too(tmp_path: Path, name: str) -> None:
    assert judge(read_run(make_nemo_run(tmp_path, name, step_time_s=9.0))).valid


FAULTS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a missing step": (lambda f: edit_rows(f, lambda rows: rows.pop(4) and None), "steps_missing", "INCOMPLETE"),
    "a repeated step": (lambda f: edit_rows(f, lambda rows: rows.insert(4, rows[4])), "steps_repeated", "INCONSISTENT"),
    "a NaN loss": (lambda f: edit_rows(f, lambda r: r[5].update(loss="NaN")), "loss_not_finite", "DIVERGED"),
    "a NaN gradient norm": (
        lambda f: edit_rows(f, lambda r: r[5].update(grad_norm="NaN")),
        "grad_norm_not_finite",
        "DIVERGED",
    ),
    "an edited step time": (
        lambda f: edit_rows(f, lambda r: r[5].update(step_time_s=2.5)),
        "log_disagrees",
        "INCONSISTENT",
    ),
    "times edited in log and metrics alike": (lambda f: halve_times(f), "time_disagrees", "INCONSISTENT"),
    "an edited loss": (lambda f: edit_rows(f, lambda r: r[5].update(loss=3.0)), "log_disagrees", "INCONSISTENT"),
    "other samples": (
        lambda f: edit_rows(f, lambda r: r[5].update(consumed_samples=7)),
        "samples_disagree",
        "INCONSISTENT",
    ),
    "a log that ends early": (lambda f: drop_end(f), "end_missing", "INCONSISTENT"),
    "another precision": (
        lambda f: edit_record(f, lambda r: r.update(effective_precision="bf16")),
        "precision_mismatch",
        "INCONSISTENT",
    ),
    "no proof of the precision": (
        lambda f: edit_record(f, lambda r: r.update(effective_precision=None)),
        "precision_unknown",
        "AMBIGUOUS",
    ),
    "fewer layers than said": (
        lambda f: edit_record(f, lambda r: r["configuration"]["dimensions"].update(layers=4)),
        "configuration_mismatch",
        "INCONSISTENT",
    ),
    "a cut that is not said": (
        lambda f: edit_record(f, lambda r: r["configuration"].update(cut=[])),
        "configuration_mismatch",
        "INCONSISTENT",
    ),
    "another experiment's name": (
        lambda f: edit_record(f, lambda r: r["configuration"].update(name="llama3_8b-h200-bf16")),
        "configuration_mismatch",
        "INCONSISTENT",
    ),
    "a failed run": (
        lambda f: edit_record(f, lambda r: r["outcome"].update(status="failed", reason="OutOfMemoryError: x")),
        "run_failed",
        "INCOMPLETE",
    ),
    "a run that stopped itself for NaN": (
        lambda f: edit_record(f, lambda r: r["outcome"].update(status="failed", reason="found NaN in local grad")),
        "loss_not_finite",
        "DIVERGED",
    ),
    "an interrupted run": (
        lambda f: edit_record(f, lambda r: r["outcome"].update(status="interrupted")),
        "run_unfinished",
        "INCOMPLETE",
    ),
    "steps beyond belief": (
        lambda f: edit_record(f, lambda r: r["configuration"].update(steps=10**12)),
        "steps_missing",
        "INCOMPLETE",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named_and_takes_the_verdict_away(tmp_path: Path, fault: str) -> None:
    change, code, verdict = FAULTS[fault]
    folder = make_nemo_run(tmp_path, NAME)
    change(folder)
    reseal(folder)
    judged = judge(read_run(folder))
    assert code in {reason.code for reason in judged.reasons}, judged.reasons
    assert judged.verdict == verdict


def test_faster_than_the_gpu_can_be(tmp_path: Path) -> None:
    judged = judge(read_run(make_nemo_run(tmp_path, NAME, step_time_s=1.0)))
    assert "above_peak" in {reason.code for reason in judged.reasons}


def test_a_profiled_step_is_not_timed(tmp_path: Path) -> None:
    folder = make_nemo_run(tmp_path, NAME)
    edit_rows(folder, lambda rows: rows[9].update(profiled=True, step_time_s=50.0))
    reseal(folder)
    judged = judge(read_run(folder))
    assert judged.valid, judged.reasons
    assert len(judged.run.timed_steps_s) == 6


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
def test_a_cut_metrics_file_never_passes(tmp_path: Path, cut: float) -> None:
    folder = make_nemo_run(tmp_path, NAME)
    data = (folder / METRICS).read_bytes()
    (folder / METRICS).write_bytes(data[: int(len(data) * cut)])
    reseal(folder)
    assert not judge(read_run(folder)).valid


RERUN = "20260201T000000Z-0000-r1"


def test_a_published_run_does_not_agree_with_itself(tmp_path: Path) -> None:
    for root in ("raw", "runs"):
        make_nemo_run(tmp_path / root, "llama3_8b-cpu-bf16")
    (row,) = agreement(tmp_path / "runs", tmp_path / "raw")
    assert "no other published run" in row["agreement"]


def test_a_rerun_agrees_bit_for_bit_within_tolerance_or_not(tmp_path: Path) -> None:
    name = "llama3_8b-cpu-bf16"
    make_nemo_run(tmp_path / "raw", name, loss=4.85)
    for loss, said in ((4.85, "identical"), (4.851, "within tolerance"), (4.9, "differs")):
        make_nemo_run(tmp_path / said, name, loss=loss, run_id=RERUN, versions={"nemo-toolkit": "2.3.1"})
        (row,) = agreement(tmp_path / said, tmp_path / "raw")
        assert row["agreement"] == said
        assert row["versions_that_differ"] == "nemo-toolkit 2.3.1/2.3.0"


def with_losses(kind: str, losses: list[float]) -> Judged:
    rows = [Trained(step, loss, None, step + 1, float(step), False) for step, loss in enumerate(losses)]
    return Judged(Run(Path("maxtext/e/r"), record={"kind": kind}, trained=rows), "VALID", ())


@pytest.mark.parametrize(
    ("kind", "change", "agrees"),
    [
        ("emulated", lambda step: 0.0, True),
        # steps drift, their means stay
        ("emulated", lambda step: 0.02 * (-1) ** step * (step > 0), True),
        ("measured", lambda step: 0.02 * (-1) ** step * (step > 0), False),
        # the mean drifts, or the very first loss is another one
        ("emulated", lambda step: 0.02 * (step > 50), False),
        ("emulated", lambda step: 0.002 * (step == 0), False),
        ("measured", lambda step: 0.0005, True),
        ("measured", lambda step: 0.002 * (-1) ** step * (step > 9), True),
    ],
)
def test_long_runs_are_compared_by_means_and_the_first_loss(
    kind: str, change: Callable[[int], float], agrees: bool
) -> None:
    plain = [3.0] * 100
    changed = [loss * (1 + change(step)) for step, loss in enumerate(plain)]
    assert within_tolerance(with_losses(kind, changed), with_losses(kind, plain)) == agrees


def test_what_has_no_reference_or_is_not_valid_is_not_compared(tmp_path: Path) -> None:
    folder = make_nemo_run(tmp_path / "runs", "llama3_8b-cpu-bf16")
    (row,) = agreement(tmp_path / "runs", tmp_path / "raw")
    assert "no other published run" in row["agreement"]
    edit_rows(folder, lambda rows: rows[1].update(loss="NaN"))
    reseal(folder)
    (row,) = agreement(tmp_path / "runs", tmp_path / "raw")
    assert row["agreement"].startswith("not compared: DIVERGED")


def test_step_times_are_compared_on_the_same_gpu(tmp_path: Path) -> None:
    make_nemo_run(tmp_path / "raw", NAME, step_time_s=5.0)
    make_nemo_run(tmp_path / "raw", NAME, step_time_s=5.1, run_id="20260102T000000Z-0000-r1")
    make_nemo_run(tmp_path / "runs", NAME, step_time_s=5.5, run_id=RERUN)
    (row,) = agreement(tmp_path / "runs", tmp_path / "raw")
    assert row["time_over_reference"] == pytest.approx(5.5 / 5.05, rel=1e-3)
    assert row["reference_spread"] == pytest.approx(0.02, rel=1e-2)


def test_the_command_says_by_its_code_whether_all_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "llama3_8b-cpu-bf16"
    make_nemo_run(tmp_path / "raw", name, loss=4.85)
    make_nemo_run(tmp_path / "runs", name, loss=4.9, run_id=RERUN)
    for raw, code in ((tmp_path / "raw", 1), (tmp_path / "none", 0)):
        out = tmp_path / "out.csv"
        arguments = ["agreement", "--runs", str(tmp_path / "runs"), "--raw", str(raw), "--out", str(out)]
        monkeypatch.setattr("sys.argv", arguments)
        assert main() == code
        assert out.read_text().startswith("stack,experiment")


def test_a_run_folder_is_described_like_a_log(tmp_path: Path) -> None:
    folder = make_nemo_run(tmp_path, "llama3_8b-h200-fp8_current", step_time_s=5.4)
    done = CliRunner().invoke(app, ["verify", str(folder), "--json"])
    (record,) = json.loads(done.output)
    assert record["loss"] == {
        "first": 11.97,
        "last": pytest.approx(11.961),
        "min": pytest.approx(11.961),
        "nan_steps": 0,
    }
    assert record["grad_norm"] == {"last": 1.5}
    assert record["tokens_per_s_per_gpu"] == pytest.approx(32 * 8192 / 5.4, rel=2e-3)
    text = CliRunner().invoke(app, ["verify", str(folder)]).output
    assert "nemo, 10 steps" in text
    assert "last loss 11.961" in text
    # plumbing on CPU has no speed
    cpu = make_nemo_run(tmp_path, "llama3_8b-cpu-bf16")
    assert json.loads(CliRunner().invoke(app, ["verify", str(cpu), "--json"]).output)[0]["tokens_per_s_per_gpu"] is None


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"a": 1}, {"a": 1, "added_later": False}, True),
        ({"a": 1, "b": {"x": 2}}, {"a": 1, "b": {"x": 2, "added_later": None}}, True),
        ({"a": 1, "b": {"source": "a book"}}, {"a": 1, "b": {"source": "another"}}, True),
        ({"a": 1}, {"a": 1, "added_later": True}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1, "b": {"x": 2}}, {"a": 1, "b": {"x": 3}}, False),
        (None, {"a": 1}, False),
    ],
)
def test_a_setting_added_later_makes_no_other_configuration(one: Any, other: Any, alike: bool) -> None:
    assert configured_alike(one, other) == alike
    assert configured_alike(other, one) == alike


# Published, and not as its experiment is today.
OTHERWISE = {
    "llama3_8b-h200-te_no_quant-synthetic": "its attention was no fused kernel's, which is refused now (docs/log.md)",
    "llama3_8b-h200-fp8_delayed-synthetic": "the same",
    "llama3_8b-h200-te_no_quant-emulated": "layers were unrolled",
    "llama3_8b-h200-mxfp8-emulated": "layers were unrolled",
    "llama3_8b-h200-fp8_current-emulated": "layers were unrolled, and 12 steps of 30: would it take a first one?",
}


def test_published_runs_are_still_configured_like_their_experiments() -> None:
    """Else a rerun would be compared with nothing, and nobody would see it."""
    experiments = {"nemo": experiment, "maxtext": maxtext_experiment}
    found = [
        folder
        for folder in find_runs(Path("results/raw"))
        if folder.parts[-3] in experiments and folder.parts[-2] not in OTHERWISE
    ]
    if not found:
        pytest.skip("no raw results here (`dvc pull` brings them)")
    for folder in found:
        record = json.loads((folder / RUN_JSON).read_text(encoding="utf-8"))
        if record["outcome"]["status"] not in ("completed", "unsupported"):
            continue  # a run that failed may be why its experiment was changed
        published = record["configuration"]
        today = experiments[folder.parts[-3]](folder.parts[-2])
        assert configured_alike(published, today.model_dump(mode="json")), folder
