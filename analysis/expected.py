"""What the user says of a log, to be held against what it says itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """What the user says of a log; None: unknown. `gpus`: all GPUs of the job."""

    steps: int | None = None
    gbs: int | None = None
    seq: int | None = None
    gpus: int | None = None
    precision: str | None = None
    hardware: str | None = None
