"""A verdict for a run that a log tells, with every reason found and the lines that show it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from analysis.expected import Expected
from analysis.labels import contradicts, declared, effective_gpu, effective_precision
from analysis.log_steps import declared_total, ended_and_steps, ranks_and_restarts, starts_whole
from analysis.logs.log_run import LogRun, same_series
from analysis.logs.run import Reason
from analysis.logs.watch import Agreement, Marked
from analysis.stats import smoothed
from analysis.verdicts import Verdict, verdict_of
from recipes.catalog import load_precisions
from recipes.catalog.hardware import load_hardware

# A loss that ends this much above its lowest smoothed value has diverged, even if it is finite.
ROSE_BY, ROSE_SHARE = 1.0, 0.3
FROZEN_STEPS = 10
# Formats that print a loss in three or four digits, where equal values prove nothing.
_COARSE = ("nemo", "maxtext")


@dataclass(frozen=True)
class JudgedLog:
    """A run with its verdict, all reasons (notes among them), and its declared and effective precision."""

    run: LogRun
    verdict: Verdict
    reasons: tuple[Reason, ...]
    expected: Expected = field(default_factory=Expected)

    @property
    def valid(self) -> bool:
        """Whether the run may become a number."""
        return self.verdict == "VALID"


def judge_log(run: LogRun, expected: Expected | None = None) -> JudgedLog:
    """The verdict of one run. Never raises for what the log holds."""
    expected = expected or Expected()
    reasons = list(run.reasons)
    for check in _CHECKS:
        reasons.extend(check(run, expected))
    return JudgedLog(run, verdict_of(reasons), tuple(reasons), expected)


def judge_logs(runs: list[LogRun], expected: Expected | None = None) -> list[JudgedLog]:
    """Verdicts of several runs, each also against the others: one measurement may not count twice."""
    judged = [judge_log(run, expected) for run in runs]
    for at, item in enumerate(judged):
        twin = next((other for other in judged[:at] if same_series(other.run, item.run)), None)
        if twin is not None:
            where = f"{twin.run.path}" + (f", run {twin.run.part}" if twin.run.parts > 1 else "")
            reason = Reason(
                "duplicate_values", f"the same steps, losses and times as {where}: one measurement, not two"
            )
            reasons = (*item.reasons, reason)
            judged[at] = JudgedLog(item.run, verdict_of(reasons), reasons, item.expected)
    return judged


def _marked(code: str, marked: Marked, what: str) -> Iterator[Reason]:
    if marked.count:
        first = f", first {marked.where[0][0]:g}" if marked.where else ""
        yield Reason(code, f"{what} at {marked.count} step{'s' * (marked.count > 1)}{first}", marked.lines())


def _values(run: LogRun, expected: Expected) -> Iterator[Reason]:
    timeline = run.timeline
    if not timeline.rows and not timeline.loss_absent.count:
        return
    everywhere = timeline.rows and timeline.loss_absent.count >= timeline.rows
    # Megatron always prints a finite loss; elsewhere a file without any loss does not log it
    if everywhere and (run.format.name != "megatron" or not run.timelines):
        yield Reason("metric_missing", "no line states a loss")
    else:
        yield from _marked("loss_absent", timeline.loss_absent, "the loss is not printed, as when it is NaN,")
    if timeline.loss_seen and not timeline.loss_not_zero:
        yield Reason("metric_missing", "the loss is printed as 0 on every line: not known")
    yield from _marked("loss_not_finite", timeline.loss_bad, "the loss is NaN or infinite")
    yield from _marked("grad_norm_not_finite", timeline.grad_bad, "the gradient norm is NaN or infinite")
    yield from _marked("nan_iterations", timeline.nan_counted, "the framework counts NaN iterations")
    yield from _marked("time_not_positive", timeline.time_bad, "the step time is zero, negative or not finite")
    if timeline.redone_bad:
        yield Reason("redone_not_finite", f"{timeline.redone_bad} bad steps were done again after a restart")
    bad_evals = [line for value, _, _, line in run.evals if not math.isfinite(value)]
    if bad_evals:
        yield Reason("eval_not_finite", f"{len(bad_evals)} evaluations are NaN or infinite", tuple(bad_evals[:10]))


def _course(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """How the loss went: frozen, or up instead of down."""
    timeline = run.timeline
    frozen = timeline.frozen
    if run.format.name not in _COARSE and frozen.longest >= FROZEN_STEPS and timeline.loss_not_zero:
        yield Reason("loss_frozen", f"the loss is the same number for {frozen.longest} steps", (frozen.line,))
    loss = timeline.table()["loss"]
    loss = loss[np.isfinite(loss)]
    if loss.size < 6:
        return
    width = max(3, min(50, loss.size // 20))
    smooth, _ = smoothed(loss, width)
    least, last = float(smooth.min()), float(smooth[-1])
    if last - least > max(ROSE_BY, ROSE_SHARE * abs(least)):
        yield Reason("loss_rose", f"the loss rose from {least:.4g} to {last:.4g} and did not come back")
    elif float(np.max(smooth - np.minimum.accumulate(smooth))) > max(ROSE_BY, ROSE_SHARE * abs(least)):
        yield Reason("loss_spike", "the loss rose by more than 1 on the way and came back")


def _needed(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Metrics that this format always prints, and without which there is nothing to compare."""
    timeline = run.timeline
    if not timeline.rows:
        return
    table = timeline.table()
    for name, column in (("step_time_s", "time_s"), ("tokens_per_s", "tokens_per_s")):
        if name in run.format.needs and not np.isfinite(table[column]).any() and not timeline.time_bad.count:
            yield Reason("metric_missing", f"no line states {name}")
    if (
        run.format.name == "mlperf"
        and not np.isfinite(table["time_s"]).any()
        and not np.isfinite(table["unix_s"]).any()
    ):
        yield Reason("metric_missing", "no line states a step time or when it was written")


def _disagrees(code: str, agreement: Agreement, what: str, early: float) -> Iterator[Reason]:
    odd = [pair for pair in agreement.odd.where if pair[0] > early]
    count = agreement.odd.count - (len(agreement.odd.where) - len(odd))
    if agreement.n >= 5 and count:
        first = f", first {odd[0][0]:g}" if odd else ""
        detail = f"{agreement.worst:.3g} times its usual value at {count} of {agreement.n} steps{first}"
        yield Reason(code, f"{what} is {detail}", tuple(line for _, line in odd[:10]))


def _agreement(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Metrics that depend on each other."""
    timeline = run.timeline
    # core 0.16 does not reset its first interval: iteration 2 shows a mean
    early = 2 if run.format.name == "megatron" else -1
    yield from _disagrees("rate_disagrees", timeline.work, "TFLOP/s x step time", early)
    yield from _disagrees("rate_disagrees", timeline.tokens, "tokens/s x step time", early)
    yield from _disagrees("samples_disagree", timeline.samples, "consumed samples per step over the batch size", -1)
    yield from _marked("learning_rate_odd", timeline.learning_rate_odd, "the learning rate leaves its schedule")
    yield from _batch(run, expected)
    known, any_gpu = _bound(run, expected), _bound(None, expected)
    for rate, (bound, of) in ((timeline.settled_tflops, known), (timeline.largest_tflops, any_gpu)):
        if rate > bound:
            yield Reason("above_peak", f"{rate:g} TFLOP/s per GPU is above the dense peak of {of}")
            return


def _bound(run: LogRun | None, expected: Expected) -> tuple[float, str]:
    """The dense peak that a rate cannot exceed: of the GPU and precision that are known, else (no run) of any."""
    gpu = (expected.hardware or effective_gpu(run) or declared(run.path, "gpu")) if run else None
    key = (effective_precision(run) or expected.precision or declared(run.path, "precision")) if run else None
    known = load_precisions().get(str(key))
    wanted = known.peak_format if known else {"fp8": "fp8", "fp16": "bf16"}.get(str(key))
    entries = [entry for entry in load_hardware().values() if gpu and gpu.upper() == entry.name.split()[0].upper()]
    peaks = [
        (quantity.value, f"{entry.name}{f' in {kind}' if kind == wanted and entries else ''}")
        for entry in entries or load_hardware().values()
        for kind, quantity in entry.dense_tflops.items()
        if not entries or wanted not in entry.dense_tflops or kind == wanted
    ]
    value, name = max(peaks)
    return value, name if entries else "any known GPU"


def _batch(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Batch, sequence and GPUs as expected, as configured and as the rates imply."""
    timeline = run.timeline
    table = timeline.table()
    printed = timeline.batch_sizes or {value for value in [run.number("batch_samples")] if value}
    if expected.gbs is not None and printed and expected.gbs not in printed:
        yield Reason("batch_disagrees", f"the global batch is {sorted(printed)[:3]}, not {expected.gbs}")
    configured = run.number("batch_samples")
    if configured is not None and timeline.batch_sizes and configured not in timeline.batch_sizes:
        sizes = sorted(timeline.batch_sizes)[:3]
        yield Reason("batch_disagrees", f"the steps print a global batch of {sizes}, the configuration {configured:g}")
    yield from _consumed(run, printed)
    sequence, gpus = run.number("sequence"), run.number("gpus")
    for name, value, wanted in (("sequence", sequence, expected.seq), ("gpus", gpus, expected.gpus)):
        if wanted is not None and value is not None and value != wanted:
            yield Reason("batch_disagrees", f"{name} is {value:g} in the log, not {wanted}")
    sequence, gpus = expected.seq or sequence, expected.gpus or gpus
    batch = expected.gbs or (next(iter(printed)) if len(printed) == 1 else None)
    product = table["tokens_per_s"] * table["time_s"]
    product = product[np.isfinite(product)]
    if product.size >= 3 and sequence and gpus and batch:
        ratio = float(np.median(product)) / (batch * sequence / gpus)
        if abs(ratio - 1) > 0.03:
            yield Reason("batch_disagrees", f"tokens/s x step time is {ratio:.3g} times batch x sequence / GPUs")


def _consumed(run: LogRun, batches: Collection[float]) -> Iterator[Reason]:
    """All samples of a whole run with one batch size: steps times batch."""
    timeline = run.timeline
    consumed = timeline.last_row.get("consumed_samples")
    if consumed is None or len(batches) != 1 or not timeline.attempts or run.format.name == "mlperf":
        return
    if not starts_whole(run, declared_total(run)):
        return
    wanted = next(iter(batches)) * (timeline.last_step + (run.format.first_step == 0))
    if abs(consumed - wanted) >= 1:
        yield Reason("samples_disagree", f"{consumed:g} samples are consumed at the end, steps x batch is {wanted:g}")


def _clock(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Time stamps against step times."""
    clock = run.timeline.clock
    yield from _marked("clock_backwards", clock.backwards, "the time stamp goes back")
    if clock.stated_rows < 5 or not clock.total_clock_s > 0:
        return
    slack = 2.0 + 0.05 * clock.total_clock_s
    if clock.total_stated_s > clock.total_clock_s + slack:
        yield Reason(
            "clock_disagrees",
            f"step times sum to {clock.total_stated_s:.1f} s, the time stamps span {clock.total_clock_s:.1f} s",
        )
        return
    spacing, stated = float(np.median(clock.spacing)), float(np.median(clock.stated))
    resolution = 1.0 if all(abs(gap - round(gap)) < 1e-6 for gap in clock.spacing[:50]) else 2e-3
    if len(clock.spacing) < 10:
        return
    what = f"a step takes {stated:.4g} s, the time stamps are {spacing:.4g} s apart"
    # Megatron's and MLPerf's timers cover all that happens between two lines, other frameworks' only the step
    limit = 0.1 if run.format.name in ("megatron", "mlperf") else 0.5
    if stated > 1.1 * spacing + resolution or spacing > stated * (1 + limit) + resolution:
        yield Reason("clock_disagrees", what)
    elif spacing > 1.1 * stated + resolution:
        yield Reason("time_between_steps", what)


def _labels(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Declared against effective precision and hardware."""
    said = expected.precision or declared(run.path, "precision")
    found = effective_precision(run)
    if said and found and contradicts(said, found):
        yield Reason("precision_mismatch", f"labelled {said}, the log's configuration says {found}")
    elif found is None:
        yield Reason("precision_not_stated", "the log does not say in which precision it trained")
    gpu, named = expected.hardware or declared(run.path, "gpu"), effective_gpu(run)
    if gpu and named and gpu.upper() != named:
        lines = tuple(run.facts["hardware"].values())
        yield Reason("hardware_mismatch", f"labelled {gpu.upper()}, the log names {named}", lines[:10])


def _marks(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """MLPerf's own marks: in order of time from run_start on, and an evaluation in each eval interval."""
    starts = [at for at, (name, _, _) in enumerate(run.marks) if name == "run_start"]
    if not starts:
        return
    table = run.timeline.table()
    marked = [(line, time) for _, time, line in run.marks[starts[0] :]]
    marked += [(line, time) for _, time, _, line in run.evals]
    line = np.concatenate([table["line"], [float(line) for line, _ in marked]])
    time = np.concatenate([table["unix_s"], [time for _, time in marked]])
    order = np.argsort(line[np.isfinite(time)], kind="stable")
    line, time = line[np.isfinite(time)][order], time[np.isfinite(time)][order]
    back = line[1:][np.diff(time) < -1e-3]
    if back.size:
        lines = tuple(int(at) for at in back[:10])
        yield Reason("clock_backwards", "the time goes back after run_start", lines)
    evaluations = sum(1 for mark, _, _ in run.marks if mark == "eval_stop")
    if run.ended and evaluations and evaluations != len(run.evals):
        yield Reason("eval_missing", f"{evaluations} evaluations ended, {len(run.evals)} have a result")


def _schedule(run: LogRun, expected: Expected) -> Iterator[Reason]:
    """Learning rates against the closed form of the printed schedule: linear warm-up, then cosine, linear or constant.

    As OptimizerParamScheduler.get_lr of Megatron-LM (megatron/core/optimizer_param_scheduler.py) has it after s steps.
    """
    peak, warmup = run.number("peak_learning_rate"), run.number("learning_rate_warmup_steps")
    style, total = run.fact("learning_rate_style"), run.number("total_steps")
    least, decay = run.number("least_learning_rate") or 0.0, run.number("learning_rate_decay_steps") or total
    table = run.timeline.table()
    if not peak or warmup is None or not decay or decay <= warmup or run.timeline.skipped:
        return
    step, rate = table["step"], table["learning_rate"]
    share = np.clip((step - warmup) / (decay - warmup), 0, 1)
    shapes = {"cosine": 0.5 * (1 + np.cos(np.pi * share)), "linear": 1 - share, "constant": np.ones_like(share)}
    if style not in shapes:
        return
    wanted = least + (peak - least) * shapes[style] if style != "constant" else peak * shapes[style]
    wanted = np.where(step < warmup, peak * step / max(warmup, 1), wanted)
    # printed with four digits in old versions
    odd = np.isfinite(rate) & (np.abs(rate - wanted) > 0.01 * np.maximum(wanted, 1e-3 * peak))
    if odd.any():
        first = int(np.argmax(odd))
        detail = f"{rate[first]:.4g} at step {step[first]:g}, the printed {style} schedule gives {wanted[first]:.4g}"
        lines = tuple(int(line) for line in table["line"][odd][:10])
        yield Reason("learning_rate_odd", f"the learning rate is {detail}", lines)


_CHECKS: tuple[Callable[[LogRun, Expected], Iterator[Reason]], ...] = (
    ended_and_steps,
    ranks_and_restarts,
    _values,
    _course,
    _needed,
    _agreement,
    _schedule,
    _clock,
    _marks,
    _labels,
)
