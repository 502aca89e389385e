"""Verdicts, and what each reason makes of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from analysis.logs.run import Reason

# In the order in which they win when several apply.
Verdict = Literal["UNSUPPORTED", "DIVERGED", "INCONSISTENT", "INCOMPLETE", "AMBIGUOUS", "VALID"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

# VALID: worth saying, but no fault.
VERDICT_OF: dict[str, Verdict] = {
    # run folders
    "manifest_missing": "INCOMPLETE",
    "manifest_unreadable": "INCONSISTENT",
    "file_changed": "INCONSISTENT",
    "file_not_in_manifest": "INCONSISTENT",
    "file_missing": "INCOMPLETE",
    "run_json_unreadable": "INCOMPLETE",
    "metrics_unreadable": "INCOMPLETE",
    "metrics_line_unreadable": "INCONSISTENT",
    "power_unreadable": "INCONSISTENT",
    "schema_unknown": "AMBIGUOUS",
    "folder_mismatch": "INCONSISTENT",
    "run_failed": "INCOMPLETE",
    "run_unfinished": "INCOMPLETE",
    "gate_refused": "UNSUPPORTED",
    "configuration_mismatch": "INCONSISTENT",
    "log_disagrees": "INCONSISTENT",
    "time_disagrees": "INCONSISTENT",
    "time_unmarked": "AMBIGUOUS",
    # both
    "precision_unknown": "AMBIGUOUS",
    "precision_mismatch": "INCONSISTENT",
    "steps_missing": "INCOMPLETE",
    "steps_repeated": "INCONSISTENT",
    "not_finite": "DIVERGED",
    "time_not_positive": "INCONSISTENT",
    "above_peak": "INCONSISTENT",
    # logs: the text
    "input_truncated": "INCOMPLETE",
    "input_unreadable": "INCONSISTENT",
    "decompression_bomb": "INCONSISTENT",
    "line_too_long": "INCONSISTENT",
    "line_cut": "INCOMPLETE",
    "line_torn": "VALID",
    "header_skipped": "AMBIGUOUS",
    # logs: steps and their end
    "no_steps": "INCOMPLETE",
    "steps_unnumbered": "INCOMPLETE",
    "metric_missing": "INCOMPLETE",
    "start_missing": "INCOMPLETE",
    "end_missing": "INCOMPLETE",
    "end_unknown": "INCOMPLETE",
    "end_unmarked": "AMBIGUOUS",
    "interval_unknown": "AMBIGUOUS",
    "runs_unmarked": "INCONSISTENT",
    "stopped_early": "INCOMPLETE",
    "steps_unexpected": "INCONSISTENT",
    "steps_disordered": "INCONSISTENT",
    "ranks_interleaved": "INCONSISTENT",
    "ranks_disagree": "INCONSISTENT",
    "ranks_separated": "VALID",
    "restarted": "VALID",
    "resumed": "VALID",
    "overlap_disagrees": "INCONSISTENT",
    "resume_jump": "INCONSISTENT",
    "failed_after_end": "VALID",
    "stopped_at_end": "VALID",
    # logs: values
    "loss_absent": "DIVERGED",
    "loss_not_finite": "DIVERGED",
    "grad_norm_not_finite": "DIVERGED",
    "nan_iterations": "DIVERGED",
    "eval_not_finite": "DIVERGED",
    "loss_frozen": "DIVERGED",
    "loss_rose": "DIVERGED",
    "loss_spike": "VALID",
    "redone_not_finite": "VALID",
    "rate_disagrees": "INCONSISTENT",
    "batch_disagrees": "INCONSISTENT",
    "samples_disagree": "INCONSISTENT",
    "clock_backwards": "INCONSISTENT",
    "clock_disagrees": "INCONSISTENT",
    "time_between_steps": "VALID",
    "learning_rate_odd": "INCONSISTENT",
    "eval_missing": "INCONSISTENT",
    "hardware_mismatch": "INCONSISTENT",
    "precision_not_stated": "VALID",
    "duplicate_values": "INCONSISTENT",
}


def verdict_of(reasons: Iterable[Reason]) -> Verdict:
    """The verdict that wins; VALID when no reason is a fault."""
    return min((VERDICT_OF[reason.code] for reason in reasons), key=VERDICTS.index, default="VALID")
