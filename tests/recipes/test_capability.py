"""The gate: nothing undecided, and the known traps answered."""

from __future__ import annotations

import pytest

from recipes.catalog import CatalogError, capability, load_hardware, load_precisions
from recipes.catalog.capability import load_stacks

HOPPER, BLACKWELL, AMPERE = (9, 0), (10, 0), (8, 0)


def test_every_combination_is_decided_with_a_source() -> None:
    gpus = [*(h.compute_capability for h in load_hardware().values()), None, (7, 5), (8, 9), (12, 0)]
    for stack, releases in load_stacks().items():
        for release in releases:
            for precision in load_precisions():
                for gpu in gpus:
                    answer = capability(precision, gpu, stack, release)
                    assert answer.reason
                    assert answer.source


@pytest.mark.parametrize(
    ("precision", "gpu", "stack", "release", "cuda", "status"),
    [
        ("fp8_current", HOPPER, "te_layers", "2.20", None, "native"),
        ("fp8_current", AMPERE, "te_layers", "2.20", None, "unsupported"),
        ("fp8_block", HOPPER, "te_layers", "2.20", (12, 8), "unsupported"),
        ("fp8_block", HOPPER, "te_layers", "2.20", (12, 9), "native"),
        ("fp8_block", BLACKWELL, "te_layers", "2.20", (13, 0), "emulated"),
        ("mxfp8", HOPPER, "te_layers", "2.20", None, "unsupported"),
        ("nvfp4", BLACKWELL, "te_layers", "2.20", None, "native"),
        ("mxfp8", HOPPER, "nemo", "25.04", None, "unsupported"),
        ("mxfp8", BLACKWELL, "nemo", "25.04", None, "native"),
        ("fp8_block", HOPPER, "nemo", "25.04", (13, 0), "unsupported"),
        ("fp8_block", HOPPER, "nemo", "25.07", (12, 9), "native"),
        ("fp8_current", None, "nemo", "25.04", None, "unsupported"),
        ("bf16", None, "nemo", "25.04", None, "native"),
        ("nvfp4", HOPPER, "maxtext", "0.2.5", None, "emulated"),
        ("nvfp4", None, "maxtext", "0.2.5", None, "emulated"),
        ("nvfp4", BLACKWELL, "maxtext", "0.2.5", None, "native"),
        ("fp8_block", BLACKWELL, "maxtext", "0.2.5", None, "unsupported"),
    ],
)
def test_known_answers(
    precision: str,
    gpu: tuple[int, int] | None,
    stack: str,
    release: str,
    cuda: tuple[int, int] | None,
    status: str,
) -> None:
    assert capability(precision, gpu, stack, release, cuda).status == status


def test_unknown_names_are_told_what_is_allowed() -> None:
    with pytest.raises(CatalogError, match="allowed: bf16"):
        capability("fp7", HOPPER, "te_layers", "2.20")
    with pytest.raises(CatalogError, match=r"25\.04, 25\.07"):
        capability("bf16", HOPPER, "nemo", "24.07")
