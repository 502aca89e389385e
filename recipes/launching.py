"""What every stack's launcher does alike: ask the gate, describe the host in run.json, speak on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipes.catalog import Capability, capability
from recipes.catalog.reading import Entry
from recipes.gpus import VISIBLE
from recipes.runs import git_state, sha256_of

CHECKOUT = Path(__file__).resolve().parents[1]
# environment variables that change what the libraries do
VARIABLES = ("NVTE_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "TORCH_", "PYTORCH_", "NEMO_")
# NVLink multicast off: a host that is shared with others may not allow it
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "UB_SKIPMC": "1", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


def ask_gate(precision: str, host: dict[str, Any], stack: str, release: str) -> Capability:
    """The gate's answer for a precision on a probed host; a host without a GPU has no compute capability."""
    if not host["gpus"]:
        return capability(precision, None, stack, release)
    major, minor = host["compute_capability"]
    cuda = tuple(int(part) for part in str(host["cuda"]).split(".")[:2])
    return capability(precision, (major, minor), stack, release, (cuda[0], cuda[1]))


def python_path() -> str:
    """PYTHONPATH for a process that starts in another folder: this checkout, then what was there, absolute."""
    parts = [CHECKOUT, *(Path(part).absolute() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part)]
    return os.pathsep.join(dict.fromkeys(map(str, parts)))


def base_record(
    which: Entry,
    precision: str | None,
    release: str,
    host: dict[str, Any],
    locks: Sequence[str],
    session: dict[str, Any],
) -> dict[str, Any]:
    """The part of run.json that is known before the run starts. `locks` are paths in the checkout.

    `precision` is None where nothing is computed.
    """
    hashes = [sha256_of(CHECKOUT / lock) if (CHECKOUT / lock).is_file() else None for lock in locks]
    return {
        "configuration": which.model_dump(mode="json"),
        "release": release,
        "requested_precision": precision,
        "effective_precision": None,
        "hardware": {key: value for key, value in host.items() if key != "versions"},
        "versions": host["versions"],
        "environment": {
            "lock_sha256": hashes[0] if len(hashes) == 1 else hashes,
            "variables": {
                key: os.environ[key] for key in sorted(os.environ) if key.startswith(VARIABLES) and key != VISIBLE
            },
        },
        "git": git_state(CHECKOUT),
        "session": session,
    }


def rank() -> int:
    """This process's rank, as torchrun or Slurm numbers it; 0 where neither started it."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)


def say(line: str) -> None:
    """Progress, one line a run, on stderr."""
    print(line, file=sys.stderr, flush=True)
