"""Checks of a collectives run: every configured call, once, no faster than the links, and as its log says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from statistics import median

from analysis.logs.run import Reason, Run
from recipes.catalog import find_gpu, load_hardware
from recipes.runs import LOG, METRICS, RUN_JSON

# More calls than any run of ours; a run.json that asks for more is not believed.
MAX_CALLS = 1_000_000
_LOGGED = re.compile(r"^(\w{1,40}) (\w{1,10}) (\d{1,15}) bytes: median (\d{1,6}\.\d{9}) s$", re.MULTILINE)
_ROUNDED_S = 1e-9


def bus_bandwidth(operation: str, size: int, gpus: int, time_s: float) -> float:
    """Bytes a second over each GPU's links, one direction, as nccl-tests defines it (doc/PERFORMANCE.md).

    `size` in bytes a rank, of the larger side. Raises KeyError for an unknown operation.
    """
    share = {
        "all_reduce": 2 * (gpus - 1) / gpus,
        "reduce_scatter": (gpus - 1) / gpus,
        "all_gather": (gpus - 1) / gpus,
        "send_recv": 1.0,
    }
    return share[operation] * size / time_s


def calls(run: Run) -> Iterator[Reason]:
    """Every operation, payload, size and repeat that run.json names, in order, and nothing else."""
    if not run.completed:
        return
    operations, sizes, iterations = (run.get("configuration", key) for key in ("operations", "bytes", "iterations"))
    gpus = run.get("configuration", "gpus")
    try:
        expected = [
            (operation, payload, size, step)
            for operation, payloads in operations.items()
            for payload in payloads
            for size in sizes
            for step in range(min(iterations, MAX_CALLS))
        ]
        if not expected or len(expected) > MAX_CALLS or not isinstance(gpus, int) or gpus < 2:
            raise ValueError
    except (AttributeError, TypeError, ValueError):
        yield Reason("steps_missing", f"{RUN_JSON} does not say believably which calls there should be")
        return
    found = [(one.operation, one.payload, one.size, one.step) for one in run.transfers]
    missing = sorted(set(expected) - set(found))
    if missing:
        yield Reason("steps_missing", f"{METRICS}: {len(missing)} of {len(expected)} calls missing, first {missing[0]}")
    elif found != expected:
        yield Reason("steps_repeated", f"{METRICS}: calls repeated, out of order or not configured")
    if run.get("configuration", "name") != run.get("experiment") or run.get("hardware", "gpus") != gpus:
        yield Reason("configuration_mismatch", f"{gpus} GPUs configured, {run.get('hardware', 'gpus')} were there")


def times(run: Run) -> Iterator[Reason]:
    """Times are positive numbers, and no call outruns the GPU's links (half of NVLink's sum of both directions)."""
    if any(not math.isfinite(one.time_s) for one in run.transfers):
        yield Reason("not_finite", f"{METRICS}: a time that is NaN or infinite")
        return
    if any(one.time_s <= 0 for one in run.transfers):
        yield Reason("time_not_positive", f"{METRICS}: a time that is zero or negative")
        return
    key, gpus = find_gpu(str(run.get("hardware", "gpu_name"))), run.get("configuration", "gpus")
    links = load_hardware()[key].nvlink_gb_per_s if key else None
    if links is None or not isinstance(gpus, int) or gpus < 2:
        return
    for one in run.transfers:
        try:
            rate = bus_bandwidth(one.operation, one.size, gpus, one.time_s) / 1e9
        except KeyError:
            return  # named by `calls`
        if rate > links.value / 2:
            yield Reason(
                "above_peak",
                f"{one.operation} of {one.size} bytes: {rate:.0f} GB/s, the links have {links.value / 2:.0f}",
            )
            return


def log(run: Run) -> Iterator[Reason]:
    """log.txt states the median of each series: both must agree."""
    path = run.path / LOG
    if not run.completed or not path.is_file():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    logged = {(m[1], m[2], int(m[3])): float(m[4]) for m in _LOGGED.finditer(text)}
    series: dict[tuple[str, str, int], list[float]] = {}
    for one in run.transfers:
        series.setdefault((one.operation, one.payload, one.size), []).append(one.time_s)
    if logged.keys() != series.keys() or any(
        not abs(median(found) - logged[key]) <= _ROUNDED_S for key, found in series.items()
    ):
        yield Reason("log_disagrees", f"{LOG} and {METRICS} state different times")


CHECKS = (calls, times, log)
