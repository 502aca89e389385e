"""From `experiments.yaml` to experiments: one for each number of GPUs. Imports no GPU library."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from recipes.catalog import GpuName, load_hardware, lookup
from recipes.catalog.reading import Entry, read_yaml

STACK = "collectives"
EXPERIMENTS = Path(__file__).with_name("experiments.yaml")
Operation = Literal["all_reduce", "reduce_scatter", "all_gather", "send_recv"]
Payload = Literal["bf16", "fp8"]
BYTES_A_VALUE: dict[Payload, int] = {"bf16": 2, "fp8": 1}


class ExperimentFile(Entry):
    """`experiments.yaml`."""

    release: str
    hardware: GpuName
    gpus: tuple[int, ...]
    operations: dict[Operation, tuple[Payload, ...]]
    bytes: tuple[int, ...] = Field(description="multiples of every number of GPUs times two")
    warmup: int = Field(ge=1)
    iterations: int = Field(ge=1)

    @model_validator(mode="after")
    def _fits(self) -> ExperimentFile:
        lookup("hardware", self.hardware.key, load_hardware())
        odd = [size for size in self.bytes if any(size % (2 * gpus) for gpus in self.gpus)]
        if odd:
            raise ValueError(f"sizes that do not split over all of {self.gpus} GPUs: {odd}")
        if any(
            operation in ("all_reduce", "reduce_scatter") and "fp8" in p for operation, p in self.operations.items()
        ):
            raise ValueError("gradients are reduced in BF16 here; FP8 can be gathered and sent")
        return self


class Experiment(Entry):
    """One experiment, resolved: every operation, payload and size between so many GPUs."""

    name: str
    hardware: str
    gpus: int = Field(ge=2)
    operations: dict[Operation, tuple[Payload, ...]]
    bytes: tuple[int, ...]
    warmup: int
    iterations: int


@cache
def load_experiments() -> ExperimentFile:
    """`experiments.yaml`, validated. Raises CatalogError."""
    return read_yaml(EXPERIMENTS, ExperimentFile)


@cache
def all_experiments() -> dict[str, Experiment]:
    """Every experiment by name, `<hardware>x<GPUs>`."""
    rows = load_experiments()
    made = [
        Experiment(
            name=f"{rows.hardware.name}x{gpus}",
            hardware=rows.hardware.key,
            gpus=gpus,
            operations=rows.operations,
            bytes=rows.bytes,
            warmup=rows.warmup,
            iterations=rows.iterations,
        )
        for gpus in rows.gpus
    ]
    return {one.name: one for one in made}


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises CatalogError with the allowed ones."""
    return lookup("experiment of collectives", name, all_experiments())
