"""GPUs by the exact name their driver prints, with dense peaks and a source for every value.

No name is guessed at: `find_gpu` matches whole names, so a B300 is never taken for a B200 and an unknown GPU has no
peak, hence no MFU.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import Field, model_validator

from recipes.catalog.reading import CATALOG, CatalogError, Entry, read_yaml

PeakFormat = Literal["bf16", "fp8", "fp4"]


class Claim(Entry):
    """One source's value for a quantity on which sources disagree."""

    value: float
    source: str


class Quantity(Entry):
    """A value with its source; `disputed` lists what other sources print instead."""

    value: float = Field(gt=0)
    source: str
    disputed: tuple[Claim, ...] = ()


class Hardware(Entry):
    """One GPU as datasheets describe it. Units stand in the names; peaks are dense, never with sparsity."""

    name: str
    driver_names: tuple[str, ...] = Field(min_length=1, description="exact strings of nvidia-smi / NVML")
    compute_capability: tuple[int, int]
    dense_tflops: dict[PeakFormat, Quantity]
    hbm_gb: Quantity
    hbm_tb_per_s: Quantity
    nvlink_gb_per_s: Quantity
    board_power_w: Quantity


class HardwareFile(Entry):
    """`hardware.yaml`: the GPUs and the sources their values cite."""

    sources: dict[str, str]
    hardware: dict[str, Hardware]

    @model_validator(mode="after")
    def _sources_exist(self) -> HardwareFile:
        for key, gpu in self.hardware.items():
            quantities = [gpu.hbm_gb, gpu.hbm_tb_per_s, gpu.nvlink_gb_per_s, gpu.board_power_w]
            for quantity in [*gpu.dense_tflops.values(), *quantities]:
                for source in [quantity.source, *(claim.source for claim in quantity.disputed)]:
                    if source not in self.sources:
                        raise ValueError(
                            f"hardware.{key}: source {source!r} is not listed; allowed: {sorted(self.sources)}"
                        )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> HardwareFile:
        names = [name for gpu in self.hardware.values() for name in gpu.driver_names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"driver names given to two GPUs: {twice}")
        return self


class GpuName(Entry):
    """How a GPU is called in names of experiments, and its key in the catalog."""

    name: str
    key: str


@cache
def load_hardware() -> dict[str, Hardware]:
    """All GPUs by key. Raises CatalogError."""
    return read_yaml(CATALOG / "hardware.yaml", HardwareFile).hardware


def find_gpu(driver_name: str) -> str | None:
    """The key of the GPU whose driver prints exactly `driver_name`, or None: unknown GPUs get no peak and no MFU."""
    for key, gpu in load_hardware().items():
        if driver_name in gpu.driver_names:
            return key
    return None


def mfu(driver_name: str, peak_format: PeakFormat, achieved_tflops: float) -> float | None:
    """Model FLOP utilisation of one GPU: achieved over dense peak; None for an unknown GPU or format.

    Raises CatalogError above 1: then the FLOP count, the time or the peak is wrong, and no such number may be shown.
    """
    key = find_gpu(driver_name)
    peak = load_hardware()[key].dense_tflops.get(peak_format) if key else None
    if peak is None:
        return None
    share = achieved_tflops / peak.value
    if share > 1:
        raise CatalogError(
            f"{driver_name}: {achieved_tflops:.0f} TFLOP/s is above the dense {peak_format} peak of"
            f" {peak.value:.0f}; check the FLOP convention and the times"
        )
    return share
