"""What a log is said to be (its name, or its user) against what it says itself: precision and GPU.

A name is read by whole words: `gb300x8` says GB300, `fp8_cs` says FP8 with current scaling. Two answers in one name are
none.
"""

from __future__ import annotations

import re
from pathlib import Path

from analysis.logs.format import precision
from analysis.logs.log_run import LogRun

# Words in names, longest first; `fp8` is any FP8.
_PRECISION_WORDS: tuple[tuple[str, str], ...] = (
    (r"nvfp4[-_ ]no[-_ ]?rht", "nvfp4_no_rht"),
    (r"nvfp4|fp4", "nvfp4"),
    (r"mxfp8|fp8[-_ ]?mx", "mxfp8"),
    (r"fp8[-_ ]?(?:ds|delayed(?:scaling)?)", "fp8_delayed"),
    (r"fp8[-_ ]?(?:cs|current(?:scaling)?|tensorwise)", "fp8_current"),
    (r"fp8[-_ ]?(?:ss|sc|block(?:wise)?|subchannel)", "fp8_block"),
    (r"fp8", "fp8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16", "fp16"),
)
_GPU = re.compile(
    r"(?<![a-z0-9])(?:\d+x)?(gb300|gb200|gh200|b300|b200|h200|h100|h800|h20|a100|l40s|l40|v100|mi\d{3}x?|tpu-?v\d\w?)"
    r"(?![0-9])|x(?:8|4)?x?(gb300|gb200|gh200|b300|b200|h200|h100)(?=-)",
    re.IGNORECASE,
)


def precision_in(name: str) -> str | None:
    """The precision that a name states, or None."""
    left, found = name.lower(), set()
    for words, key in _PRECISION_WORDS:
        pattern = re.compile(rf"(?<![a-z0-9])(?:te[-_])?(?:{words})(?![a-z0-9])")
        if pattern.search(left):
            found.add(key)
            left = pattern.sub(" ", left)
    return found.pop() if len(found) == 1 else None


def gpu_in(name: str) -> str | None:
    """The GPU that a name states, in capitals (`GB200`), or None."""
    found = {(match[1] or match[2]).upper() for match in _GPU.finditer(name)}
    return found.pop() if len(found) == 1 else None


def declared(path: str, what: str) -> str | None:
    """What a path says of `precision` or `gpu`: its last part that says anything counts."""
    read = precision_in if what == "precision" else gpu_in
    parts = Path(path).parts[-4:]
    return next((said for part in reversed(parts) if (said := read(part)) is not None), None)


def effective_precision(run: LogRun) -> str | None:
    """The precision that the log's own configuration amounts to, or None where it does not say."""
    said = run.fact("quantization")
    if said == "none":
        return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(
            next(iter(run.flags().get("dtype", [])), "")
        )
    if said and said != "unknown":
        return said
    return precision(run.flags(), before_fp8=run.format.name == "megatron")


def effective_gpu(run: LogRun) -> str | None:
    """The GPU that the log names, or None; several statements must agree."""
    found = {gpu for value in run.facts.get("hardware", {}) if (gpu := gpu_in(value))}
    return found.pop() if len(found) == 1 else None


def contradicts(said: str, found: str) -> bool:
    """Whether two precision keys cannot both be true; `fp8` is any FP8 recipe."""
    if said == found:
        return False
    general = {"fp8": ("fp8", "mxfp8"), "nvfp4": ("nvfp4",)}
    return not any(one in general and other.startswith(general[one]) for one, other in ((said, found), (found, said)))
