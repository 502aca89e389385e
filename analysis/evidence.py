"""All published runs, read and judged, and how exhibits look them up: the only door from raw results to numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from analysis.judge import Judged, judge
from analysis.logs import read_run
from recipes.runs import find_runs


@dataclass(frozen=True)
class Evidence:
    """Judged runs under one root."""

    judged: tuple[Judged, ...]

    def select(self, stack: str, kind: str, model: str, precision: str) -> list[Judged]:
        """Every run, valid or not, of one experiment (by its folder), in order of run id."""
        experiment = f"{kind}-{model}-{precision}"
        return [j for j in self.judged if j.run.path.parts[-3:-1] == (stack, experiment)]

    def experiments(self, stack: str) -> dict[str, list[Judged]]:
        """A stack's runs, valid or not, by experiment (its folder), in order of run id."""
        found: dict[str, list[Judged]] = {}
        for judged in self.judged:
            if judged.run.path.parts[-3] == stack:
                found.setdefault(judged.run.path.parts[-2], []).append(judged)
        return found

    def excluded(self) -> list[Judged]:
        """Runs that are not VALID."""
        return [j for j in self.judged if not j.valid]


def load(raw: Path, experiments: str = "*") -> Evidence:
    """Read and judge every run folder under `raw` (`<stack>/<experiment>/<run_id>`) whose experiment fits a pattern."""
    return Evidence(tuple(judge(read_run(folder)) for folder in find_runs(raw, experiments)))


def valid(judged: Iterable[Judged]) -> list[Judged]:
    """Those that may become numbers."""
    return [j for j in judged if j.valid]


def why_not(judged: list[Judged], precision: str) -> str:
    """Why a cell is empty: the verdicts and first reasons of its runs, or that there is no run."""
    if not judged:
        return f"no published run of {precision}"
    return "; ".join(sorted({f"{j.verdict}: {j.reasons[0].message}" for j in judged if not j.valid}))
