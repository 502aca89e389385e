"""What this host is: GPU, driver, CUDA, library versions. Read once, before anything runs, and stored in run.json."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recipes.runs import RunError

LIBRARIES = (
    "torch",
    "nemo-toolkit",
    "megatron-core",
    "nemo_run",
    "lightning",
    "transformer_engine",
    "transformer_engine_cu12",
    "transformer_engine_cu13",
    "transformer_engine_torch",
    "nvidia-cudnn-cu13",
    "nvidia-cublas",
    "nvidia-nccl-cu13",
    "nvidia-cudnn-frontend",
    "triton",
    "flash-attn",
    "numpy",
    "pydantic",
)
# of the stacks on JAX, where maxtext is installed: a GPU host may have JAX for other reasons
JAX_LIBRARIES = (
    "maxtext",
    "jax",
    "jaxlib",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "transformer_engine_jax",
    "flax",
    "optax",
    "orbax-checkpoint",
    "qwix",
    "grain",
    "ml_dtypes",
)


def versions() -> dict[str, str]:
    """Installed versions of the libraries that matter, by distribution name; absent ones are left out."""

    def installed(names: Iterable[str]) -> dict[str, str]:
        found = {}
        for name in names:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
        return found

    return installed(LIBRARIES) | (installed(JAX_LIBRARIES) if installed(["maxtext"]) else {})


def nvml_readings(gpu_uuid: str) -> dict[str, Any]:
    """Driver, power limit, clocks and NVLinks of one GPU, and how many the machine has; empty without NVML."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no library or no driver: nothing can be read, and the fields stay absent
        return {}
    try:
        gpu = nvml.nvmlDeviceGetHandleByUUID(gpu_uuid)
        readings = {
            "driver": nvml.nvmlSystemGetDriverVersion,
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
            "max_sm_clock_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
            "machine_gpus": nvml.nvmlDeviceGetCount,
            "nvlinks": lambda: sum(map(bool, _links(nvml, gpu))),
        }
        found: dict[str, Any] = {}
        for name, reading in readings.items():
            try:
                value = reading()
            except nvml.NVMLError:
                continue
            found[name] = value.decode() if isinstance(value, bytes) else value
        return found
    finally:
        nvml.nvmlShutdown()


def _links(nvml: Any, gpu: Any) -> Iterator[int]:
    """State of each NVLink of a GPU, until the first that it does not have."""
    with contextlib.suppress(nvml.NVMLError):
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            yield nvml.nvmlDeviceGetNvLinkState(gpu, link)


def probe() -> dict[str, Any]:
    """The host's GPU side: `gpus`, `gpu_name`, `compute_capability`, `cuda`, memory in bytes, NVML readings, versions.

    Without torch or without a GPU, `gpus` is 0 and the other GPU fields are absent.
    """
    found: dict[str, Any] = {"gpus": 0, "versions": versions()}
    try:
        import torch
    except ImportError:
        return found
    if not torch.cuda.is_available():
        return found
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    gpu_uuid = f"GPU-{properties.uuid}"
    try:
        import transformer_engine.pytorch  # noqa: F401
    except Exception as error:  # whatever it raises, the launcher has to refuse and say why
        found["import_error"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return {
        **found,
        "gpus": torch.cuda.device_count(),
        "gpu_name": torch.cuda.get_device_name(0),
        "compute_capability": list(torch.cuda.get_device_capability(0)),
        "gpu_uuid": gpu_uuid,
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        **nvml_readings(gpu_uuid),
    }


def probe_apart(
    module: str = "recipes.host", environment: Mapping[str, str] | None = None, python: str = sys.executable
) -> dict[str, Any]:
    """`probe()` of a module in a process of its own, so that a launcher that only starts others holds no GPU memory.

    `environment` is added to this one's; `python` is the interpreter. Raises RunError when the probe dies.
    """
    around = {**os.environ, **(environment or {})}
    done = subprocess.run([python, "-m", module], capture_output=True, text=True, env=around)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        raise RunError(f"this host could not be read: {said}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(probe()))
