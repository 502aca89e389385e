"""Checks on the steps of a log: all there, from the first to the declared last, once each, and how the run ended."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.expected import Expected
from analysis.logs.log_run import LogRun
from analysis.logs.run import Reason
from analysis.logs.timeline import Timeline

# Losses of the same step in two attempts may differ by this share: reductions are not deterministic.
OVERLAP_TOLERANCE = 0.01
RESUME_JUMP = 0.05
# The only writer of MLPerf logs known that tracks no steps: MaxText's, of 2024.
MAXTEXT_MLLOG = "mllog_utils.py"


def interval(run: LogRun) -> float:
    """How many steps lie between two printed ones, where that is a logging interval and not a hole.

    Frameworks that log every k-th step print the multiples of k (and the first step): other distances are holes.
    MLPerf's labels are as they are.
    """
    timeline = run.timeline
    apart = timeline.usual_apart()
    if apart == 1 or run.format.name == "mlperf":
        return apart
    said = run.number("log_interval")
    if said is not None:
        return said
    table = timeline.table()["step"]
    if run.format.name in ("maxtext", "dllogger") or table.size < 3:
        return 1.0
    ordinal = table + (1 if run.format.first_step == 0 else 0)
    later = ordinal[1:] if ordinal[0] == 1 else ordinal
    regular = all(distance % apart in (0, apart - 1) for distance in timeline.steps_apart)
    return apart if regular and bool(np.all(later % apart == 0)) else 1.0


def missing_steps(run: LogRun) -> tuple[int, list[tuple[float, float]]]:
    """How many printed steps are missing between the first and the last, and the gaps (last before, first after)."""
    timeline, apart = run.timeline, interval(run)
    if not timeline.attempts:
        return 0, []
    first = timeline.attempts[0][0]
    if apart != timeline.usual_apart():
        expected = (timeline.last_step - first) / apart + 1
        missing = round(expected) - (timeline.rows - timeline.repeated)
        return max(0, missing), [(first, timeline.last_step)] if missing > 0 else []
    gaps = []
    for before, after in timeline.gaps:
        distance = after - before
        # logging at step 1 and then at every multiple of the interval is no gap
        if distance == apart or (before == first and distance < apart and after % apart == 0):
            continue
        gaps.append((before, after))
    return sum(max(1, round((after - before) / apart) - 1) for before, after in gaps), gaps


def starts_whole(run: LogRun, total: float | None) -> bool:
    """Whether the first printed step is that of a whole run."""
    timeline = run.timeline
    first, apart = timeline.attempts[0][0], interval(run)
    consumed, batch = timeline.first_row.get("consumed_samples"), timeline.samples.reference
    if run.format.name == "mlperf" and consumed is not None and np.isfinite(batch):
        # labels count steps or samples, from 0 or not; what was consumed at the first record tells
        return abs(consumed - batch * apart) < 0.5
    if run.format.first_step == 0:
        # MaxText's DPO trainer counts from 1 to the last
        return first in (0, apart - 1) or (first == 1 and total is not None and timeline.last_step == total)
    if run.format.name == "torchtitan":
        return first == 1  # always logged, whatever the interval
    return first <= max(run.format.first_step, apart)


def declared_total(run: LogRun, expected: Expected | None = None) -> float | None:
    """How many steps the run should have: as the user says, as the end says, as the lines say."""
    if expected is not None and expected.steps is not None:
        return float(expected.steps)
    said = run.number("total_steps")
    if said is not None:
        return said
    totals = run.timeline.totals
    if len(totals) != 1:
        return None
    total = next(iter(totals))
    if run.format.name != "nemo":
        return total
    # NeMo prints the number of the last step, but within an epoch where validation divides the run into some
    return total + 1 if run.timeline.last_step <= total else None


def ended_and_steps(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Start, gaps, end."""
    timeline = run.timeline
    for line in run.torn[:10]:
        yield Reason("line_torn", "a step line is cut or torn", (line,))
    if not timeline.rows:
        yield from _no_steps(run)
        return
    if not run.timelines:
        yield Reason("steps_unnumbered", "step times without step numbers: nothing shows that all are there")
    first, last, apart = timeline.attempts[0][0], timeline.last_step, interval(run)
    if not starts_whole(run, declared_total(run, expected)) and not run.parents:
        yield Reason("start_missing", f"the first step is {first:g}", (timeline.attempts[0][2],))
    missing, gaps = missing_steps(run)
    if missing:
        where = ", ".join(f"{before:g} to {after:g}" for before, after in gaps[:5])
        yield Reason("steps_missing", f"{missing} steps missing between printed ones: {where}")
    if apart > 1 and run.format.name in ("megatron", "nemo") and run.number("log_interval") is None:
        yield Reason("interval_unknown", f"nothing says that every {apart:g}th step is logged, and no line missing")
    yield from _end(run, expected, last, apart, first)


def _no_steps(run: LogRun) -> Iterator[Reason]:
    blocks = sum(1 for name, _, _ in run.marks if name == "block_stop")
    tracked = any(name == "tracked_stats" for name, _, _ in run.marks)
    if run.format.name == "mlperf" and run.ended and blocks and not tracked and run.fact("writer") == MAXTEXT_MLLOG:
        return  # MLPerf's own marks time every block; this writer tracks nothing finer
    if run.format.name == "mlperf" and blocks:
        yield Reason("metric_missing", "no record of a step: only whole blocks are timed")
    else:
        yield Reason("no_steps", "no step line")
    for text, line in run.failed[:3]:
        yield Reason("stopped_early", text, (line,))


def _end(run: LogRun, expected: Expected, last: float, apart: float, first: float) -> Iterator[Reason]:
    total = declared_total(run, expected)
    done = last + 1 if run.format.first_step == 0 and not (first == 1 and total == last) else last
    lines = tuple(line for _, line in run.failed[:10])
    if run.format.name == "mlperf":
        if not run.ended:
            what = "; ".join(text for text, _ in (*run.stopped, *run.failed)[:2])
            yield Reason("end_missing", f"no run_stop with status success{': ' + what if what else ''}", lines)
        elif run.stopped:
            yield Reason("stopped_early", run.stopped[0][0], (run.stopped[0][1],))
        interval = run.timeline.samples.reference * apart
        short = run.samples_marked - run.timeline.last_row.get("consumed_samples", 0.0)
        if np.isfinite(interval) and short > interval - 0.5:
            yield Reason("end_missing", f"the marks count {short:g} samples more than the last step record")
        if expected.steps is not None and run.timeline.rows != expected.steps:
            yield Reason("end_missing", f"{run.timeline.rows} records, {expected.steps} expected")
        return
    if total is not None and done > total and expected.steps is not None:
        yield Reason("steps_unexpected", f"the last step is {last:g}, {total:g} steps were expected")
    elif total is None:
        yield Reason("end_unknown", "nothing says how many steps there should be: give --expect-steps")
    elif done < total and not (run.ended and total - done < apart):
        what = "; ".join(text for text, _ in (*run.stopped, *run.failed)[:2])
        how = f": {what}" if what else " without an end marker"
        yield Reason("end_missing", f"ends after {done:g} of {total:g} steps{how}", lines)
        return
    if run.format.name == "nemo" and not run.ended and run.number("total_steps") is None and expected.steps is None:
        yield Reason(
            "end_unmarked", f"{done:g} steps of the printed count, without NeMo's end marker: it may count an epoch"
        )
    if run.stopped:
        yield Reason("stopped_at_end", run.stopped[0][0], (run.stopped[0][1],))
    if run.failed:
        yield Reason("failed_after_end", f"all steps are there, yet: {run.failed[0][0]}", lines)


def ranks_and_restarts(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Steps printed twice: by other ranks, or by other attempts."""
    timeline = run.timeline
    if timeline.same_step.count:
        yield Reason(
            "ranks_interleaved",
            f"{timeline.same_step.count} steps are printed again at once: several ranks, or one line written twice",
            timeline.same_step.lines(),
        )
    if len(run.timelines) > 1:
        yield from _ranks(run, timeline)
    if len(timeline.attempts) > 1:
        starts = tuple(line for _, _, line in timeline.attempts[1:11])
        yield Reason(
            "restarted",
            f"{len(timeline.attempts) - 1} restart(s), {timeline.repeated} steps done again: the last attempt counts",
            starts,
        )
    for overlap, (step, _, line) in zip(timeline.overlaps, timeline.attempts[1:], strict=False):
        if overlap.worst_loss_difference > OVERLAP_TOLERANCE:
            share = 100 * overlap.worst_loss_difference
            yield Reason(
                "overlap_disagrees", f"after the restart at {step:g} the loss differs by {share:.2g} %", (line,)
            )
        if abs(overlap.samples_off) >= 1:
            yield Reason("samples_disagree", f"resumes at {step:g} with {overlap.samples_off:+g} samples", (line,))
        if not overlap.steps:
            yield from _jump(timeline, step, line)


def _ranks(run: LogRun, timeline: Timeline) -> Iterator[Reason]:
    """Every rank that prints steps prints the same ones, with the same reduced loss."""
    base = timeline.table()
    differ = []
    for key, other in run.timelines.items():
        if other is timeline:
            continue
        table = other.table()
        _, one, two = np.intersect1d(base["step"], table["step"], return_indices=True)
        loss = np.abs(table["loss"][two] / base["loss"][one] - 1) if one.size else np.array([np.inf])
        if (
            table["step"].size != base["step"].size
            or one.size != base["step"].size
            or np.nanmax(loss, initial=0) > 0.02
        ):
            differ.append(key // 4096)
        if other.loss_bad.count or other.grad_bad.count:
            yield Reason("loss_not_finite", f"rank {key // 4096} prints NaN or infinite values", other.loss_bad.lines())
    if differ:
        yield Reason("ranks_disagree", f"ranks {differ[:5]} print other steps or losses than the first")
    else:
        yield Reason("ranks_separated", f"{len(run.timelines)} ranks print the same steps: one of them is counted")


def _jump(timeline: Timeline, step: float, line: int) -> Iterator[Reason]:
    """A resumed run without overlap goes on where it stopped: the loss may not jump."""
    table = timeline.table()
    at = int(np.searchsorted(table["step"], step))
    before, after = table["loss"][max(0, at - 5) : at], table["loss"][at : at + 5]
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if before.size < 3 or after.size < 3:
        return
    change = float(np.median(after)) - float(np.median(before))
    noise = float(np.std(np.diff(table["loss"][max(0, at - 20) : at]))) if at > 3 else 0.0
    if change > max(RESUME_JUMP * float(np.median(before)), 4 * noise):
        yield Reason("resume_jump", f"the loss jumps by {change:.3g} where the run resumes at {step:g}", (line,))
