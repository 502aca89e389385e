"""How a profiled step fills its time: with computing, with communication that hides behind it or not, or idle."""

from __future__ import annotations

from collections.abc import Iterable

NCCL = "nccl"  # what the names of its kernels start with
Spans = list[tuple[int, int]]


def united(spans: Iterable[tuple[int, int]]) -> Spans:
    """The same time as spans that neither overlap nor touch, in order."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def length(spans: Spans) -> int:
    """Time covered by spans that do not overlap."""
    return sum(end - start for start, end in spans)


def occupancy(kernels: Iterable[tuple[str, int, int]]) -> dict[str, float]:
    """Seconds of one device's step, from its kernels as (name, start, end) in nanoseconds; empty without kernels.

    `span_s` from the first start to the last end; `compute_s` in which a kernel ran that is not NCCL's;
    `communication_s` in which one of NCCL's ran (or waited for another rank); `exposed_communication_s`, the part of it
    in which nothing was computed; `idle_s` in which no kernel ran.
    """
    known = list(kernels)
    if not known:
        return {}
    compute = united((start, end) for name, start, end in known if not name.startswith(NCCL))
    communication = united((start, end) for name, start, end in known if name.startswith(NCCL))
    both = united([*compute, *communication])
    span, busy = both[-1][1] - both[0][0], length(both)
    return {
        "span_s": span / 1e9,
        "compute_s": length(compute) / 1e9,
        "communication_s": length(communication) / 1e9,
        "exposed_communication_s": (busy - length(compute)) / 1e9,
        "idle_s": (span - busy) / 1e9,
    }
