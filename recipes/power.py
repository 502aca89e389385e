"""Power, clock and energy samples of one GPU while a run goes on, straight from NVML into power.csv.

Nothing is averaged here. `energy_j` is the driver's own counter, so that differences of it are exact where power
samples only approximate.
"""

from __future__ import annotations

import importlib
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

COLUMNS = (
    "time_unix_s",
    "power_w",  # instantaneous
    "power_average_w",  # NVML's plain reading: a one-second average on Hopper and later
    "energy_j",  # the driver's counter
    "sm_clock_mhz",
    "temperature_c",
    "throttle_reasons",
)


class PowerSampler:
    """Samples the GPU of that UUID every `period_s` on a thread of its own. Without NVML it writes the header alone."""

    def __init__(self, path: Path, gpu_uuid: str, period_s: float = 0.05) -> None:
        self._path, self._gpu_uuid, self._period_s = path, gpu_uuid, period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="power", daemon=True)

    def __enter__(self) -> PowerSampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        with self._path.open("w", encoding="utf-8", newline="\n") as file:
            file.write(",".join(COLUMNS) + "\n")
            try:
                pynvml: Any = importlib.import_module("pynvml")
                pynvml.nvmlInit()
                gpu = pynvml.nvmlDeviceGetHandleByUUID(self._gpu_uuid)
            except Exception:  # no NVML, no GPU, or no permission: the header alone says that nothing was sampled
                return
            try:
                while not self._stop.wait(self._period_s):
                    file.write(_row(pynvml, gpu) + "\n")
            finally:
                pynvml.nvmlShutdown()


def _row(nvml: Any, gpu: Any) -> str:
    """One sample; what this GPU or driver does not report stays empty."""

    def instant_power() -> str:
        field = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        return f"{field.value.uiVal / 1000:.3f}" if field.nvmlReturn == nvml.NVML_SUCCESS else ""

    readings = (
        instant_power,
        lambda: f"{nvml.nvmlDeviceGetPowerUsage(gpu) / 1000:.3f}",
        lambda: f"{nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000:.3f}",
        lambda: f"{nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)}",
        lambda: f"{nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)}",
        lambda: f"{nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu):#x}",
    )
    values = [f"{time.time():.6f}"]
    for reading in readings:
        try:
            values.append(reading())
        except nvml.NVMLError:
            values.append("")
    return ",".join(values)
