"""torchtitan: fields separated by two blanks, logged at step 1 and every `log_freq` steps (components/metrics.py).

It prints no step time: that is taken from the time stamps of its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.logs.columns import Column, named, prefix
from analysis.logs.format import TROUBLE, Event, Format, trouble
from analysis.logs.layout import EVENT, Parsed, Spot

_GLUE = rb"(?:\[\d{1,3}(?:;\d{1,3})*m)?"  # a colour code that lost its escape
_STEP = re.compile(rb"(?<!validate )(?:^|[\s\]m])step: *(\d+)\s")
_LOSS = re.compile(rb"step: *\d+ +" + _GLUE + rb" *loss: ")
_FIELDS = re.compile(rb"(?P<key>loss|grad_norm|tps|wps|tflops|m?memory|mfu): *(?P<value>[-+\d.,eE]+|nan|-?inf|N/A)")
_COLUMNS = {
    b"loss": (Column.LOSS, 1.0),
    b"grad_norm": (Column.GRAD_NORM, 1.0),
    b"tps": (Column.TOKENS_PER_S, 1.0),
    b"wps": (Column.TOKENS_PER_S, 1.0),
    b"tflops": (Column.TFLOPS, 1.0),
}
_TOTAL = re.compile(
    rb"local batch size (\d+), global batch size (\d+), (?:gradient[^,]*, )?sequence length (\d+), total steps (\d+)"
)
_FLOAT8 = re.compile(rb"(Float8|MXFP8|NVFP4)[^\n]{0,80}(?:active|[Ss]wapped|[Cc]onverted)|Swapped to (Float8)Linear")
_DEVICE = re.compile(rb"CUDA capacity: (?:NVIDIA )?(.{3,40}?) with ")
_END = re.compile(rb"Training completed")
_HEADER = re.compile(rb"Starting job: ")
_OTHERS = (_END, _TOTAL, _DEVICE, _FLOAT8, _HEADER, TROUBLE)
_SURE = re.compile(rb"step: *\d+ +(?:\x1b?\[[\d;]*m)? *loss: *\S+ +.*(?:\b|\dm)(?:tps|wps): ")


def parse(line: bytes) -> Parsed | None:
    """A metrics line's numbers."""
    if b"step:" in line:
        match = _STEP.search(line)
        if match and (b"loss:" in line or b"tps:" in line or b"wps:" in line):
            spots = prefix(line, match.start(1))
            spots.update(named(line, _FIELDS, match.end(), _COLUMNS))
            spots[Column.STEP] = Spot(*match.span(1))
            # the line ends with mfu (or tps, in old versions): without a rate it was cut
            return Parsed(spots) if Column.TOKENS_PER_S in spots else EVENT
        return EVENT if match else None
    return EVENT if any(pattern.search(line) for pattern in _OTHERS) else None


def events(line: bytes) -> Iterator[Event]:
    """What other lines say: the start (batch, sequence, steps), the GPU, float8 modules, the end."""
    if total := _TOTAL.search(line):
        for key, value in zip(
            ("local_batch_samples", "batch_samples", "sequence", "total_steps"), total.groups(), strict=True
        ):
            yield Event("fact", value.decode(), key)
        yield Event("header")
    elif device := _DEVICE.search(line):
        yield Event("fact", device[1].decode("ascii", "replace"), "hardware")
    elif float8 := _FLOAT8.search(line):
        kind = (float8[1] or float8[2]).decode().lower()
        yield Event("fact", {"float8": "fp8"}.get(kind, kind), "quantization")
    elif _END.search(line):
        yield Event("end")
    elif _HEADER.search(line):
        yield Event("header")
    elif _STEP.search(line):
        yield Event("torn")
    else:
        yield from trouble(line)


TORCHTITAN = Format("torchtitan", 1, _SURE, parse, events, needs=("loss", "tokens_per_s"))
