"""How judged runs are shown: a progress bar while they are read, a line a run, reasons below; JSON for programs."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn
from rich.text import Text

from analysis.inputs import Inputs, gather
from analysis.judge import Judged
from analysis.judge_log import JudgedLog
from analysis.log_numbers import json_number, step_time, window_times_s
from analysis.logs.formats import FORMATS
from analysis.logs.log_run import LogRun
from analysis.logs.run import Reason, Run
from analysis.stats import median
from recipes.runs import MANIFEST, RunError, sha256_of

# A progress bar is shown from this size on.
LARGE = 32 << 20


def gather_shown(paths: Sequence[Path], known: str = "auto") -> Inputs:
    """Read everything, with a progress bar on a terminal when it is much. Raises RunError."""
    if known != "auto" and known not in FORMATS:
        raise RunError(f"unknown format {known!r}; allowed: auto, {', '.join(FORMATS)}")
    wanted = FORMATS.get(known)
    size = sum(path.stat().st_size for path in paths if path.is_file())
    if size < LARGE or not sys.stderr.isatty():
        return gather(paths, wanted)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=size)
        before, last = 0, 0

        def advance(read: int) -> None:
            nonlocal before, last
            if read < last:  # the next file begins
                before += last
            last = read
            bar.update(task, completed=before + read)

        return gather(paths, wanted, advance)


def printable(text: str) -> str:
    """Text with control characters escaped, so that a log cannot drive the terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shown_name(run: LogRun) -> str:
    """Path of a log's run, with what it continues and which run of its file it is."""
    name = " + ".join((*run.parents, run.path))
    return f"{name} (run {run.part} of {run.parts})" if run.parts > 1 else name


def summary(judged: JudgedLog) -> str:
    """One line of numbers: format, steps, median step time with its interval, last loss."""
    timeline = judged.run.timeline
    parts = [judged.run.format.name, f"{timeline.rows - timeline.repeated} steps"]
    estimate = step_time(window_times_s(judged))
    if estimate:
        parts.append(f"{estimate.value:.4g} s [{estimate.low:.4g}, {estimate.high:.4g}] a step, n = {estimate.n}")
    if "loss" in timeline.last_row:
        parts.append(f"last loss {timeline.last_row['loss']:.5g}")
    return ", ".join(parts)


def print_verdict(console: Console, verdict: str, name: str, numbers: str, reasons: Iterable[Reason]) -> None:
    """A verdict and its reasons."""
    # Text, not markup: names and messages come from files of unknown origin
    console.print(Text(f"{verdict:<13}"), Text(printable(name)))
    if numbers:
        console.print(Text(f"              {numbers}"))
    for reason in reasons:
        lines = (
            f" (line{'s' * (len(reason.lines) > 1)} {', '.join(map(str, reason.lines[:5]))})" if reason.lines else ""
        )
        console.print(Text(f"              {reason.code}: {printable(reason.message)}{lines}"))


def folder_summary(item: Judged) -> str:
    """One line of numbers of a run folder, as of a log: steps, median step time with its interval, last loss."""
    record = folder_record(item)
    steps, time = record["steps"]["count"], record["step_time_s"]
    parts = [f"{record['format']}, {steps} steps"] if steps else []
    if time["median"] is not None:
        low, high = time["ci95"]
        parts.append(f"{time['median']:.4g} s [{low:.4g}, {high:.4g}] a step, n = {time['n']}")
    if record["loss"]["last"] is not None:
        parts.append(f"last loss {record['loss']['last']:.5g}")
    return ", ".join(parts)


def _tokens_per_s_per_gpu(run: Run, step_time_s: float) -> float | None:
    """Of a training run on GPUs: tokens of a step over its time and GPUs. A stack of layers, or a CPU, has none."""
    gpus = run.get("configuration", "layout", "gpus")
    if not run.trained or not run.get("hardware", "gpus") or not isinstance(gpus, int) or gpus < 1:
        return None
    return run.steps[0].tokens / step_time_s / gpus


def folder_record(item: Judged) -> dict[str, Any]:
    """A run folder in the same form as a log's run."""
    run = item.run
    numbers = [step.step for step in run.steps] or sorted({op.step for op in run.ops})
    times = [time for time in run.timed_steps_s if math.isfinite(time)]
    estimate = median([times]) if times else None
    losses = [row.loss for row in run.trained if math.isfinite(row.loss)]
    manifest = run.path / MANIFEST
    return {
        "path": str(run.path),
        "format": str(run.get("stack") or "unknown"),
        "verdict": item.verdict,
        "reasons": [{"code": r.code, "message": r.message, "lines": list(r.lines)} for r in item.reasons],
        "steps": {
            "first": min(numbers, default=None),
            "last": max(numbers, default=None),
            "count": len(set(numbers)),
            "repeated": len(run.steps) - len({step.step for step in run.steps}),
            "missing": len(set(range(min(numbers), max(numbers) + 1)) - set(numbers)) if numbers else 0,
        },
        "step_time_s": {
            "median": estimate.value if estimate else None,
            "ci95": [estimate.low, estimate.high] if estimate else None,
            "window": "timed iterations",
            "n": estimate.n if estimate else 0,
        },
        "tokens_per_s_per_gpu": _tokens_per_s_per_gpu(run, estimate.value) if estimate else None,
        "loss": {
            "first": json_number(run.trained[0].loss) if run.trained else None,
            "last": json_number(run.trained[-1].loss) if run.trained else None,
            "min": min(losses, default=None),
            "nan_steps": len(run.trained) - len(losses),
        },
        "grad_norm": {"last": json_number(run.trained[-1].grad_norm) if run.trained else None},
        "precision": {"declared": run.get("requested_precision"), "effective": run.get("effective_precision")},
        "sha256": sha256_of(manifest) if manifest.is_file() else None,
    }
