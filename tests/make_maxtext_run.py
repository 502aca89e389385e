"""Writes MaxText run folders as the launcher would, with invented times: for tests only, never under results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recipes.maxtext.experiments import experiment
from recipes.runs import RunFolder
from tests.training_run import content, steps


def make_maxtext_run(
    root: Path,
    name: str,
    *,
    step_time_s: float = 0.8,
    loss: float = 10.9,
    run_id: str = "20260101T000000Z-0000-r1",
    facts: dict[str, Any] | None = None,
    **record: Any,
) -> Path:
    """A sealed, complete run of the experiment; `record` replaces entries of run.json. Returns the folder.

    The loss falls by a hundredth of itself a step.
    """
    which = experiment(name)
    own = {"narrow_types": {}, "hadamard_products": 0, "mended": [], **(facts or {})}
    kind = "emulated" if which.emulated and which.precision != "bf16" else "measured"
    said = content(which, run_id, {"versions": {"maxtext": "0.2.5"}, "kind": kind, "maxtext": own, **record})
    batch = which.layout.global_batch_samples
    losses = [loss * 0.99**step for step in range(which.steps)]
    with RunFolder(root, "maxtext", name, run_id, said) as folder:
        for step, value, time_s in steps(folder, which, losses, batch, step_time_s, 50):
            tokens = batch * which.dimensions.sequence / time_s
            folder.log(
                f"I0101 00:00:00.000000 1 metric_logger.py:265] completed step: {step}, seconds: {time_s:.3f},"
                f" TFLOP/s/device: {400 / time_s:.3f}, Tokens/s/device: {tokens:.3f},"
                f" total_weights: 32764, loss: {value:.3f}, lm_loss: {value:.3f}, perplexity: 1.0"
            )
        folder.finish("completed")
    return folder.path
