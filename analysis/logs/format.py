"""What a reader of one framework's logs is made of, and what frameworks' logs have in common."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from analysis.logs.layout import Parsed

Kind = Literal["fact", "end", "stopped", "failed", "restart", "header", "eval", "torn", "join"]


@dataclass(frozen=True)
class Event:
    """What one line says besides steps. `key` and `value` for facts (`total_steps`, `precision`, ...), else a text."""

    kind: Kind
    value: object = None
    key: str = ""


@dataclass(frozen=True)
class Format:
    """One framework's log.

    `first_step`: the number it gives its first step. `needs`: metrics without which a run is INCOMPLETE. `timed_by`:
    whether the warm-up is counted by printed step numbers or by records. `sure` fits a line that only this framework
    prints. `parse` says where a line's numbers stand (by its text, never by its digits); `events` reads other lines.
    """

    name: str
    first_step: int
    sure: re.Pattern[bytes]
    parse: Callable[[bytes], Parsed | None]
    events: Callable[[bytes], Iterator[Event]]
    needs: tuple[str, ...] = ("step_time_s", "loss")
    timed_by: Literal["number", "record"] = "number"
    closed_lines: bool = False


# How any job can end badly or start again, whatever trains in it.
TROUBLE = re.compile(
    rb"Traceback \(most recent call last\)|slurmstepd: error|CANCELLED AT|DUE TO TIME LIMIT|out of memory"
    rb"|ChildFailedError|finished: (?:FAILED|SUCCEEDED)|restart_count=\d|will restart worker group"
    rb"|Received SIGTERM|received SIGTERM|Segmentation fault|uncorrectable ECC"
)


def trouble(line: bytes) -> Iterator[Event]:
    """Events of lines that launchers and schedulers print."""
    match = TROUBLE.search(line)
    if not match:
        return
    text = match[0]
    if text == b"restart_count=0":
        return
    if text.startswith(b"restart_count") or text.startswith(b"will restart"):
        yield Event("restart", said(line))
    elif not text.endswith(b"SUCCEEDED"):
        yield Event("failed", said(line))


def said(line: bytes) -> str:
    """A line as a short text that is safe to show."""
    text = line.decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:160]


def precision(flags: Mapping[str, Collection[str]], before_fp8: bool = False) -> str | None:
    """The precision key that a framework's own switches amount to; None when they do not say.

    `flags` holds, for fp4, fp8, fp8_recipe, bf16 and fp16, every value printed: a configuration is printed with the
    defaults of parts that are not used, so one true value counts. A recipe is printed even where its switch is off.
    bf16 alone says nothing (an FP8 run prints it, too) unless FP8 is printed as off, or `before_fp8`: the framework
    prints all its switches, and this version has none for FP8.
    """

    def on(key: str) -> bool:
        return any(_plain(value) not in ("none", "false", "", "null", "0") for value in flags.get(key, ()))

    if on("fp4"):
        return "nvfp4"
    if on("fp8"):
        recipes = {_plain(value) for value in flags.get("fp8_recipe", ())} - {"none", "null"}
        known = {"delayed": "fp8_delayed", "tensorwise": "fp8_current", "mxfp8": "mxfp8", "blockwise": "fp8_block"}
        return known.get(next(iter(recipes)), "fp8") if len(recipes) == 1 else "fp8"
    if on("fp8_param_gather"):
        return "fp8"
    if "fp8" not in flags and not before_fp8:
        return None
    return next((key for key in ("bf16", "fp16") if on(key)), None)


def _plain(value: str) -> str:
    return value.strip("'\"").lower()
