"""Megatron-LM, Megatron-Bridge, Megatron-DeepSpeed and forks: one line an iteration, fields end with ` |`.

The format strings are those of `training_log` in Megatron-LM's megatron/training/training.py (2021 to core 0.16) and of
Megatron-Bridge's train_utils.py. A loss that is NaN is not printed at all by many versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.logs.columns import Column, named, prefix
from analysis.logs.format import TROUBLE, Event, Format, trouble
from analysis.logs.layout import EVENT, Parsed, Spot

_STEP = re.compile(rb"(?:^|[\s\]:])iteration\s+(\d+)/\s*(\d+)\s*\|")
_STEP_CUT = re.compile(rb"(?:^|[\s\]:])iteration\s+(\d+)/")
# the last field is closed; the prefix of another rank's line may be glued to it
_CLOSED = re.compile(rb"\|\s*(?:\d+:\s*)?(?:\[(?:default|rank)\d+\]:)?\s*$")
_FIELDS = re.compile(rb"\s*(?P<key>[^:|]+?):\s*(?P<value>[^\s|/]+)[^|]*\|")
_COLUMNS = {
    b"consumed samples": (Column.CONSUMED_SAMPLES, 1.0),
    b"elapsed time per iteration (ms)": (Column.STEP_TIME_S, 1e3),
    b"throughput per GPU (TFLOP/s/GPU)": (Column.TFLOPS, 1.0),
    b"TFLOPs": (Column.TFLOPS, 1.0),
    b"tokens per gpu per second (tgs)": (Column.TOKENS_PER_S, 1.0),
    b"learning rate": (Column.LEARNING_RATE, 1.0),
    b"global batch size": (Column.BATCH_SAMPLES, 1.0),
    b"lm loss": (Column.LOSS, 1.0),
    b"grad norm": (Column.GRAD_NORM, 1.0),
    b"number of skipped iterations": (Column.SKIPPED, 1.0),
    b"number of nan iterations": (Column.NAN_COUNT, 1.0),
}
_BRIDGE = re.compile(rb"Step Time : ([\d.]+)s GPU utilization: ([\d.]+)MODEL_TFLOP/s/GPU")
_ARGUMENT = re.compile(
    rb"(?:^|[\s\]:])(fp4|fp8|fp8_recipe|bf16|fp16|world_size|seq_length|global_batch_size|train_iters|log_interval|lr|min_lr"
    rb"|lr_decay_style|lr_decay_iters|lr_warmup_iters|seed) \.{3,} (\S+)\s*$"
)
_FACT_OF = {
    "world_size": "gpus",
    "seq_length": "sequence",
    "train_iters": "total_steps",
    "log_interval": "log_interval",
    "lr": "peak_learning_rate",
    "min_lr": "least_learning_rate",
    "lr_decay_style": "learning_rate_style",
    "lr_decay_iters": "learning_rate_decay_steps",
    "lr_warmup_iters": "learning_rate_warmup_steps",
    "seed": "seed",
}
_END = re.compile(rb"\[after training is done\]|\[exiting program ([^\]]*)\]")
_HEADER = re.compile(rb"-{8,} arguments -{8,}")
_SURE = re.compile(
    rb"iteration\s+\d+/\s*\d+\s*\|\s*(?:consumed samples|elapsed time per iteration)"
    rb"|^[^\"\n]{0,80}Step Time : [\d.]+s GPU utilization: [\d.]+MODEL_TFLOP/s/GPU",  # and not where it is quoted
    re.M,
)


def parse(line: bytes) -> Parsed | None:
    """An iteration line's numbers; an iteration line that is cut is an event, since its last number may be cut too."""
    if b"iteration" in line:
        match = _STEP.search(line)
        if match and _CLOSED.search(line):
            spots = prefix(line, match.start(1))
            spots[Column.STEP], spots[Column.TOTAL] = Spot(*match.span(1)), Spot(*match.span(2))
            spots.update(named(line, _FIELDS, match.end(), _COLUMNS))
            return Parsed(spots)
        if match or _STEP_CUT.search(line):
            return EVENT
    if b"Step Time : " in line and (bridge := _BRIDGE.search(line)):
        return Parsed({Column.STEP_TIME_S: Spot(*bridge.span(1)), Column.TFLOPS: Spot(*bridge.span(2))})
    if (b" ...." in line and _ARGUMENT.search(line)) or (b"]" in line and _END.search(line)):
        return EVENT
    return EVENT if TROUBLE.search(line) or _HEADER.search(line) else None


def events(line: bytes) -> Iterator[Event]:
    """What other lines say: arguments, ends, cut lines."""
    argument = _ARGUMENT.search(line)
    if argument:
        key, value = argument[1].decode(), argument[2].decode("ascii", "replace")
        if key in ("fp4", "fp8", "fp8_recipe", "bf16", "fp16"):
            yield Event("fact", value, f"flag {key}")
        elif key == "global_batch_size":
            yield Event("fact", value, "batch_samples")
        elif value != "None":
            yield Event("fact", value, _FACT_OF[key])
        return
    end = _END.search(line)
    if end:
        yield Event("stopped", end[1].decode("ascii", "replace")) if end[1] is not None else Event("end")
    elif _HEADER.search(line):
        yield Event("header")
    elif cut := _STEP_CUT.search(line):
        # the loss is printed before the loss scale: a line cut behind both proves that it was not
        absent = b"loss scale:" in line and b"lm loss:" not in line
        yield Event("torn", float(cut[1]) if absent else None)
    else:
        yield from trouble(line)


MEGATRON = Format("megatron", 1, _SURE, parse, events, closed_lines=True)
