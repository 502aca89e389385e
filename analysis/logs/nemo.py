"""NeMo 2.x: one line a step from the progress printer, fields joined by ` | `, values in 4 significant digits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.logs.columns import Column, named, prefix
from analysis.logs.format import TROUBLE, Event, Format, trouble
from analysis.logs.layout import EVENT, Parsed, Spot

_STEP = re.compile(rb"Training epoch \d+, iteration (\d+)/(\d+)(?: \||$)")
_START = re.compile(rb"Training epoch \d+, iter")
_FIELDS = re.compile(rb"\|\s*(?P<key>[^:|]+?):\s*(?P<value>[^\s|]+)\s*(?=\||$)")
_COLUMNS = {
    b"global_step": (Column.STEP, 1.0),
    b"lr": (Column.LEARNING_RATE, 1.0),
    b"global_batch_size": (Column.BATCH_SAMPLES, 1.0),
    b"reduced_train_loss": (Column.LOSS, 1.0),
    b"train_step_timing in s": (Column.STEP_TIME_S, 1.0),
    b"consumed_samples": (Column.CONSUMED_SAMPLES, 1.0),
    b"TFLOPS_per_GPU": (Column.TFLOPS, 1.0),
    b"tokens_per_sec_per_gpu": (Column.TOKENS_PER_S, 1.0),
    b"grad_norm": (Column.GRAD_NORM, 1.0),
}
_CONTINUED = re.compile(rb"(?:^|\s|\|)(?:reduced_train_loss|train_step_timing in s|consumed_samples|global_step): ?\S")
_END = re.compile(rb"`Trainer\.fit` stopped: `max_(steps|epochs)=(\d+)` reached")
FLAG = re.compile(rb"(?:^|[\s(,])(fp8|fp4|fp8_recipe|fp8_param_gather|bf16|fp16)(?:: |=)('?[\w]+'?)\s*(?:,|$)")
_DEVICE = re.compile(rb"CUDA device \('(?:NVIDIA )?([^']{3,60})'\)")
_WORLD = re.compile(rb"Starting with (\d+) processes")
_SURE = re.compile(rb"Training epoch \d+, iteration \d+/\d+")


def parse(line: bytes) -> Parsed | None:
    """A step line's numbers. One that lacks global_step (a line wrapped by the terminal) is an event, to be joined."""
    if b"Training epoch" in line:
        match = _STEP.search(line)
        if match:
            spots = prefix(line, match.start())
            spots.update(named(line, _FIELDS, match.end(2), _COLUMNS))
            spots[Column.TOTAL] = Spot(*match.span(2))
            if Column.STEP in spots and Column.LOSS in spots and not line.rstrip().endswith(b"|"):
                return Parsed(spots)
        return EVENT if _START.search(line) else None
    if b": " in line and _CONTINUED.search(line):
        return EVENT
    if _END.search(line) or _DEVICE.search(line) or _WORLD.search(line) or TROUBLE.search(line):
        return EVENT
    return EVENT if b"fp" in line and FLAG.search(line) else None


def events(line: bytes) -> Iterator[Event]:
    """What other lines say: the end, precision switches in a configuration dump, parts of a wrapped step line."""
    if _START.search(line):
        yield Event("join", "start")
    elif end := _END.search(line):
        if end[1] == b"steps":
            yield Event("fact", end[2].decode(), "total_steps")
        yield Event("end")
    elif device := _DEVICE.search(line):
        yield Event("fact", device[1].decode("ascii", "replace"), "hardware")
    elif world := _WORLD.search(line):
        yield Event("fact", world[1].decode(), "gpus")
    elif flags := list(FLAG.finditer(line)):
        for flag in flags:
            yield Event("fact", flag[2].decode("ascii", "replace"), f"flag {flag[1].decode()}")
    elif _CONTINUED.search(line):
        yield Event("join", "more")
    else:
        yield from trouble(line)


NEMO = Format("nemo", 0, _SURE, parse, events)
