"""kernels.csv of a run folder: the kernels of one profiled step, and what each of them is for."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

KERNELS = "kernels.csv"
COLUMNS = ("name", "calls", "device_time_us")
# First match decides. Names as CUDA 13, cuDNN 9.19 and Transformer Engine 2.20 print them on Hopper: nvjet's third
# part starts with the operand types, `q` for an FP8 operand, `t` for BF16.
PURPOSES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("GEMM in FP8", re.compile(r"nvjet_sm\d+_q|gemm.*(?:e4m3|e5m2|fp8)", re.I)),
    ("GEMM in BF16", re.compile(r"nvjet_|gemm|cutlass|xmma", re.I)),
    ("attention", re.compile(r"sdpa|fmha|flash|cudnn::fusion|attention", re.I)),
    ("quantization", re.compile(r"cast_transpose|block_scaled|amax|quantiz|fp8|e4m3|e5m2|compute_scale", re.I)),
    ("loss", re.compile(r"cross_entropy", re.I)),
    ("optimizer", re.compile(r"multi_tensor|adam|nonzero|reduce_kernel", re.I)),
    ("norm, activation, rope, copies", re.compile("")),
)


@dataclass(frozen=True)
class Kernel:
    """One kernel of the profiled step: its name, how often it ran, its device time in all, seconds."""

    name: str
    calls: int
    time_s: float

    @property
    def purpose(self) -> str:
        """What it is for, by its name."""
        return next(purpose for purpose, pattern in PURPOSES if pattern.search(self.name))


def read_kernels(folder: Path) -> list[Kernel]:
    """The kernels of a run folder; empty where no step was profiled. Raises ValueError for a file that does not fit."""
    path = folder / KERNELS
    if not path.is_file():
        return []
    found = []
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: the columns are not {', '.join(COLUMNS)}")
        for number, row in enumerate(rows, 2):
            try:
                kernel = Kernel(str(row["name"]), int(row["calls"]), float(row["device_time_us"]) / 1e6)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: line {number}: not a name, a count and a time") from error
            if not (kernel.calls > 0 and math.isfinite(kernel.time_s) and kernel.time_s >= 0):
                raise ValueError(f"{path}: line {number}: calls or time out of range")
            # ranges that the profiler lists beside kernels (Optimizer.step#...) hold kernels listed by themselves
            if "#" not in kernel.name:
                found.append(kernel)
    return found
