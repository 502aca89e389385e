"""Numbers of a run folder's JSON, taken only where they are what they should be."""

from __future__ import annotations

import math
from typing import Any


def number(value: Any) -> float:
    """A JSON number, or one of the strings that stand for what JSON cannot say. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"not a number: {str(value)[:40]!r}")
    found = float(value)
    if isinstance(value, str) and math.isfinite(found):
        raise ValueError(f"a number written as text: {value[:40]!r}")
    return found


def integer(value: Any) -> int:
    """A whole number that is a count. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"not a whole number: {str(value)[:40]!r}")
    if abs(value) > 2**53:
        raise ValueError("a whole number beyond any count")
    return value
