"""One run as a log tells it: steps, facts, how it ended, and what was wrong with the text itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from analysis.logs.format import Format
from analysis.logs.run import Reason
from analysis.logs.timeline import Timeline


@dataclass
class LogRun:
    """A run. `timelines` by rank (the key -1: no rank printed); `facts` by name, each value with the lines that say it.

    `path` names the file (or the parts, joined) and `part` the run within it, from 1.
    """

    path: str
    format: Format
    part: int = 1
    parts: int = 1
    parents: tuple[str, ...] = ()
    sha256: str = ""
    timelines: dict[int, Timeline] = field(default_factory=dict)
    loose: Timeline = field(default_factory=Timeline)
    facts: dict[str, dict[str, int]] = field(default_factory=dict)
    marks: list[tuple[str, float, int]] = field(default_factory=list)
    samples_marked: float = 0.0
    evals: list[tuple[float, float, float, int]] = field(default_factory=list)  # value, unix_s, samples, line
    ended: tuple[int, ...] = ()
    stopped: list[tuple[str, int]] = field(default_factory=list)
    failed: list[tuple[str, int]] = field(default_factory=list)
    restarts: list[int] = field(default_factory=list)
    torn: list[int] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)

    @property
    def timeline(self) -> Timeline:
        """The steps that count: of the rank that printed most of them (the first, where several did)."""
        if not self.timelines:
            return self.loose
        return max(self.timelines.values(), key=lambda timeline: timeline.rows)

    def fact(self, name: str) -> str | None:
        """The value of a fact that is said once or always alike, else None."""
        values = self.facts.get(name, {})
        return next(iter(values)) if len(values) == 1 else None

    def number(self, name: str) -> float | None:
        """As `fact`, as a number."""
        try:
            return float(self.fact(name) or "")
        except ValueError:
            return None

    def flags(self) -> dict[str, list[str]]:
        """Precision switches by name, with every value printed."""
        return {name.removeprefix("flag "): list(self.facts[name]) for name in self.facts if name.startswith("flag ")}

    def note_fact(self, name: str, value: str, line: int) -> None:
        """Remember what a line says; at most sixteen values of a name."""
        values = self.facts.setdefault(name, {})
        if len(values) < 16:
            values.setdefault(value[:200], line)


def same_series(first: LogRun, second: LogRun) -> bool:
    """Whether two runs print the same steps, losses and times: one measurement shown twice."""
    one, two = first.timeline.table(), second.timeline.table()
    if one["step"].size != two["step"].size or one["step"].size < 3:
        return False
    columns: Sequence[str] = ("step", "loss", "time_s", "unix_s")
    return all(np.allclose(one[name], two[name], rtol=1e-9, atol=0, equal_nan=True) for name in columns) and any(
        np.isfinite(one[name]).any() for name in ("time_s", "unix_s")
    )
