"""What exhibits of training runs share: an experiment's valid runs on one kind of GPU, and its baseline's."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.compare import Comparison, compare
from analysis.evidence import Evidence, valid, why_not
from analysis.judge import Judged
from analysis.stats import Estimate, median
from recipes.catalog import load_models, load_precisions


@dataclass(frozen=True)
class TrainedCell:
    """One experiment: its step time in seconds, its speedup over its baseline, or the reason why there is none."""

    experiment: str
    runs: tuple[Judged, ...]
    base: tuple[Judged, ...]
    time: Estimate | None
    comparison: Comparison | None
    reason: str

    @property
    def first(self) -> Judged:
        """Any run, for what they have in common."""
        return self.runs[0]


def trained_cells(evidence: Evidence, stack: str, tier: str) -> list[TrainedCell]:
    """A cell an experiment of that tier (`one_gpu`, `cpu`, `cluster`) that has runs, valid or not.

    An experiment may be configured anew under its name (another depth, say), or run on another GPU: only runs like the
    newest valid one are put together, and only with a baseline of the same dimensions, layout and GPU. Where runs and
    baseline met on one GPU with the same code and environment, only those that did count.
    """
    found = evidence.experiments(stack)
    cells = []
    for experiment, judged in found.items():
        runs = [j for j in judged if j.run.get("configuration", "tier") == tier]
        if not runs:
            continue
        good = [j for j in valid(runs) if j.run.timed_steps_s]
        base_name = runs[-1].run.get("configuration", "baseline")
        good = [j for j in good if _setting(j) == _setting(good[-1])]
        base = [j for j in valid(found.get(str(base_name), [])) if j.run.timed_steps_s]
        base = [j for j in base if good and _setting(j) == _setting(good[-1])]
        good, base = _side_by_side(good, base)
        comparison, reason = None, "" if good else why_not(runs, experiment) or "no timed steps"
        if good and base:
            comparison = compare(base, good, [j.run.timed_steps_s for j in base], [j.run.timed_steps_s for j in good])
        elif good and base_name:
            reason = f"no VALID run of the baseline {base_name} in the same setting"
        time = median([j.run.timed_steps_s for j in good]) if good else None
        cells.append(TrainedCell(experiment, tuple(good or runs), tuple(base), time, comparison, reason))
    return cells


def _side_by_side(good: list[Judged], base: list[Judged]) -> tuple[list[Judged], list[Judged]]:
    """The runs that have a counterpart on the same GPU with the same code and environment; where none has, all."""
    both = {_place(j) for j in good} & {_place(j) for j in base}
    if not both:
        return good, base
    return [j for j in good if _place(j) in both], [j for j in base if _place(j) in both]


def _place(judged: Judged) -> tuple[str, ...]:
    fields = (("hardware", "gpu_uuid"), ("hardware", "driver"), ("versions",), ("environment",), ("git",))
    return tuple(repr(judged.run.get(*field)) for field in fields)


def _setting(judged: Judged) -> tuple[str, ...]:
    """What must be equal before runs are put together: a median over two of these would be of nothing."""
    run = judged.run
    configured = (repr(run.get("configuration", key)) for key in ("dimensions", "layout", "steps"))
    return (*configured, str(run.get("hardware", "gpu_name")), str(run.get("kind")))


def bar_name(experiment: str, model: str, precision: str) -> str:
    """What a reader calls an experiment: model, precision and what sets it apart."""
    ends = {
        "-scaled": ", vocabulary cut too",
        "first_last_bf16": ", first and last layer BF16",
        "rowwise_cast": ", weights cast without transpose",
        "25.07": " (25.07)",
    }
    name = f"{load_models()[model].name}, {load_precisions()[precision].name}"
    return name + "".join(words for end, words in ends.items() if end in experiment)
