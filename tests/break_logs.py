"""Faults that training logs have in the field, made on purpose: each takes a clean log's lines and breaks them.

`FAULTS` says for each what must be found: the verdict and one of the reason codes. Used by tests and by the table that
sets our verdicts beside those of other tools (docs/logs.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.write_logs import step_lines

_LOSS = re.compile(r'((?:lm loss|reduced_train_loss|mloss| loss)"?: +)([-+.\dEe]+)')
_TIME = re.compile(r'((?:\(ms\)|timing in s|seconds|train_step_time)"?: +)([-+.\dEe]+)')


def replace(line: str, pattern: re.Pattern[str], value: str) -> str:
    """The line with the number of its last match replaced."""
    matches = list(pattern.finditer(line))
    assert matches, line
    last = matches[-1]
    return line[: last.start(2)] + value + line[last.end(2) :]


def _at(lines: list[str], share: float) -> int:
    """The index of the step line that stands at a share of the run."""
    steps = step_lines(lines)
    return steps[int(share * len(steps))]


def nan_loss(lines: list[str]) -> list[str]:
    """One loss is NaN."""
    at = _at(lines, 0.5)
    value = "NaN" if lines[at].startswith((":::", "DLLL")) else "nan"
    return [*lines[:at], replace(lines[at], _LOSS, value), *lines[at + 1 :]]


def nan_to_the_end(lines: list[str]) -> list[str]:
    """From the middle on every loss is NaN; the job ends as if nothing had been."""
    begin = _at(lines, 0.5)
    value = "NaN" if lines[begin].startswith((":::", "DLLL")) else "nan"
    steps = set(step_lines(lines))
    return [replace(line, _LOSS, value) if i in steps and i >= begin else line for i, line in enumerate(lines)]


def infinite_loss(lines: list[str]) -> list[str]:
    """One loss is infinite."""
    at = _at(lines, 0.5)
    value = "Infinity" if lines[at].startswith((":::", "DLLL")) else "inf"
    return [*lines[:at], replace(lines[at], _LOSS, value), *lines[at + 1 :]]


def absent_loss(lines: list[str]) -> list[str]:
    """One line has no loss: how Megatron prints NaN."""
    at = _at(lines, 0.5)
    patterns = (
        r"\| lm loss: \S+ ",
        r"\| reduced_train_loss: \S+ ",
        r", loss: \S+",
        r"loss: +\S+  ",
        r'"reduced_train_loss": [^,}]+,? ?',
    )
    for pattern in patterns:
        line, count = re.subn(pattern, "", lines[at])
        if count:
            return [*lines[:at], line.replace(", }", "}"), *lines[at + 1 :]]
    raise AssertionError(lines[at])


def nan_grad_norm(lines: list[str]) -> list[str]:
    """A NaN gradient norm beside a finite loss."""
    at = _at(lines, 0.5)
    line, count = re.subn(r'(grad[ _]norm"?: +)[\d.]+', r"\1nan", lines[at])
    assert count
    return [*lines[:at], line, *lines[at + 1 :]]


def missing_step(lines: list[str]) -> list[str]:
    """A step line in the middle is gone."""
    at = _at(lines, 0.5)
    return [*lines[:at], *lines[at + 1 :]]


def missing_start(lines: list[str]) -> list[str]:
    """The first third of the steps is gone."""
    first, until = step_lines(lines)[0], _at(lines, 0.34)
    return [*lines[:first], *lines[until:]]


def missing_end(lines: list[str]) -> list[str]:
    """The log stops in the middle, without a word."""
    return lines[: _at(lines, 0.6)]


def early_but_succeeded(lines: list[str]) -> list[str]:
    """The last third of the steps is gone, the end marker is there."""
    last = step_lines(lines)[-1]
    return [*lines[: _at(lines, 0.66)], *lines[last + 1 :]]


def two_ranks_mixed(lines: list[str]) -> list[str]:
    """Two ranks wrote every step line into one file, with other times."""
    steps = set(step_lines(lines))
    mixed = []
    for i, line in enumerate(lines):
        mixed.append(line)
        if i in steps:
            mixed.append(_TIME.sub(lambda m: f"{m[1]}{m[2][:-1]}{(int(m[2][-1]) + 1) % 10}", line))
    return mixed


def changed_time(lines: list[str]) -> list[str]:
    """One step time is halved, its rate is not."""
    at = _at(lines, 0.7)
    value = float(_TIME.findall(lines[at])[-1][1])
    return [*lines[:at], replace(lines[at], _TIME, f"{value / 2:.3f}"), *lines[at + 1 :]]


def all_times_halved(lines: list[str]) -> list[str]:
    """Every step time is halved."""
    steps = set(step_lines(lines))
    return [
        replace(line, _TIME, f"{float(_TIME.findall(line)[-1][1]) / 2:.3f}") if i in steps else line
        for i, line in enumerate(lines)
    ]


def swapped_steps(lines: list[str]) -> list[str]:
    """Two neighbouring step lines changed places."""
    at = _at(lines, 0.5)
    other = next(i for i in step_lines(lines) if i > at)
    swapped = list(lines)
    swapped[at], swapped[other] = lines[other], lines[at]
    return swapped


def diverging(lines: list[str]) -> list[str]:
    """The loss rises to twice its start."""
    steps = step_lines(lines)
    broken = list(lines)
    for count, at in enumerate(steps):
        if count > len(steps) // 2:
            broken[at] = replace(lines[at], _LOSS, f"{4 + count:.4f}")
    return broken


def zero_time(lines: list[str]) -> list[str]:
    """A step time of zero."""
    at = _at(lines, 0.5)
    return [*lines[:at], replace(lines[at], _TIME, "0.0"), *lines[at + 1 :]]


def no_steps(lines: list[str]) -> list[str]:
    """Only what stands around the steps (and one step, so that the format is known)."""
    steps = step_lines(lines)
    return [line for i, line in enumerate(lines) if i not in steps[1:]]


@dataclass(frozen=True)
class Fault:
    """How to break a log, what must be found, and in which formats it can occur."""

    make: Callable[[list[str]], list[str]]
    verdict: str
    codes: tuple[str, ...]
    formats: tuple[str, ...] = ("megatron", "bridge", "nemo", "maxtext", "torchtitan", "mlperf", "dllogger")


_TIMED = ("megatron", "bridge", "nemo", "maxtext", "mlperf", "dllogger")
FAULTS: dict[str, Fault] = {
    "nan_loss": Fault(nan_loss, "DIVERGED", ("loss_not_finite",)),
    "nan_to_the_end": Fault(nan_to_the_end, "DIVERGED", ("loss_not_finite",)),
    "infinite_loss": Fault(infinite_loss, "DIVERGED", ("loss_not_finite",)),
    "absent_loss": Fault(
        absent_loss, "DIVERGED", ("loss_absent",), ("megatron", "bridge", "maxtext", "torchtitan", "dllogger")
    ),
    "nan_grad_norm": Fault(nan_grad_norm, "DIVERGED", ("grad_norm_not_finite",), ("megatron", "bridge", "torchtitan")),
    "missing_step": Fault(missing_step, "INCOMPLETE", ("steps_missing",)),
    "missing_start": Fault(missing_start, "INCOMPLETE", ("start_missing",)),
    "missing_end": Fault(missing_end, "INCOMPLETE", ("end_missing",)),
    "early_but_succeeded": Fault(
        early_but_succeeded,
        "INCOMPLETE",
        ("end_missing",),
        ("megatron", "bridge", "nemo", "maxtext", "torchtitan", "dllogger"),
    ),
    "two_ranks_mixed": Fault(two_ranks_mixed, "INCONSISTENT", ("ranks_interleaved",)),
    "changed_time": Fault(changed_time, "INCONSISTENT", ("rate_disagrees",), ("megatron", "bridge", "nemo", "maxtext")),
    "all_times_halved": Fault(
        all_times_halved,
        "INCONSISTENT",
        ("rate_disagrees", "clock_disagrees"),
        ("megatron", "bridge", "mlperf", "dllogger"),
    ),
    "swapped_steps": Fault(
        swapped_steps, "INCOMPLETE", ("steps_missing",), ("megatron", "nemo", "maxtext", "dllogger")
    ),
    "diverging": Fault(diverging, "DIVERGED", ("loss_rose",)),
    "zero_time": Fault(zero_time, "INCONSISTENT", ("time_not_positive",), _TIMED),
    "no_steps": Fault(
        no_steps, "INCOMPLETE", ("end_missing", "steps_missing"), ("megatron", "nemo", "maxtext", "torchtitan")
    ),
}
