"""One rank: times every operation, payload and size of the experiment in run.json. Started by the launcher.

In the run folder: python -m recipes.collectives.worker
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from recipes.collectives.experiments import BYTES_A_VALUE, Experiment, Operation, Payload
from recipes.runs import EXIT_OK, METRICS, RUN_JSON

# FP8 travels as bytes: NCCL moves it and does no arithmetic on it
_TYPES = {"bf16": torch.bfloat16, "fp8": torch.uint8}


def call_of(operation: Operation, payload: Payload, size: int, device: Any) -> Callable[[], Any]:
    """A function that enqueues the operation once. `size` is in bytes a rank, of the larger of both sides."""
    ranks, me = dist.get_world_size(), dist.get_rank()
    count = size // BYTES_A_VALUE[payload]
    whole = torch.ones(count, dtype=_TYPES[payload], device=device)
    if operation == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if operation == "send_recv":
        other = torch.empty_like(whole)
        there, here = (me + 1) % ranks, (me - 1) % ranks
        pair = [dist.P2POp(dist.isend, whole, there), dist.P2POp(dist.irecv, other, here)]
        return lambda: [work.wait() for work in dist.batch_isend_irecv(pair)]
    part = torch.ones(count // ranks, dtype=_TYPES[payload], device=device)
    if operation == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part)
    return lambda: dist.reduce_scatter_tensor(part, whole)


def times_of(call: Callable[[], Any], warmup: int, iterations: int, device: Any) -> list[float]:
    """Seconds of each timed call, between events on the stream; the slowest rank's. Ranks start each call together."""
    start_together = torch.zeros(1, device=device)
    for _ in range(warmup):
        call()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(iterations)]
    for start, end in events:
        dist.all_reduce(start_together)
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    times = torch.tensor([start.elapsed_time(end) / 1000 for start, end in events], device=device, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return [float(time) for time in times.tolist()]


def main() -> int:
    """Entry point; returns the exit code."""
    which = Experiment.model_validate(json.loads(Path(RUN_JSON).read_text(encoding="utf-8"))["configuration"])
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl", device_id=device)
    first = dist.get_rank() == 0
    if first:
        print(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {dist.get_world_size()} ranks", flush=True)
    with Path(METRICS).open("a", encoding="utf-8", newline="\n") as file:
        for operation, payloads in which.operations.items():
            for payload in payloads:
                for size in which.bytes:
                    times = times_of(call_of(operation, payload, size, device), which.warmup, which.iterations, device)
                    if first:
                        said = {"record": "transfer", "operation": operation, "payload": payload, "bytes": size}
                        for step, time_s in enumerate(times):
                            file.write(json.dumps({**said, "step": step, "time_s": time_s}) + "\n")
                        print(f"{operation} {payload} {size} bytes: median {median(times):.9f} s", flush=True)
    dist.destroy_process_group()
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
