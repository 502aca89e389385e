"""How many digits a number in a table has."""

from __future__ import annotations

import math

DIGITS = 5  # significant: far below the noise of any measurement here


def rounded(value: float | None) -> float | None:
    """A number as tables show it: five significant digits; None stays None, and so does what is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")
