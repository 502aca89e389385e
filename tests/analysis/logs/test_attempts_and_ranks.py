"""Restarts, resumed logs and many ranks (numbered as field reports): the last attempt counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.inputs import gather
from analysis.log_numbers import as_record
from analysis.logs import timeline
from tests import write_logs
from tests.analysis.logs.judging import codes, judge_files
from tests.break_logs import FAULTS, replace
from tests.write_logs import is_step, text

_LOSS = re.compile(r"(lm loss: +)(\S+)")


def _resumed(loss: float = 1.0, samples: int = 0) -> tuple[list[str], list[str]]:
    """A run stopped after 20 of 30 steps, and the log that resumed it at step 16, its losses and samples changed."""
    whole = write_logs.megatron(30)
    steps = [at for at, line in enumerate(whole) if is_step(line)]
    later = []
    for line in whole[steps[15] :]:
        if is_step(line):
            value = float(_LOSS.findall(line)[0][1])
            line = replace(line, _LOSS, f"{value * loss:.6E}")
            line = re.sub(r"samples: +(\d+)", lambda m: f"samples: {int(m[1]) + samples:12d}", line)
        later.append(line)
    return whole[: steps[20]], [*whole[: steps[0]], *later]


def test_13_a_resumed_log_is_joined_to_its_parent(tmp_path: Path) -> None:
    first, second = _resumed()
    (judged,) = judge_files(tmp_path, part1=first, part2=second)
    assert judged.verdict == "VALID", judged.reasons
    assert judged.run.parents == (str(tmp_path / "part1.log"),)
    steps = as_record(judged)["steps"]
    assert (steps["first"], steps["last"], steps["count"], steps["repeated"]) == (1, 30, 30, 5)


def test_13_alone_neither_part_is_whole(tmp_path: Path) -> None:
    first, second = _resumed()
    for name, lines in (("a", first), ("b", second)):
        (tmp_path / name).mkdir()
        (judged,) = judge_files(tmp_path / name, run=lines)
        assert judged.verdict == "INCOMPLETE"


def test_13_a_loss_that_jumps_after_resuming_is_found(tmp_path: Path) -> None:
    first, second = _resumed(loss=1.08)
    (judged,) = judge_files(tmp_path, part1=first, part2=second)
    assert judged.verdict == "INCONSISTENT" and "overlap_disagrees" in codes(judged)


def test_13_a_jump_without_overlap_is_found(tmp_path: Path) -> None:
    whole = write_logs.megatron(60)
    steps = [at for at, line in enumerate(whole) if is_step(line)]
    later = [replace(line, _LOSS, f"{9.9:.6E}") if is_step(line) else line for line in whole[steps[50] :]]
    (judged,) = judge_files(tmp_path, part1=whole[: steps[50]], part2=[*whole[: steps[0]], *later])
    assert "resume_jump" in codes(judged), judged.reasons


def test_14_consumed_samples_go_on(tmp_path: Path) -> None:
    first, second = _resumed(samples=40)
    (judged,) = judge_files(tmp_path, part1=first, part2=second)
    assert judged.verdict == "INCONSISTENT" and "samples_disagree" in codes(judged)


def _restarted(lines: list[str], at: int, back_to: int) -> list[str]:
    steps = [index for index, line in enumerate(lines) if is_step(line)]
    words = ["Worker group FAILED. 3/3 attempts left; will restart worker group", "restart_count=1"]
    return [*lines[: steps[at]], *words, *lines[steps[back_to] :]]


@pytest.mark.parametrize("name", ["megatron", "nemo", "maxtext", "torchtitan", "dllogger"])
def test_a_restart_counts_its_last_attempt(tmp_path: Path, name: str) -> None:
    lines = write_logs.WRITERS[name]()
    (judged,) = judge_files(tmp_path, run=_restarted(lines, 16, 10))
    steps = as_record(judged)["steps"]
    assert (steps["count"], steps["repeated"], steps["missing"]) == (30, 6, 0)
    assert "restarted" in codes(judged)
    assert judged.verdict == "VALID", judged.reasons
    table = judged.run.timeline.table()
    assert table["first_of_attempt"].tolist().count(1.0) == 1


def test_a_restart_from_scratch_is_no_second_run(tmp_path: Path) -> None:
    (judged,) = judge_files(tmp_path, run=_restarted(write_logs.nemo(), 16, 0))
    assert judged.verdict == "VALID", judged.reasons
    assert as_record(judged)["steps"]["repeated"] == 16


def test_a_nan_that_was_done_again_is_only_a_note(tmp_path: Path) -> None:
    broken = FAULTS["nan_loss"].make(write_logs.nemo())
    clean = write_logs.nemo()
    steps = [index for index, line in enumerate(clean) if is_step(line)]
    lines = [*broken[: steps[18]], "restart_count=1", *clean[steps[10] :]]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "VALID" and "redone_not_finite" in codes(judged), judged.reasons


def test_15_ranks_in_one_file_are_separated_by_their_prefix(tmp_path: Path) -> None:
    lines = []
    for line in write_logs.torchtitan():
        lines += [line, line.replace("[rank0]", "[rank3]")]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "VALID" and "ranks_separated" in codes(judged), judged.reasons
    assert as_record(judged)["steps"]["count"] == 30


@pytest.mark.parametrize("back_to", [0, 6])
def test_15_all_ranks_restart_together(tmp_path: Path, back_to: int) -> None:
    lines = []
    for line in _restarted(write_logs.nemo(), 12, back_to):
        lines += [f"{rank}: {line}" for rank in (0, 1)] if is_step(line) else [f"0: {line}"]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "VALID" and {"restarted", "ranks_separated"} <= codes(judged), judged.reasons
    assert as_record(judged)["steps"]["repeated"] == 12 - back_to


def test_15_a_nan_on_another_rank_is_found(tmp_path: Path) -> None:
    lines = []
    broken = FAULTS["nan_loss"].make(write_logs.torchtitan())
    for line, other in zip(write_logs.torchtitan(), broken, strict=True):
        lines += [line, other.replace("[rank0]", "[rank3]")]
    (judged,) = judge_files(tmp_path, run=lines)
    assert judged.verdict == "DIVERGED", judged.reasons


def test_15_one_file_a_rank(tmp_path: Path) -> None:
    quiet = ["[rank1]: loading"]
    judged = judge_files(
        tmp_path, rank_0=write_logs.torchtitan(), rank_1=quiet, rank_2=write_logs.torchtitan(), rank_3=quiet
    )
    assert len(judged) == 1
    assert judged[0].verdict == "VALID", judged[0].reasons


def test_15_ranks_that_disagree(tmp_path: Path) -> None:
    (judged,) = judge_files(
        tmp_path, rank_0=write_logs.megatron(), rank_1=FAULTS["missing_step"].make(write_logs.megatron())
    )
    assert "ranks_disagree" in codes(judged)


def test_15_a_later_run_without_steps_does_not_use_the_earlier_ones(tmp_path: Path) -> None:
    header = [line for line in write_logs.megatron() if not is_step(line)][:-1]
    judged = judge_files(tmp_path, run=[*write_logs.megatron(), *header, "CUDA out of memory"])
    assert [item.verdict for item in judged] == ["VALID", "INCOMPLETE"]
    assert "no_steps" in codes(judged[1])


@pytest.mark.parametrize("names", [("0.log", "1.log"), ("stdout_0.txt", "stdout_1.txt"), ("node0.out", "node1.out")])
def test_names_of_rank_files(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in names:
        (tmp_path / name).write_bytes(text(write_logs.megatron()))
    (run,) = gather([tmp_path]).logs
    assert len(run.timelines) == 2


def test_repeats_are_no_ranks(tmp_path: Path) -> None:
    for seed, name in enumerate(("result_0.txt", "result_1.txt")):
        (tmp_path / name).write_bytes(text(write_logs.mllog(seed=seed)))
    assert len(gather([tmp_path]).logs) == 2


def test_a_restart_into_thinned_rows_counts_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long run only some rows are kept; what is done again is counted by steps, not by rows kept."""
    monkeypatch.setattr(timeline, "MOST_KEPT", 512)
    (judged,) = judge_files(tmp_path, run=_restarted(write_logs.nemo(2000), 1900, 300))
    steps = as_record(judged)["steps"]
    assert (steps["count"], steps["repeated"], steps["missing"]) == (2000, 1600, 0)
