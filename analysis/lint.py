"""Inconsistencies inside published tables, found by arithmetic alone.

`ratio`: TFLOP/s over tokens/s is a model's FLOPs per token, so it must equal the closed form under one of the two
attention conventions (full or causal). `repeated`: the same value, to at least four digits, in two settings of
one model and source. `speedup`: a printed speedup must be the ratio of the rates printed beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analysis.published import PublishedRow
from recipes.catalog import flops_per_token, load_models
from recipes.catalog.models import Attention

# A ratio of two numbers printed with three or more digits is off by less than this through rounding alone.
RATIO_TOLERANCE = 0.01
_SEQUENCE = re.compile(r"\bseq (\d+)")
_CONVENTIONS: tuple[Attention, ...] = ("causal", "full")


@dataclass(frozen=True)
class RatioCheck:
    """One pair of TFLOP/s and tokens/s: which convention it fits best, and how far it is from it."""

    tokens: PublishedRow
    tflops: PublishedRow
    sequence: int
    convention: Attention
    deviation: float

    @property
    def consistent(self) -> bool:
        """Whether the pair fits a convention."""
        return abs(self.deviation) <= RATIO_TOLERANCE

    @property
    def explanation(self) -> str:
        """What fits a deviation, as far as arithmetic can tell."""
        samples = whole_samples(self.tokens)
        if not self.consistent and samples and 0.5 / samples >= abs(self.deviation):
            return f"tokens/s is exactly {samples} samples/s of all GPUs: rounded before it was converted"
        return ""


def sequence_of(row: PublishedRow) -> int | None:
    """The sequence length that a row's notes state, tokens."""
    found = _SEQUENCE.search(row.notes)
    return int(found[1]) if found else None


def whole_samples(row: PublishedRow) -> int | None:
    """Samples a second of all GPUs together when tokens/s per GPU is a whole number of them, else None."""
    sequence = sequence_of(row)
    if row.claim_kind != "tokens_per_s_gpu" or not sequence or not row.gpus.isdigit():
        return None
    samples_per_s = row.value * int(row.gpus) / sequence
    return round(samples_per_s) if samples_per_s >= 1 and abs(samples_per_s - round(samples_per_s)) < 1e-6 else None


@dataclass(frozen=True)
class Finding:
    """One inconsistency: the check, the rows, what is wrong."""

    check: str
    rows: tuple[PublishedRow, ...]
    detail: str
    deviation: float | None
    explanation: str


def _setting(row: PublishedRow) -> tuple[str, ...]:
    """What tells two rows of a source apart, besides what they count."""
    return (row.source_id, row.framework, row.model, row.hardware, row.gpus, row.recipe, row.notes)


def ratio_checks(rows: Iterable[PublishedRow]) -> Iterator[RatioCheck]:
    """Every pair of printed TFLOP/s and tokens/s of one setting, for models and sequences that are known.

    FLOPs per token follow `recipes.catalog.models`; long sequences are where the two conventions differ most.
    """
    kinds: dict[tuple[str, ...], dict[str, PublishedRow]] = defaultdict(dict)
    for row in rows:
        if row.verbatim == "yes":
            kinds[_setting(row)][row.claim_kind] = row
    for found in kinds.values():
        tokens, tflops = found.get("tokens_per_s_gpu"), found.get("tflops_gpu")
        if tokens is None or tflops is None or tokens.model_key is None:
            continue
        length = sequence_of(tokens)
        if length is None:
            continue
        model = load_models()[tokens.model_key]
        gflop_per_token = tflops.value * 1e3 / tokens.value
        deviations = {c: gflop_per_token / (flops_per_token(model, length, c) / 1e9) - 1 for c in _CONVENTIONS}
        convention = min(_CONVENTIONS, key=lambda c: abs(deviations[c]))
        yield RatioCheck(tokens, tflops, length, convention, deviations[convention])


def repeated_values(rows: Iterable[PublishedRow]) -> Iterator[tuple[PublishedRow, ...]]:
    """Rows of one source, model and unit with the same value to four or more digits, in different settings."""
    groups: dict[tuple[str, str, str, float], list[PublishedRow]] = defaultdict(list)
    for row in rows:
        if row.verbatim == "yes" and row.claim_kind != "speedup" and len(f"{row.value:g}".replace(".", "")) >= 4:
            groups[row.source_id, row.model, row.unit, row.value].append(row)
    for found in groups.values():
        if len({_setting(row) for row in found}) > 1:
            yield tuple(found)


def speedup_faults(rows: Iterable[PublishedRow]) -> Iterator[tuple[PublishedRow, PublishedRow, PublishedRow, float]]:
    """Printed speedups that are not the ratio of the rates of the same source, to within the last printed digit."""
    listed = list(rows)
    rates = {
        (row.source_id, row.model, row.hardware, row.gpus, row.recipe, row.claim_kind): row
        for row in listed
        if row.claim_kind in ("tflops_gpu", "tokens_per_s_gpu") and row.verbatim == "yes"
    }
    for row in listed:
        for kind in ("tflops_gpu", "tokens_per_s_gpu"):
            place = (row.source_id, row.model, row.hardware, row.gpus)
            own, base = rates.get((*place, row.recipe, kind)), rates.get((*place, row.baseline, kind))
            if row.claim_kind == "speedup" and row.verbatim == "yes" and own and base:
                deviation = own.value / base.value - row.value
                if abs(deviation) > 0.0051:
                    yield row, own, base, deviation


def lint(rows: list[PublishedRow]) -> list[Finding]:
    """Every inconsistency found in published rows."""
    findings = [
        Finding(
            "ratio",
            (check.tokens, check.tflops),
            f"{check.tflops.value:g} TFLOP/s over {check.tokens.value:g} tokens/s is {check.deviation:+.1%} off the"
            f" {check.convention}-attention FLOPs per token",
            check.deviation,
            check.explanation,
        )
        for check in ratio_checks(rows)
        if not check.consistent
    ]
    for same in repeated_values(rows):
        differing = " | ".join(f"{row.model} {row.hardware} x{row.gpus} {row.recipe}" for row in same)
        coarse = "whole samples/s: coarse rounding makes equal values likely" if whole_samples(same[0]) else ""
        findings.append(Finding("repeated", same, f"{same[0].value:g} {same[0].unit} in: {differing}", None, coarse))
    for row, own, base, deviation in speedup_faults(rows):
        detail = f"printed {row.value:g}x, but {own.value:g} / {base.value:g} = {own.value / base.value:.3f}"
        findings.append(Finding("speedup", (row, own, base), detail, deviation, ""))
    return findings
