"""From `experiments.yaml` to experiments. Imports neither MaxText nor JAX."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from recipes.catalog import CatalogError, load_models, load_precisions, lookup
from recipes.catalog.reading import Entry, read_yaml
from recipes.training import TrainingExperiment, reduced

STACK = "maxtext"
EXPERIMENTS = Path(__file__).with_name("experiments.yaml")
Tier = Literal["cpu"]
Setting = str | int | float | bool
# Set by the launcher from what an experiment is; `settings` may not say otherwise.
OWN_KEYS = ("quantization", "steps", "run_name", "base_output_directory", "metrics_file", "hardware", "dataset_type")


class Layout(Entry):
    """How a step is spread over GPUs. Batches are in samples (sequences)."""

    gpus: int = Field(default=1, gt=0)
    fsdp: int = Field(default=1, gt=0, description="GPUs that share out weights, gradients and optimizer")
    device_batch_samples: int = Field(gt=0, description="MaxText's per_device_batch_size")
    global_batch_samples: int = Field(gt=0)

    @model_validator(mode="after")
    def _divides(self) -> Layout:
        if self.gpus % self.fsdp:
            raise ValueError(f"{self.gpus} GPUs are not a multiple of FSDP {self.fsdp}")
        if self.global_batch_samples != self.gpus * self.device_batch_samples:
            raise ValueError(
                f"global batch {self.global_batch_samples} is not {self.gpus} GPUs x {self.device_batch_samples}"
            )
        return self


class Experiment(TrainingExperiment):
    """One experiment, resolved: everything of ours that decides what MaxText trains."""

    tier: Tier
    quantization: str = Field(description="MaxText's name; empty: none")
    emulated: bool = Field(default=False, description="through Transformer Engine's pure-JAX path, wherever it runs")
    layout: Layout
    settings: dict[str, Setting] = Field(default={}, description="further keys of MaxText's configuration")

    @model_validator(mode="after")
    def _settings_decide_nothing_twice(self) -> Experiment:
        twice = sorted(set(self.settings) & set(OWN_KEYS))
        if twice:
            raise ValueError(f"settings {', '.join(twice)}: the experiment itself says so")
        # MaxText would train BF16 without a word (seen: losses equal BF16's to every digit)
        if self.settings.get("use_qwix_quantization") and self.quantization.startswith(("te_", "nanoo_")):
            raise ValueError(
                f"use_qwix_quantization with quantization {self.quantization}: MaxText would train BF16 and say"
                " nothing; leave use_qwix_quantization out"
            )
        return self


class Quantization(Entry):
    """MaxText's name of a quantization, and the precision it stands for."""

    quantization: str
    precision: str


class Cpu(Entry):
    """A tiny model on CPU."""

    model: str
    dimensions: dict[str, int]
    batch_samples: int = Field(gt=0)
    steps: int = Field(gt=0)
    quantizations: tuple[str, ...]
    settings: dict[str, Setting]


class ExperimentFile(Entry):
    """`experiments.yaml`."""

    release: str
    maxtext: str
    seed: int
    quantizations: dict[str, Quantization]
    baseline: str
    cpu: Cpu

    @model_validator(mode="after")
    def _names_exist(self) -> ExperimentFile:
        for one in self.quantizations.values():
            lookup("precision", one.precision, load_precisions())
        for name in (self.baseline, *self.cpu.quantizations):
            lookup("quantization of maxtext", name, self.quantizations)
        lookup("model", self.cpu.model, load_models())
        return self


@cache
def load_experiments() -> ExperimentFile:
    """`experiments.yaml`, validated. Raises CatalogError."""
    return read_yaml(EXPERIMENTS, ExperimentFile)


def _cpu() -> Iterator[dict[str, Any]]:
    rows = load_experiments()
    tiny = rows.cpu
    start = f"{tiny.model}-cpu"
    for name in tiny.quantizations:
        quantization = rows.quantizations[name]
        yield {
            "name": f"{start}-{name}",
            "tier": "cpu",
            **reduced(tiny.model, tiny.dimensions),
            "hardware": "cpu",
            **quantization.model_dump(),
            "emulated": bool(quantization.quantization),
            "layout": Layout(device_batch_samples=tiny.batch_samples, global_batch_samples=tiny.batch_samples),
            "steps": tiny.steps,
            "settings": tiny.settings,
            "baseline": None if quantization.precision == "bf16" else f"{start}-{rows.baseline}",
        }


@cache
def all_experiments() -> dict[str, Experiment]:
    """Every experiment by name. Raises CatalogError."""
    rows = load_experiments()
    return {row["name"]: Experiment(**row, seed=rows.seed, release=rows.release) for row in _cpu()}


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises CatalogError with near misses, and the allowed models and quantizations."""
    found = all_experiments()
    if name in found:
        return found[name]
    parts = name.split("-")
    lookup("model of maxtext", parts[0], dict.fromkeys(one.model for one in found.values()))
    if len(parts) > 1:
        lookup("hardware of maxtext", parts[1], dict.fromkeys(other.split("-")[1] for other in found))
    if len(parts) > 2:
        lookup("quantization of maxtext", parts[2], load_experiments().quantizations)
    raise CatalogError(f"unknown experiment {name!r}; there are: {', '.join(found)}")
