"""The GPU side of a host for stacks on JAX, where torch need not be: what JAX sees, and NVML's readings.

python -m recipes.maxtext.host   (started by recipes.host.probe_apart)
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recipes.gpus import visible_gpus
from recipes.host import nvml_readings, versions

# JAX takes most of a GPU's memory when it first looks at it, unless told not to
ENVIRONMENT = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def library_path(folders: Sequence[str] = sys.path) -> str:
    """LD_LIBRARY_PATH with the folders of NVIDIA's libraries that lie in packages.

    JAX finds them by itself, Transformer Engine's extension does not.
    """
    found = [str(lib) for folder in folders if folder for lib in sorted(Path(folder).glob("nvidia/*/lib"))]
    before = os.environ.get("LD_LIBRARY_PATH")
    return os.pathsep.join(dict.fromkeys([*found, *([before] if before else [])]))


@contextlib.contextmanager
def _handle() -> Iterator[tuple[Any, Any]]:
    """NVML and its handle of the first visible GPU. Raises whatever NVML raises."""
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        first = visible_gpus()[0]
        if first.isdigit():
            yield nvml, nvml.nvmlDeviceGetHandleByIndex(int(first))
        else:
            yield nvml, nvml.nvmlDeviceGetHandleByUUID(first)
    finally:
        nvml.nvmlShutdown()


def probe() -> dict[str, Any]:
    """As recipes.host.probe, asked of JAX and NVML. Without JAX's GPU backend, `gpus` is 0 and the rest is absent."""
    found: dict[str, Any] = {"gpus": 0, "versions": versions()}
    try:
        import jax

        devices: list[Any] = jax.devices("gpu")
    except (ImportError, RuntimeError):
        return found
    from jax._src.lib import cuda_versions

    runtime = cuda_versions.cuda_runtime_get_version()
    found |= {
        "gpus": len(devices),
        "gpu_name": devices[0].device_kind,
        "compute_capability": [int(part) for part in devices[0].compute_capability.split(".")],
        "multiprocessors": devices[0].core_count,
        "cuda": f"{runtime // 1000}.{runtime % 1000 // 10}",
    }
    try:
        import transformer_engine.jax  # noqa: F401
    except Exception as error:  # whatever it raises, the launcher has to refuse and say why
        found["import_error"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    with contextlib.suppress(Exception), _handle() as (nvml, gpu):  # no library or no driver: the fields stay absent
        uuid = nvml.nvmlDeviceGetUUID(gpu)
        memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
        found |= {
            "gpu_uuid": uuid.decode() if isinstance(uuid, bytes) else uuid,
            "memory_total_bytes": memory.total,
            "memory_free_bytes": memory.free,
        }
    return found | (nvml_readings(found["gpu_uuid"]) if "gpu_uuid" in found else {})


if __name__ == "__main__":
    print(json.dumps(probe()))
