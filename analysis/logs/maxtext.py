"""MaxText's standard output: `completed step: N, seconds: S, ...`, three decimals (metric_logger.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analysis.logs.columns import Column, named, prefix
from analysis.logs.format import TROUBLE, Event, Format, trouble
from analysis.logs.layout import EVENT, Parsed, Spot

_STEP = re.compile(rb"completed step: (\d+), seconds: ")
_CUT = re.compile(rb"completed step(?:: \d*)?$|completed step: \d+, ?[a-z]*:? ?$")
_FIELDS = re.compile(rb"(?:^|, )(?P<key>[A-Za-z_/]+): (?P<value>[^\s,]+)")
_COLUMNS = {
    b"seconds": (Column.STEP_TIME_S, 1.0),
    b"TFLOP/s/device": (Column.TFLOPS, 1.0),
    b"TFLOP/s": (Column.TFLOPS, 1.0),
    b"Tokens/s/device": (Column.TOKENS_PER_S, 1.0),
    b"loss": (Column.LOSS, 1.0),
}
_ABSL = re.compile(rb"[IWEF](\d{4}) (\d\d:\d\d:\d\d\.(\d{1,6})) ")
_CONFIG = re.compile(
    rb"Config param (steps|quantization|dtype|max_target_length|global_batch_size_to_train_on|hardware"
    rb"|learning_rate|learning_rate_schedule_steps|warmup_steps_fraction|model_name): ?(.*?)\s*$"
)
_WORK = re.compile(rb"Per train step, total TFLOPs will be ([\d.]+)|^\s*Total TFLOPs: ([\d.]+)")
_FACT_OF = {
    "steps": "total_steps",
    "max_target_length": "sequence",
    "global_batch_size_to_train_on": "batch_samples",
    "model_name": "model",
    "dtype": "flag dtype",
    "quantization": "quantization",
}
# MaxText's quantization values -> precision keys (src/maxtext/layers/quantizations.py)
QUANTIZATION = {
    "": "none",
    "none": "none",
    "quantizationtype.none": "none",
    "fp8": "fp8_delayed",
    "nanoo_fp8": "fp8",
    "te_fp8_delayedscaling": "fp8_delayed",
    "te_fp8_currentscaling": "fp8_current",
    "te_mxfp8": "mxfp8",
    "te_nvfp4": "nvfp4",
    "te_nvfp4_no_rht": "nvfp4_no_rht",
}
_SURE = re.compile(rb"completed step: \d+, seconds: [\d.]+, TFLOP/s")


def parse(line: bytes) -> Parsed | None:
    """A step line's numbers."""
    if b"completed step" in line:
        match = _STEP.search(line)
        if match:
            spots = prefix(line, match.start())
            absl = _ABSL.search(line, 0, match.start())
            if absl:
                spots[Column.DATE] = Spot(*absl.span(1), packed=True)
                spots[Column.CLOCK] = Spot(*absl.span(2), 10.0 ** len(absl[3]), packed=True)
            spots[Column.STEP] = Spot(*match.span(1))
            spots.update(named(line, _FIELDS, match.end(1), _COLUMNS))
            return Parsed(spots)
        return EVENT if _CUT.search(line) else None
    if b"Config param" in line:
        return EVENT if _CONFIG.search(line) else None
    if b"TFLOPs" in line and _WORK.search(line):
        return EVENT
    return EVENT if TROUBLE.search(line) else None


def events(line: bytes) -> Iterator[Event]:
    """What other lines say: the configuration, the work of a step."""
    config = _CONFIG.search(line)
    if config:
        key, value = config[1].decode(), config[2].decode("utf-8", "replace")
        if key == "quantization":
            kind = QUANTIZATION.get(value.strip("'\"").lower(), "unknown")
            yield Event("fact", kind, "quantization")
        elif key in _FACT_OF:
            yield Event("fact", value, _FACT_OF[key])
        if key == "steps":
            yield Event("header")
    elif work := _WORK.search(line):
        yield Event("fact", (work[1] or work[2]).decode(), "tflop_per_step")
    elif _CUT.search(line):
        yield Event("torn")
    else:
        yield from trouble(line)


MAXTEXT = Format("maxtext", 0, _SURE, parse, events)
