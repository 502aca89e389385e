"""Functions that the rules of every stack share. Rule files hold rules only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from snakemake.exceptions import WorkflowError


def require_gpus(config: Mapping[str, Any], stack: str, count: int) -> Callable[[Any], list[str]]:
    """An input function that asks for no file, and stops the workflow where fewer than `count` GPUs are lent to it."""

    def check(_wildcards: Any) -> list[str]:
        if config["gpus"] < count:
            raise WorkflowError(
                f"{stack} needs {count} NVIDIA GPU: add `--workflow-profile profiles/gpu` on a GPU host; elsewhere"
                " `snakemake reproduce_all` uses the published results"
            )
        return []

    return check
