"""Averaging windows: what each tool in use would report for one and the same log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Which steps count, how they are averaged, and who does it so."""

    name: str
    used_by: str
    chosen: Callable[[Floats, NDArray[np.int64]], NDArray[np.bool_]]
    average: Callable[[Floats], float]


def _mean(values: Floats) -> float:
    return float(np.mean(values))


def _median(values: Floats) -> float:
    return float(np.median(values))


def _between(first: int, last: int) -> Callable[[Floats, NDArray[np.int64]], NDArray[np.bool_]]:
    return lambda step, row: (step >= first) & (step <= last)


# Printed step numbers, except where the tool counts rows. Sources: the tools' own code, at the commits that
# docs/logs.md lists.
WINDOWS: tuple[Window, ...] = (
    Window("step > 10, median", "fewbits (default)", lambda step, row: step > 10, _median),
    Window("steps 35-44, mean", "llmb-run (dgxc-benchmarking)", _between(35, 44), _mean),
    Window("steps 11-44, mean", "dgxc-benchmarking at v25.05", _between(11, 44), _mean),
    Window("steps 10-30, mean", "gpu-recipes training_metrics", _between(10, 30), _mean),
    Window("steps 80-100, mean", "CloudAI NeMo-Run report", _between(80, 100), _mean),
    Window("all but the first, mean", "CloudAI NeMo-Run report, short runs", lambda step, row: row > 0, _mean),
    Window("all but the first, median", "torchao parse_torchtitan_logs", lambda step, row: row > 0, _median),
    Window("skip 3, mean", "picotron extract_metrics", lambda step, row: row >= 3, _mean),
    Window("step 90", "torchtitan benchmarks", lambda step, row: step == 90, _mean),
    Window("all steps, mean", "CloudAI Megatron-Bridge report", lambda step, row: row >= 0, _mean),
)


def by_window(step: Floats, time_s: Floats) -> list[tuple[Window, float | None, int]]:
    """For each window its average step time (s), None where the log has no such step, and how many steps it holds."""
    row = np.arange(step.size)
    found: list[tuple[Window, float | None, int]] = []
    for window in WINDOWS:
        values = time_s[window.chosen(step, row) & np.isfinite(time_s)]
        found.append((window, window.average(values) if values.size else None, int(values.size)))
    return found
