"""What tests of several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
SHARED = CHECKOUT.parent / "shared"


@pytest.fixture
def shared() -> Path:
    """Fixtures that are other people's data, beside the checkout; tests skip where they are not."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared beside the checkout: real third-party fixtures are not copied into the repository")
    return SHARED
