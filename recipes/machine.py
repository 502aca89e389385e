"""The machine itself, read without any stack: system, memory, disk, driver and GPUs, programs. For `fewbits doctor`."""

from __future__ import annotations

import csv
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

# nvidia-smi comes with the driver, so it answers where no Python package for GPUs is installed
SMI = "nvidia-smi"
GPU_FIELDS = ("name", "compute_cap", "driver_version", "memory.total", "memory.free", "power.limit")
PROGRAMS = ("git", "snakemake", "dvc", "nvcc", "sbatch", "apptainer", "docker", "podman", "buildah")
MIB = 2**20


def gpus() -> tuple[list[dict[str, Any]], str]:
    """GPUs of the machine as the driver lists them, memory in bytes and power in watts; and why there are none."""
    if shutil.which(SMI) is None:
        return [], f"no {SMI}: no NVIDIA driver is installed here"
    ask = [SMI, f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(ask, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit {done.returncode}"]
        return [], f"{SMI}: {said[-1]}"
    rows = [[cell.strip() for cell in row] for row in csv.reader(done.stdout.splitlines())]
    return [
        {
            "name": name,
            "compute_capability": capability,
            "driver": driver,
            "memory_total_bytes": _number(total, MIB),
            "memory_free_bytes": _number(free, MIB),
            "power_limit_w": _number(power),
        }
        for name, capability, driver, total, free, power in rows
    ], ""


def _number(text: str, unit: int = 1) -> float | None:
    """A reading times its unit, or None where the driver gives none (`[N/A]`)."""
    try:
        return float(text) * unit
    except ValueError:
        return None


def memory() -> tuple[int, int]:
    """Bytes of memory this process may use in all, and those of them not in use; a control group may allow less.

    Linux only (proc(5), cgroups(7)); (0, 0) elsewhere.
    """
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0, 0
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    total, free = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = int((Path("/sys/fs/cgroup") / name).read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such control group, or `max`
            continue
        total, free = min(total, limit), min(free, limit)
    return total, free


def disk_free_bytes(folder: Path) -> int:
    """Bytes free where `folder` is or will be."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    return shutil.disk_usage(there).free


def describe(runs: Path) -> dict[str, Any]:
    """Everything above as one record. `runs`: where run folders will go."""
    found, why = gpus()
    total, free = memory()
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        "runs": str(runs),
        "disk_free_bytes": disk_free_bytes(runs),
        "gpus": found,
        "no_gpus": why,
        "programs": [name for name in PROGRAMS if shutil.which(name)],
    }
