"""A verdict for a run, with every reason found. Only VALID runs enter a table; the others are listed with reasons."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from analysis.judge_collectives import CHECKS as COLLECTIVES_CHECKS
from analysis.judge_training import CHECKS as TRAINING_CHECKS
from analysis.logs.collectives import STACK as COLLECTIVES
from analysis.logs.run import Reason, Run
from analysis.logs.training import STACKS as TRAINING_STACKS
from analysis.verdicts import VERDICT_OF, Verdict, verdict_of
from recipes.catalog import CatalogError, load_models, load_precisions
from recipes.catalog.hardware import mfu
from recipes.catalog.models import layer_flops_per_token
from recipes.runs import LOG, METRICS, RUN_JSON, SCHEMA_VERSION, manifest_faults

# Four significand bits or fewer leave a relative error of percents in a product; below this, nothing narrow ran.
LEAST_NARROW_ERROR = 1e-3
_ERRORS_TO_BF16 = ("output_relative_error_to_bf16", "relative_error_to_bf16")
# More iterations than any run of ours; a run.json that asks for more is not believed (nor counted out in memory).
MAX_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class Judged:
    """A run with its verdict and all reasons (none for VALID)."""

    run: Run
    verdict: Verdict
    reasons: tuple[Reason, ...]

    @property
    def valid(self) -> bool:
        """Whether the run may become a number."""
        return self.verdict == "VALID"

    @property
    def says_itself(self) -> bool:
        """Whether the run itself says why it is no number, and nothing else is wrong with it: kept, and not spoiled.

        The gate refused it, it failed, or it was stopped.
        """
        codes = {reason.code for reason in self.reasons}
        return {VERDICT_OF[code] for code in codes} == {"UNSUPPORTED"} or (
            bool(codes) and codes <= {"run_failed", "run_unfinished"}
        )


def judge(run: Run) -> Judged:
    """The verdict of a run: its reader's reasons and every check's. Never raises for what the run holds."""
    reasons = [*_manifest(run), *run.reasons]
    for check in (_record, *_CHECKS_OF.get(run.path.parts[-3], _CHECKS)):
        reasons.extend(check(run))
    return Judged(run, verdict_of(reasons), tuple(reasons))


def _manifest(run: Run) -> Iterator[Reason]:
    for code, message in manifest_faults(run.path):
        yield Reason(code, message)


def _record(run: Run) -> Iterator[Reason]:
    if not run.record:
        return
    if run.get("schema_version") != SCHEMA_VERSION:
        yield Reason(
            "schema_unknown", f"{RUN_JSON}: schema_version {run.get('schema_version')!r}, known: {SCHEMA_VERSION}"
        )
    said = "/".join(str(run.get(key)) for key in ("stack", "experiment", "run_id"))
    if said != run.name:
        yield Reason("folder_mismatch", f"{RUN_JSON} says {said[:120]}, the folder is {run.name}")
    status, reason = run.get("outcome", "status"), str(run.get("outcome", "reason"))[:300]
    if status == "failed":
        yield Reason("run_failed", f"the run failed: {reason}")
    elif status == "unsupported":
        yield Reason("gate_refused", reason)
    elif status != "completed":
        yield Reason("run_unfinished", f"{RUN_JSON}: outcome {status!r}")


def _precision(run: Run) -> Iterator[Reason]:
    requested, effective = run.get("requested_precision"), run.get("effective_precision")
    named = run.get("configuration", "precision")
    if not run.completed:
        return
    if str(requested) not in load_precisions() or effective is None:
        yield Reason(
            "precision_unknown", f"requested {requested!r}, effective {effective!r}: the precision is not proved"
        )
    elif requested != effective or requested != named:
        yield Reason("precision_mismatch", f"requested {requested!r}, configured {named!r}, effective {effective!r}")
    if run.get("kind") not in ("measured", "emulated"):
        yield Reason("precision_unknown", f"{RUN_JSON}: kind {run.get('kind')!r} is neither measured nor emulated")
    errors = [value for values in run.numerics for key, value in values.items() if key in _ERRORS_TO_BF16]
    same = [value for value in errors if isinstance(value, int | float) and value < LEAST_NARROW_ERROR]
    if requested != "bf16" and same:
        yield Reason("precision_mismatch", f"labelled {requested!r}, but a result equals BF16's (error {same[0]:.1e})")


def _configuration(run: Run) -> Iterator[Reason]:
    if not run.completed:
        return
    parts = [run.get("configuration", key) for key in ("kind", "model", "precision")]
    if "-".join(map(str, parts)) != run.get("experiment"):
        yield Reason("configuration_mismatch", f"experiment {run.get('experiment')!r} is configured as {parts}")
    model = load_models().get(str(parts[1]))
    if model is None or run.get("configuration", "dimensions") != model.model_dump(mode="json"):
        yield Reason("configuration_mismatch", f"the dimensions in {RUN_JSON} are not those of model {parts[1]!r}")
    tokens = _product(run.get("configuration", "micro_batch_size"), run.get("configuration", "sequence"))
    wrong = [step.step for step in run.steps if step.tokens != tokens]
    if wrong:
        yield Reason(
            "configuration_mismatch", f"steps {wrong[:5]} state tokens that are not batch x sequence ({tokens})"
        )


def _product(*values: object) -> int | None:
    numbers = [value for value in values if isinstance(value, int)]
    return math.prod(numbers) if len(numbers) == len(values) else None


def _steps(run: Run) -> Iterator[Reason]:
    if not run.completed:
        return
    warmup, iterations = (run.get("configuration", key) for key in ("warmup", "iterations"))
    if not all(isinstance(n, int) and 0 <= n <= MAX_ITERATIONS for n in (warmup, iterations)):
        yield Reason("steps_missing", f"{RUN_JSON} does not say believably how many iterations there should be")
        return
    if run.get("configuration", "kind") == "layers":
        expected = [(number, number >= warmup) for number in range(warmup + iterations)]
        yield from _sequence("metrics", [(step.step, step.timed) for step in run.steps], expected)
        return
    calls: dict[tuple[str, str], list[int]] = {}
    for op in run.ops:
        calls.setdefault((op.gemm, op.op), []).append(op.step)
    operations = ["fprop", "dgrad", "wgrad"]
    if run.get("requested_precision") != "bf16":
        operations += ["quantize_input", "quantize_weight", "quantize_gradient"]
    for gemm in ("qkv", "proj", "fc1", "fc2"):
        for name in operations:
            found = [(number, True) for number in calls.pop((gemm, name), [])]
            yield from _sequence(f"{gemm} {name}", found, [(number, True) for number in range(iterations)])
    if calls:
        yield Reason("steps_repeated", f"operations that no configuration has: {sorted(calls)[:3]}")


def _sequence(what: str, found: list[tuple[int, bool]], expected: list[tuple[int, bool]]) -> Iterator[Reason]:
    if found == expected:
        return
    missing = sorted(set(expected) - set(found))
    if missing:
        yield Reason(
            "steps_missing", f"{what}: {len(missing)} of {len(expected)} iterations missing, first {missing[0][0]}"
        )
    if len(found) != len(set(found)) or set(found) - set(expected) or (not missing and found != expected):
        yield Reason(
            "steps_repeated", f"{what}: iterations repeated, out of order or beyond the configured {len(expected)}"
        )


def _finite(run: Run) -> Iterator[Reason]:
    times = [step.step_time_s for step in run.steps] + [op.time_s for op in run.ops]
    if any(not math.isfinite(time) for time in times):
        yield Reason("not_finite", f"{METRICS}: a time that is NaN or infinite")
    elif any(time <= 0 for time in times):
        yield Reason("time_not_positive", f"{METRICS}: a time that is zero or negative")
    for values in run.numerics:
        bad = [
            key
            for key, value in values.items()
            if value in ("NaN", "Infinity", "-Infinity") or (isinstance(value, float) and not math.isfinite(value))
        ]
        if bad:
            yield Reason("not_finite", f"{METRICS}: {', '.join(bad)} is NaN or infinite")
    if run.completed and not run.numerics:
        yield Reason("steps_missing", f"{METRICS}: no numerics record: nothing says that the results were finite")


def _log(run: Run) -> Iterator[Reason]:
    """log.txt is written beside metrics.jsonl: the step times of both must agree."""
    if not run.completed or not run.steps:
        return
    try:
        text = (run.path / LOG).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # already named by the manifest
    logged = [
        (int(n), float(t)) for n, t in re.findall(r"^step (\d{1,9}) \w+ step_time_s (\d{1,9}\.\d{6})$", text, re.M)
    ]
    said = [(step.step, round(step.step_time_s, 6)) for step in run.steps]
    if [number for number, _ in logged] != [number for number, _ in said] or any(
        abs(a - b) > 1.5e-6 for (_, a), (_, b) in zip(logged, said, strict=False)
    ):
        yield Reason("log_disagrees", f"{LOG} and {METRICS} state different step times")


def _wall_clock(run: Run) -> Iterator[Reason]:
    """Timed iterations run back to back: their sum can neither exceed the wall time nor fall far short."""
    start, end = run.get("timed_start"), run.get("timed_end")
    if not run.completed or not run.steps:
        return
    if not isinstance(start, float) or not isinstance(end, float):
        yield Reason("time_unmarked", f"{RUN_JSON} does not say when the timed iterations started and ended")
        return
    total, wall = math.fsum(run.timed_steps_s), end - start
    if not 0.9 * wall - 0.1 <= total <= 1.01 * wall + 0.05:
        yield Reason("time_disagrees", f"timed iterations sum to {total:.3f} s, the clock says {wall:.3f} s")


def _peak(run: Run) -> Iterator[Reason]:
    model = load_models().get(str(run.get("configuration", "model")))
    gpu, precision = run.get("hardware", "gpu_name"), load_precisions().get(str(run.get("effective_precision")))
    if not run.completed or model is None or precision is None or run.get("kind") != "measured":
        return
    rates = [op.flops / op.time_s / 1e12 for op in run.ops if op.op in ("fprop", "dgrad", "wgrad") and op.time_s > 0]
    times, layers = sorted(run.timed_steps_s), run.get("configuration", "layers")
    if times and times[0] > 0 and isinstance(layers, int):
        flops = layers * layer_flops_per_token(model, model.sequence, "causal")
        rates.append(flops * run.steps[0].tokens / times[0] / 1e12)
    try:
        if rates:
            mfu(str(gpu), precision.peak_format, max(rates))
    except CatalogError as error:
        yield Reason("above_peak", str(error))


_Check = Callable[[Run], Iterator[Reason]]
_CHECKS: tuple[_Check, ...] = (_precision, _configuration, _steps, _finite, _log, _wall_clock, _peak)
# an unknown stack is judged as te_layers, and fails
_CHECKS_OF: dict[str, tuple[_Check, ...]] = {
    **dict.fromkeys(TRAINING_STACKS, (_precision, *TRAINING_CHECKS)),
    COLLECTIVES: COLLECTIVES_CHECKS,
}
