"""What every reader returns: a run's record, its steps, and the faults met while reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Reason:
    """One fault of a run. `code` is stable, for programs; `lines` are line numbers in the file that `message` names."""

    code: str
    message: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """One iteration: time of the whole timed stack, in seconds, and the tokens it processed."""

    step: int
    timed: bool
    step_time_s: float
    tokens: int


@dataclass(frozen=True)
class Op:
    """One call of one operation of one linear layer (te_layers' gemms), in seconds."""

    gemm: str
    op: str
    step: int
    time_s: float
    flops: int


@dataclass(frozen=True)
class Transfer:
    """One timed call of an NCCL operation: `size` in bytes a rank (of the larger side), the slowest rank's time."""

    operation: str
    payload: str
    size: int
    step: int
    time_s: float


@dataclass(frozen=True)
class Trained:
    """What one training step gave: loss and gradient norm, samples seen so far, when it ended (Unix time, seconds)."""

    step: int
    loss: float
    grad_norm: float | None
    consumed_samples: int
    time_unix_s: float
    profiled: bool


@dataclass(frozen=True)
class PowerSample:
    """One NVML sample; None where the driver reported nothing. `power_capped`: the power limit held the clocks."""

    time_unix_s: float
    power_w: float | None
    energy_j: float | None
    sm_clock_mhz: float | None
    power_capped: bool | None


@dataclass
class Run:
    """One run folder as read. `reasons` holds what the reader itself found wrong; the judge adds the rest."""

    path: Path
    record: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    trained: list[Trained] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    power: list[PowerSample] = field(default_factory=list)
    numerics: list[dict[str, Any]] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    reasons: list[Reason] = field(default_factory=list)

    def get(self, *keys: str) -> Any:
        """A value inside run.json by its keys, or None."""
        value: Any = self.record
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    @property
    def completed(self) -> bool:
        """Whether the launcher saw the run end well."""
        return bool(self.get("outcome", "status") == "completed")

    @property
    def name(self) -> str:
        """`<stack>/<experiment>/<run_id>`, by where the folder lies."""
        return "/".join(self.path.parts[-3:])

    @property
    def timed_power(self) -> list[PowerSample]:
        """Power samples taken while the timed iterations ran."""
        start, end = self.get("timed_start"), self.get("timed_end")
        if not isinstance(start, float) or not isinstance(end, float):
            return []
        return [sample for sample in self.power if start <= sample.time_unix_s <= end]

    @property
    def timed_steps_s(self) -> list[float]:
        """Times of the timed iterations, in order, seconds."""
        return [step.step_time_s for step in self.steps if step.timed]
