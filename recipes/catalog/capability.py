"""The capability gate: precision x GPU x stack release -> native, emulated or unsupported, with reason and source.

Every launcher asks here first: the frameworks accept impossible combinations, then train BF16 or die at step 0.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import Field, model_validator

from recipes.catalog.precisions import load_precisions
from recipes.catalog.reading import CATALOG, CatalogError, Entry, lookup, read_yaml

Status = Literal["native", "emulated", "unsupported"]
Version = tuple[int, int]


class Rule(Entry):
    """One line of the gate. Rules of a release are tried in order; the first whose conditions all hold decides."""

    precisions: tuple[str, ...] = Field(min_length=1)
    min_compute_capability: Version | None = None
    below_compute_capability: Version | None = None
    min_cuda: Version | None = None
    on_cpu: bool = False
    status: Status
    reason: str
    source: str


class Release(Entry):
    """A stack at a release: its component versions and its rules."""

    components: dict[str, str]
    cuda: Version | None = Field(default=None, description="CUDA the release ships with; a run states its own")
    rules: tuple[Rule, ...]


class CapabilityFile(Entry):
    """`capability.yaml`: stack -> release -> rules."""

    stacks: dict[str, dict[str, Release]]

    @model_validator(mode="after")
    def _precisions_exist(self) -> CapabilityFile:
        known = set(load_precisions())
        for stack, releases in self.stacks.items():
            for name, release in releases.items():
                wrong = {p for rule in release.rules for p in rule.precisions} - known
                if wrong:
                    raise ValueError(
                        f"stacks.{stack}.{name}: unknown precisions {sorted(wrong)}; allowed: {sorted(known)}"
                    )
        return self


class Capability(Entry):
    """The gate's answer."""

    status: Status
    reason: str
    source: str


@cache
def load_stacks() -> dict[str, dict[str, Release]]:
    """All stacks and their releases, in table order. Raises CatalogError."""
    return read_yaml(CATALOG / "capability.yaml", CapabilityFile).stacks


def capability(
    precision: str, compute_capability: Version | None, stack: str, release: str, cuda: Version | None = None
) -> Capability:
    """What becomes of `precision` on a GPU of `compute_capability` (None: no GPU) under a stack's release.

    `cuda` is the CUDA version found; without it the release's own counts. Raises CatalogError on an unknown name.
    """
    lookup("precision", precision, load_precisions())
    rules = lookup(f"release of {stack}", release, lookup("stack", stack, load_stacks()))
    found = cuda or rules.cuda
    for rule in rules.rules:
        if precision in rule.precisions and _holds(rule, compute_capability, found):
            return Capability(status=rule.status, reason=rule.reason, source=rule.source)
    raise CatalogError(
        f"capability.yaml: {stack} {release} has no rule for {precision} on {compute_capability}; add one"
    )


def _holds(rule: Rule, gpu: Version | None, cuda: Version | None) -> bool:
    if gpu is None:
        return rule.on_cpu
    if rule.min_compute_capability and gpu < rule.min_compute_capability:
        return False
    if rule.below_compute_capability and gpu >= rule.below_compute_capability:
        return False
    return not rule.min_cuda or (cuda is not None and cuda >= rule.min_cuda)
