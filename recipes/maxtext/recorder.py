"""Between MaxText's trainer and its compiled step: what the step is made of, and the evidence of every step.

MaxText starts a step before the last one has ended, so that its times may be those of a dispatch. Here each call of the
compiled step waits for its results: MaxText's own line and metrics.jsonl then state the same time.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
from maxtext.common.metric_logger import MetricLogger
from maxtext.utils import train_utils

from recipes.maxtext.experiments import Experiment
from recipes.maxtext.proof import fused_attentions, hadamard_products, narrow_types, proved_precision
from recipes.maxtext.tokens import FIELDS
from recipes.runs import FACTS, METRICS, RunError, plain, to_json, write_atomically


class _Lowered:
    """A lowered step whose compiled form is kept by the step it came from."""

    def __init__(self, lowered: Any, step: _Step) -> None:
        self._lowered, self._step = lowered, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lowered, name)

    def compile(self, *args: Any, **named: Any) -> Any:
        self._step.compiled = self._lowered.compile(*args, **named)
        return self._step.compiled


class _Step:
    """MaxText's compiled step: `lower` shows its text to the recorder, a call waits and is timed.

    MaxText compiles ahead for its memory report, for a batch with one field more than `olmo_grain` gives, so that the
    first call traces and compiles again. Here it runs what was compiled ahead: the very step whose precision was read.
    """

    compiled: Any = None

    def __init__(self, step: Any, recorder: RunRecorder) -> None:
        self._step, self._recorder = step, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)

    def lower(self, state: Any, batch: Any) -> Any:
        fields = batch if self._recorder.which.synthetic else {key: batch[key] for key in FIELDS}
        lowered = self._step.lower(state, fields)
        self._recorder.prove(lowered.as_text(), state)
        return _Lowered(lowered, self)

    def __call__(self, *args: Any) -> Any:
        self._recorder.started()
        out = jax.block_until_ready((self.compiled or self._step)(*args))
        self._recorder.ended()
        return out


class RunRecorder:
    """Writes metrics.jsonl and facts.json into a run folder while MaxText trains inside its context.

    One object a step: `step` (0-based), `loss`, `grad_norm`, `lr`, `step_time_s` (wall time from the end of the last
    step, device synchronised; the first from the start of training), `consumed_samples`, `memory_peak_bytes` (of the
    first device; null where it does not say), `time_unix_s`. Before the first step the precision of the lowered step is
    read; anything but the experiment's raises RunError, and so does a loss that is not finite, after it was written.
    """

    def __init__(self, folder: Path, which: Experiment, facts: dict[str, Any]) -> None:
        self.folder, self.which, self.facts = folder, which, dict(facts)
        self.first = bool(jax.process_index() == 0)
        self._ends: list[tuple[float, float]] = []
        self._last: float | None = None
        self._lines: Any = None
        self._plain = (train_utils.jit_train_and_eval_step, MetricLogger.write_metrics_locally)

    def __enter__(self) -> bool:
        """Start to record; returns whether this is the process that writes, the first. Raises RunError.

        Nothing is ever added to an earlier run's values.
        """
        compiled, recorder = self._plain[0], self
        if self.first and (self.folder / METRICS).is_file() and (self.folder / METRICS).stat().st_size:
            raise RunError(f"{METRICS} holds an earlier run's values; a run needs a folder of its own")

        def with_recorder(*args: Any, **named: Any) -> Any:
            train_step, eval_step = compiled(*args, **named)
            return _Step(train_step, recorder), eval_step

        def line(logger: Any, metrics: Any, step: int) -> None:
            recorder.write(metrics["scalar"], step, logger.start_step)

        self._lines = (self.folder / METRICS if self.first else Path(os.devnull)).open(
            "a", encoding="utf-8", newline="\n"
        )
        train_utils.jit_train_and_eval_step = with_recorder
        MetricLogger.write_metrics_locally = line
        return self.first

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        train_utils.jit_train_and_eval_step, MetricLogger.write_metrics_locally = self._plain
        self._lines.close()
        if self.first:
            write_atomically(self.folder / FACTS, to_json(self.facts))

    def prove(self, text: str, state: Any) -> None:
        """Read the precision and the attention of the lowered step. Raises RunError when they are not as asked for."""
        types, hadamards = narrow_types(text), hadamard_products(text)
        names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
        found = proved_precision(types, hadamards, names)
        self.facts |= {"narrow_types": types, "hadamard_products": hadamards}
        if found != self.which.precision:
            raise RunError(
                f"{self.which.precision} was asked for, the lowered step is {found}; narrow types: {types or 'none'}"
            )
        self.facts["effective_precision"] = found
        self.facts["backend"] = jax.default_backend()
        self.facts["fused_attentions"] = fused_attentions(text)
        attention = str(self.which.settings.get("attention", ""))
        if attention.startswith("cudnn_") and not self.facts["fused_attentions"]:
            raise RunError(
                f"attention {attention} was asked for, the lowered step holds no fused attention: its library found no"
                " kernel for this GPU and data, and would compute it plainly, several times slower"
            )

    def started(self) -> None:
        """A step starts now; only the first one's start counts, others begin where the last one ended."""
        self._last = self._last or time.perf_counter()

    def ended(self) -> None:
        """A step has ended now."""
        now = time.perf_counter()
        self._ends.append((now - (self._last or now), time.time()))
        self._last = now

    def write(self, values: Any, step: int, start: int) -> None:
        """Write one step. Raises RunError when the loss is not finite."""
        if step == start:
            self.facts["resumed_at_step"] = start
        time_s, ended = self._ends[step - start]
        loss = float(values["learning/loss"])
        row = {
            "step": step,
            "loss": loss,
            "grad_norm": float(values["learning/raw_grad_norm"]),
            "lr": float(values["learning/current_learning_rate"]),
            "step_time_s": time_s,
            "consumed_samples": (step + 1) * self.which.layout.global_batch_samples,
            "memory_peak_bytes": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
            "time_unix_s": ended,
        }
        self._lines.write(json.dumps({key: plain(value) for key, value in row.items()}, allow_nan=False) + "\n")
        self._lines.flush()
        self.facts["steps_done"] = step + 1
        if not math.isfinite(loss):
            raise RunError(f"the loss is {loss} at step {step}: the run has diverged")
