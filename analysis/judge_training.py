"""Checks of a training run's folder (NeMo, MaxText): what it configured, every step, its log, the clock, the peak."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import numpy as np

from analysis.expected import Expected
from analysis.judge_log import judge_log
from analysis.logs.read import UnknownFormat, read_log
from analysis.logs.run import Reason, Run
from analysis.logs.source import Source
from analysis.verdicts import VERDICT_OF
from recipes.catalog import CatalogError, Model, flops_per_token, load_models, load_precisions
from recipes.catalog.hardware import mfu
from recipes.runs import LOG, METRICS, RUN_JSON, RunError

# More steps than any run of ours; a run.json that asks for more is not believed.
MAX_STEPS = 10_000_000
# Frameworks time a little less than the whole step; on a busy CPU, seconds differ.
_TIME_SHARE, _TIME_S = 0.1, 0.1
# NeMo prints a loss in four digits, MaxText in three decimals.
_LOSS_SHARE, _LOSS = 1e-3, 5.1e-4
# What a folder says better than its log: the precision (run.json), and where a resumed run begins.
_NOT_FROM_LOG = ("precision_not_stated", "start_missing", "resumed")


def configuration(run: Run) -> Iterator[Reason]:
    """The experiment's name, and dimensions: the catalog's, but for what the run says was cut."""
    if not run.completed:
        return
    if run.get("configuration", "name") != run.get("experiment"):
        yield Reason(
            "configuration_mismatch",
            f"experiment {run.get('experiment')!r} is configured as {run.get('configuration', 'name')!r}",
        )
    full, mine = load_models().get(str(run.get("configuration", "model"))), run.get("configuration", "dimensions")
    if full is None or not isinstance(mine, dict):
        yield Reason("configuration_mismatch", f"{RUN_JSON} names no known model, or no dimensions")
        return
    cut = run.get("configuration", "cut") or []
    for key, value in full.model_dump(mode="json").items():
        if mine.get(key) != value and not {f"{mine.get(key)} of {value} {key}", f"{key} {mine.get(key)} of {value}"} & {
            str(text) for text in cut
        }:
            yield Reason(
                "configuration_mismatch", f"{key} is {mine.get(key)!r}, the model's is {value!r}, and no cut says so"
            )


def steps(run: Run) -> Iterator[Reason]:
    """Every step from the first to the last, once; samples that follow from the batch."""
    total, batch = run.get("configuration", "steps"), run.get("configuration", "layout", "global_batch_samples")
    start = run.get(str(run.get("stack")), "resumed_at_step") or 0
    if not run.completed:
        return
    if not all(isinstance(n, int) and 0 <= n <= MAX_STEPS for n in (total, start, batch)) or not total:
        yield Reason("steps_missing", f"{RUN_JSON} does not say believably how many steps there should be")
        return
    found, expected = [row.step for row in run.trained], list(range(start, total))
    missing = sorted(set(expected) - set(found))
    if missing:
        yield Reason("steps_missing", f"{METRICS}: {len(missing)} of {len(expected)} steps missing, first {missing[0]}")
    elif found != expected:
        yield Reason("steps_repeated", f"{METRICS}: steps repeated, out of order or beyond the configured {total}")
    wrong = [row.step for row in run.trained if row.consumed_samples != (row.step + 1) * batch]
    if wrong:
        yield Reason("samples_disagree", f"{METRICS}: steps {wrong[:5]} state samples that are not steps x batch")


def finite(run: Run) -> Iterator[Reason]:
    """Losses, gradient norms and times are numbers; a NaN that stopped the run counts even where it was not logged."""
    for code, what, values in (
        ("loss_not_finite", "loss", [(row.step, row.loss) for row in run.trained]),
        ("grad_norm_not_finite", "gradient norm", [(row.step, row.grad_norm or 0.0) for row in run.trained]),
        ("not_finite", "step time", [(step.step, step.step_time_s) for step in run.steps]),
    ):
        bad = [step for step, value in values if not math.isfinite(value)]
        if bad:
            yield Reason(code, f"{METRICS}: the {what} is NaN or infinite at {len(bad)} steps, first {bad[0]}")
    if any(step.step_time_s <= 0 for step in run.steps):
        yield Reason("time_not_positive", f"{METRICS}: a time that is zero or negative")
    said = str(run.get("outcome", "reason"))
    if run.get("outcome", "status") == "failed" and re.search(r"\bNaN\b|diverged", said):
        yield Reason("loss_not_finite", f"the run stopped itself: {said[:200]}")


def log(run: Run) -> Iterator[Reason]:
    """log.txt is the framework's own word: judged like anybody's log, and held against metrics.jsonl."""
    path = run.path / LOG
    if not run.completed or not path.is_file():
        return
    try:
        runs = read_log(Source(path))
    except (UnknownFormat, RunError) as error:
        yield Reason("log_disagrees", f"{LOG}: {str(error)[:200]}")
        return
    if len(runs) != 1:
        yield Reason("runs_unmarked", f"{LOG} holds {len(runs)} runs")
        return
    expected = Expected(
        steps=_whole(run, "configuration", "steps"),
        gbs=_whole(run, "configuration", "layout", "global_batch_samples"),
        gpus=_whole(run, "configuration", "layout", "gpus"),
    )
    for reason in judge_log(runs[0], expected).reasons:
        if VERDICT_OF[reason.code] != "VALID" and reason.code not in _NOT_FROM_LOG:
            yield Reason(reason.code, f"{LOG}: {reason.message}", reason.lines)
    table = runs[0].timeline.table()
    logged = {int(step): at for at, step in enumerate(table["step"]) if math.isfinite(step)}
    for row, step in zip(run.trained, run.steps, strict=True):
        at = logged.get(row.step)
        if at is None:
            yield Reason("log_disagrees", f"{LOG} has no step {row.step}, {METRICS} has")
            return
        if math.isfinite(row.loss) and not np.isclose(table["loss"][at], row.loss, rtol=_LOSS_SHARE, atol=_LOSS):
            yield Reason("log_disagrees", f"step {row.step}: {LOG} says loss {table['loss'][at]:g}, not {row.loss:g}")
            return
        away = abs(table["time_s"][at] - step.step_time_s)
        if not row.profiled and away > _TIME_SHARE * step.step_time_s + _TIME_S:
            yield Reason(
                "log_disagrees", f"step {row.step}: {LOG} says {table['time_s'][at]:g} s, not {step.step_time_s:g} s"
            )
            return


def _whole(run: Run, *keys: str) -> int | None:
    value = run.get(*keys)
    return value if isinstance(value, int) else None


def clock(run: Run) -> Iterator[Reason]:
    """Steps follow each other: step times and the ends' Unix times must tell the same story."""
    rows = list(zip(run.trained, run.steps, strict=True))
    for (before, _), (row, step) in pairwise(rows):
        wall = row.time_unix_s - before.time_unix_s
        if before.profiled or row.profiled or row.step != before.step + 1:
            continue
        if not abs(wall - step.step_time_s) <= 0.05 * step.step_time_s + _TIME_S:
            yield Reason(
                "time_disagrees",
                f"step {row.step} took {step.step_time_s:.3f} s, the clock says {wall:.3f} s since the last one",
            )
            return


def peak(run: Run) -> Iterator[Reason]:
    """No step may be faster than the GPUs' dense peak allows."""
    precision = load_precisions().get(str(run.get("effective_precision")))
    gpus = _whole(run, "configuration", "layout", "gpus")
    times = run.timed_steps_s
    if not run.completed or precision is None or not gpus or not times or not run.get("hardware", "gpus"):
        return
    try:
        model = Model.model_validate(run.get("configuration", "dimensions"))
        rate = flops_per_token(model) * run.steps[0].tokens / median(times) / gpus / 1e12
        mfu(str(run.get("hardware", "gpu_name")), precision.peak_format, rate)
    except ValueError as error:  # CatalogError and pydantic's errors are ValueErrors
        code = "above_peak" if isinstance(error, CatalogError) else "configuration_mismatch"
        yield Reason(code, str(error).splitlines()[0][:300])


CHECKS = (configuration, steps, finite, log, clock, peak)
