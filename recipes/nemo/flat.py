"""A recipe as text, one `path: type = value` a line with defaults included: what runs store and golden files hold."""

from __future__ import annotations

import re
from typing import Any

from fiddle import printing

# what differs between two processes or machines and means nothing
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_HOME = re.compile(r"(?:/[^\s'\"/]+)+/(site-packages|dist-packages)/")


def flat(recipe: Any) -> str:
    """The resolved recipe, flattened, without addresses in memory and folders of the machine."""
    text = _ADDRESS.sub("", printing.as_str_flattened(recipe))
    return _HOME.sub(r"<\1>/", text) + "\n"
