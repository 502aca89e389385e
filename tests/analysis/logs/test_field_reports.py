"""What went wrong in public projects (numbers as in the notes on field reports), as logs: each gets its verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.compare_logs import log_differences
from analysis.expected import Expected
from analysis.log_numbers import as_record
from analysis.windows import WINDOWS, by_window
from tests import write_logs
from tests.analysis.logs.judging import codes, judge_files
from tests.break_logs import FAULTS
from tests.write_logs import is_step

_LOSS = re.compile(r"(lm loss: +)(\S+)")


def test_1_nan_grad_norm_with_finite_loss(tmp_path: Path) -> None:
    (judged,) = judge_files(tmp_path, run=FAULTS["nan_grad_norm"].make(write_logs.megatron()))
    assert judged.verdict == "DIVERGED"


def test_3_an_absent_loss_is_a_nan_at_that_step_and_shifts_nothing(tmp_path: Path) -> None:
    lines = write_logs.megatron()
    broken = FAULTS["absent_loss"].make(lines)
    (judged,) = judge_files(tmp_path, run=broken)
    at = next(i for i, line in enumerate(broken) if is_step(line) and "lm loss" not in line)
    (reason,) = [reason for reason in judged.reasons if reason.code == "loss_absent"]
    assert reason.lines == (at + 1,)
    table = judged.run.timeline.table()
    written = [float(match[2]) if (match := _LOSS.search(line)) else None for line in broken if is_step(line)]
    assert [None if loss != loss else loss for loss in table["loss"].tolist()] == written


def test_3_a_skipped_interval_without_loss_is_no_nan(tmp_path: Path) -> None:
    lines = [
        re.sub(r"\| lm loss: \S+ ", "", line).replace("skipped iterations:   0", "skipped iterations:   1")
        if " iteration        2/" in line
        else line
        for line in write_logs.megatron()
    ]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "VALID", judged.reasons


def test_4_success_at_the_end_does_not_cover_a_nan(tmp_path: Path) -> None:
    lines = [*FAULTS["nan_to_the_end"].make(write_logs.nemo()), "Job train finished: SUCCEEDED"]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "DIVERGED"
    assert as_record(judged)["loss"]["nan_steps"] == 15


def test_6_and_24_what_differs_between_two_logs_is_listed(tmp_path: Path) -> None:
    base, other = judge_files(tmp_path, a=write_logs.megatron(), b=write_logs.megatron(seed=2, batch=160))
    assert {difference.field for difference in log_differences(base, other)} == {"batch_samples"}


def test_11_accumulation_is_not_in_the_rate(tmp_path: Path) -> None:
    """Tokens/s that leave out the accumulation factor contradict batch, sequence, GPUs and step time."""
    lines = [
        re.sub(r"\| lm loss", f"| tokens per gpu per second (tgs): {80 * 2048 / 8 / 3.11 / 4:.1f} | lm loss", line)
        for line in write_logs.megatron()
    ]
    lines = [re.sub(r"\(ms\): \S+", "(ms): 3110.0", re.sub(r" \| throughput[^|]*", "", line)) for line in lines]
    (judged,) = judge_files(tmp_path, run=lines)
    assert "batch_disagrees" in codes(judged), judged.reasons
    right = [
        line.replace(f"(tgs): {80 * 2048 / 8 / 3.11 / 4:.1f}", f"(tgs): {80 * 2048 / 8 / 3.11:.1f}") for line in lines
    ]
    (judged,) = judge_files(tmp_path, run=right)
    assert "batch_disagrees" not in codes(judged), judged.reasons


def test_11_the_same_batch_with_and_without_accumulation_gives_the_same_rate(tmp_path: Path) -> None:
    (judged,) = judge_files(tmp_path, Expected(gbs=128, seq=8192, gpus=8), run=write_logs.nemo())
    record = as_record(judged)
    assert record["tokens_per_s_per_gpu"] == pytest.approx(128 * 8192 / 8 / record["step_time_s"]["median"])


@pytest.mark.parametrize("quantization", ["", "none", "te_fp8_currentscaling"])
def test_15_a_label_is_held_against_the_configuration(tmp_path: Path, quantization: str) -> None:
    (judged,) = judge_files(tmp_path, llama3_8b_fp8=write_logs.maxtext(quantization=quantization))
    said = as_record(judged)["precision"]
    assert said["declared"] == "fp8"
    assert said["effective"] == ("fp8_current" if quantization.startswith("te") else "bf16")
    assert judged.verdict == ("VALID" if quantization.startswith("te") else "INCONSISTENT")


def test_15_a_recipe_that_is_off_is_no_precision(tmp_path: Path) -> None:
    (judged,) = judge_files(tmp_path, run_fp8_delayed=write_logs.megatron(precision="bf16"))
    assert judged.verdict == "INCONSISTENT" and "precision_mismatch" in codes(judged)


def test_17_windows_skip_what_they_say(tmp_path: Path) -> None:
    """Skip three and divide by what is left: an off-by-one shows in n."""
    (judged,) = judge_files(tmp_path, run=write_logs.nemo(120))
    table = judged.run.timeline.table()
    counts = {window.name: count for window, _, count in by_window(table["step"], table["time_s"])}
    assert counts["skip 3, mean"] == 117 and counts["all but the first, mean"] == 119
    assert counts["steps 35-44, mean"] == 10 and counts["steps 80-100, mean"] == 21 and counts["step 90"] == 1
    assert len(counts) == len(WINDOWS)


def test_23_a_learning_rate_off_its_schedule(tmp_path: Path) -> None:
    lines = [
        re.sub(r"learning rate: \S+", "learning rate: 9.000000E-04", line) if " iteration       20/" in line else line
        for line in write_logs.megatron()
    ]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "INCONSISTENT" and "learning_rate_odd" in codes(judged)


@pytest.mark.parametrize("shift", [1, 5])
def test_23_a_schedule_off_by_some_steps(tmp_path: Path, shift: int) -> None:
    """Warm-up counted from the wrong step: smooth, and still not the schedule that the log prints."""
    lines = [
        re.sub(r"learning rate: \S+", lambda _: f"learning rate: {3e-4 * (1 - (step + shift) / 60):.6E}", line)
        if (match := re.search(r" iteration +(\d+)/", line)) and (step := int(match[1]))
        else line
        for line in write_logs.megatron()
    ]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "INCONSISTENT" and "learning_rate_odd" in codes(judged)


def test_29_hardware_is_held_against_the_log(tmp_path: Path) -> None:
    (judged,) = judge_files(tmp_path, llama31_8b_gb300x8=write_logs.mllog())
    assert judged.verdict == "INCONSISTENT" and "hardware_mismatch" in codes(judged)


def test_above_any_peak(tmp_path: Path) -> None:
    lines = [
        re.sub(r"seconds: \S+ TFLOP/s/device: \S+", "seconds: 0.002, TFLOP/s/device: 516600.000,", line)
        if "step: 9," in line
        else line
        for line in write_logs.maxtext()
    ]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "INCONSISTENT" and "above_peak" in codes(judged)


@pytest.mark.parametrize(("name", "code"), [("h100_bf16", 1), ("h100_fp8", 0), ("b200_bf16", 0)])
def test_the_peak_is_that_of_gpu_and_precision(tmp_path: Path, name: str, code: int) -> None:
    """1200 TFLOP/s: above an H100's BF16 peak, not above its FP8 peak, nor above a B200's in BF16."""
    lines = [line for line in write_logs.nemo() if " fp8" not in line]
    lines = [re.sub(r"TFLOPS_per_GPU: (\S+)", "TFLOPS_per_GPU: 1.2e+03", line) for line in lines]
    lines = [re.sub(r"in s: \S+", "in s: 6.0", line) for line in lines]
    (judged,) = judge_files(tmp_path, **{name: lines})
    assert ("above_peak" in codes(judged)) == bool(code), judged.reasons


def test_asynchronous_dispatch_in_the_first_steps_is_no_fault(tmp_path: Path) -> None:
    """MaxText prints 2400 TFLOP/s at step 1 where the device does 135: above an H100's peak, and known to be so."""
    early = [
        re.sub(
            r"seconds: \S+ TFLOP/s/device: \S+ Tokens/s/device: \S+",
            "seconds: 0.430, TFLOP/s/device: 2402.791, Tokens/s/device: 38102.326,",
            line,
        )
        if f"step: {step}," in line
        else line
        for step in (1,)
        for line in write_logs.maxtext()
    ]
    (judged,) = judge_files(tmp_path, h100=early)
    assert judged.verdict == "VALID", judged.reasons
    late = [
        line.replace("step: 1,", "step: x,").replace("step: 9,", "step: 1,").replace("step: x,", "step: 9,")
        for line in early
    ]
    steps = [at for at, line in enumerate(late) if is_step(line)]
    late[steps[1]], late[steps[9]] = late[steps[9]], late[steps[1]]
    (judged,) = judge_files(tmp_path, h100=late)
    assert "above_peak" in codes(judged), judged.reasons


def test_time_between_steps_is_only_a_note(tmp_path: Path) -> None:
    """Data loading outside the timed step: a fifth more wall time than step time, which NeMo 1's timer does not see."""
    lines = [
        re.sub(r'("train_step_timing in s": )([\d.]+)', lambda m: f"{m[1]}{float(m[2]) / 1.2}", line)
        for line in write_logs.dllogger()
    ]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "VALID" and "time_between_steps" in codes(judged), judged.reasons


def test_samples_shifted_throughout(tmp_path: Path) -> None:
    lines = [
        re.sub(r"samples: +(\d+)", lambda m: f"samples: {int(m[1]) + 80:12d}", line) for line in write_logs.megatron()
    ]
    (judged,) = judge_files(tmp_path, run=lines)
    assert "samples_disagree" in codes(judged)


def test_a_configured_batch_that_is_not_the_printed_one(tmp_path: Path) -> None:
    lines = [re.sub(r"(global_batch_size \.+ )\d+", r"\g<1>96", line) for line in write_logs.megatron()]
    (judged,) = judge_files(tmp_path, run=lines)
    assert "batch_disagrees" in codes(judged)


def test_nemo_counts_within_an_epoch(tmp_path: Path) -> None:
    """`iteration 0/9` of every tenth step: 20 of 30 steps are not the whole run, whatever the count says."""
    lines = [
        re.sub(r"epoch 0, iteration (\d+)/29", lambda m: f"epoch {int(m[1]) // 10}, iteration {int(m[1]) % 10}/9", line)
        for line in write_logs.nemo()
    ]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "VALID", judged.reasons
    steps = [at for at, line in enumerate(lines) if is_step(line)]
    for count in (10, 20):
        (judged,) = judge_files(tmp_path, run=lines[: steps[count]])
        assert not judged.valid, count


def test_expectations_are_held_against_the_log(tmp_path: Path) -> None:
    (judged,) = judge_files(tmp_path, Expected(steps=40, gbs=256), run=write_logs.megatron())
    assert {"end_missing", "batch_disagrees"} <= codes(judged)
    assert judged.verdict == "INCONSISTENT"


def test_a_log_that_does_not_say_its_length_needs_to_be_told(tmp_path: Path) -> None:
    lines = [line for line in write_logs.maxtext() if "Config param" not in line]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "INCOMPLETE" and "end_unknown" in codes(judged)
    (judged,) = judge_files(tmp_path, Expected(steps=30), run=lines)
    assert judged.verdict == "VALID"


def test_mlperf_marks(tmp_path: Path) -> None:
    """Edits that the submission checker accepts."""
    lines = write_logs.mllog()
    stop, start = len(lines) - 1, next(i for i, line in enumerate(lines) if '"run_start"' in line)

    def later(line: str, seconds: float) -> str:
        return re.sub(r'"time_ms": (\d+)', lambda m: f'"time_ms": {int(m[1]) + int(1000 * seconds)}', line)

    evals = [i for i, line in enumerate(lines) if '"eval_accuracy"' in line]
    edits = {
        "clock_backwards": [*lines[:stop], later(lines[stop], -2)],
        "clock_backwards ": [*lines[:start], later(lines[start], 2), *lines[start + 1 :]],
        "no_steps": [line for line in lines if "train_step_time" not in line],
        "eval_not_finite": [
            re.sub(r'"value": [\d.]+', '"value": NaN', line) if i == evals[1] else line for i, line in enumerate(lines)
        ],
        "no_steps ": [line for line in lines if "tracked_stats" not in line],
        "eval_missing": [line for i, line in enumerate(lines) if i != evals[1]],
    }
    for code, edited in edits.items():
        (judged,) = judge_files(tmp_path, run=edited)
        assert code.strip() in codes(judged), (code, judged.reasons)
        assert not judged.valid
