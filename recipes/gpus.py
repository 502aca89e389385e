"""GPUs of this host for one launcher: as many as it needs, that no other launcher holds."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recipes.runs import RunError

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA names them: what CUDA_VISIBLE_DEVICES lists, or all that NVML sees.

    Empty where neither says anything.
    """
    if VISIBLE in os.environ:
        return [name.strip() for name in os.environ[VISIBLE].split(",") if name.strip()]
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no library or no driver: nobody knows
        return []
    try:
        return [str(index) for index in range(nvml.nvmlDeviceGetCount())]
    finally:
        nvml.nvmlShutdown()


@contextlib.contextmanager
def lent_gpus(count: int, folder: Path | None = None) -> Iterator[None]:
    """Leave exactly `count` GPUs visible, held against other launchers on this host until the end.

    Nothing is done where no more than `count` are visible: what is too few, the launcher refuses. Held is a file a GPU
    in `folder` (the system's for temporary files), locked by this process, so that a killed one holds nothing. Raises
    RunError when fewer than `count` are free.
    """
    names = visible_gpus()
    if len(names) <= count:
        yield
        return
    folder = folder or Path(tempfile.gettempdir())
    before = os.environ.get(VISIBLE)
    with contextlib.ExitStack() as held:
        taken: list[str] = []
        for name in names:
            if len(taken) == count:
                break
            file = held.enter_context((folder / f"fewbits-gpu-{name}.lock").open("a"))
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                taken.append(name)
        if len(taken) < count:
            raise RunError(f"{count} of {len(names)} GPUs are needed, {len(taken)} are free; wait for what runs here")
        os.environ[VISIBLE] = ",".join(taken)
        try:
            yield
        finally:
            if before is None:
                del os.environ[VISIBLE]
            else:
                os.environ[VISIBLE] = before
