"""`experiments.yaml` as types: what MaxText's experiments are made from. Its JSON schema is generated from here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import Field, model_validator

from recipes.catalog import GpuName, load_hardware, load_models, load_precisions, lookup
from recipes.catalog.reading import Entry, read_yaml

EXPERIMENTS = Path(__file__).with_name("experiments.yaml")
Setting = str | int | float | bool


class Quantization(Entry):
    """MaxText's name of a quantization, and the precision it stands for."""

    quantization: str
    precision: str


class Reasoned(Entry):
    """A flag or variable of the runs on GPUs, and why it is set."""

    value: Setting
    why: str


class Cpu(Entry):
    """A tiny model on CPU."""

    model: str
    dimensions: dict[str, int]
    batch_samples: int = Field(gt=0)
    steps: int = Field(gt=0)
    quantizations: tuple[str, ...]
    processes: int = Field(gt=1, description="of one more experiment, sharded over them, for a cluster without GPUs")
    settings: dict[str, Setting]


class OneGpu(Entry):
    """True width, reduced depth, vocabulary cut like the layers."""

    hardware: GpuName
    model: str
    layers: int = Field(gt=0)
    batch_samples: int = Field(gt=0)
    steps: int = Field(gt=0)
    quantizations: tuple[str, ...]
    emulated: tuple[str, ...] = Field(description="beside them, through Transformer Engine's pure-JAX path")
    emulated_settings: dict[str, Setting]


class OneHost(Entry):
    """A whole model on several GPUs of one host."""

    hardware: GpuName
    model: str
    gpus: tuple[int, ...]
    batch_samples: int = Field(gt=0)
    steps: int = Field(gt=0)
    quantizations: tuple[str, ...]


class Place(Entry):
    """A model on a cluster of one kind of GPU."""

    model: str
    hardware: str
    gpus: int = Field(gt=0)
    batch_samples: int = Field(gt=0)
    settings: dict[str, Setting] = Field(default={})
    source: str


class Cluster(Entry):
    """Whole models on nodes of a cluster."""

    steps: int = Field(gt=0)
    time_limit: str
    gpus_per_node: dict[str, int]
    places: tuple[Place, ...]
    quantizations: tuple[str, ...]
    baselines: dict[str, str]


class ExperimentFile(Entry):
    """`experiments.yaml`."""

    release: str
    maxtext: str
    seed: int
    quantizations: dict[str, Quantization]
    baseline: str
    models: dict[str, str]
    cpu: Cpu
    settings: dict[str, Setting]
    stream_settings: dict[str, Setting]
    xla_flags: dict[str, Reasoned]
    variables: dict[str, Reasoned]
    one_gpu: OneGpu
    one_host: OneHost
    cluster: Cluster

    @model_validator(mode="after")
    def _names_exist(self) -> ExperimentFile:
        for one in self.quantizations.values():
            lookup("precision", one.precision, load_precisions())
        names = [self.baseline, *self.cluster.baselines, *self.cluster.baselines.values(), *self.one_gpu.emulated]
        for tier in (self.cpu, self.one_gpu, self.one_host, self.cluster):
            names += tier.quantizations
        for name in names:
            lookup("quantization of maxtext", name, self.quantizations)
        lookup("model", self.cpu.model, load_models())
        for model in (self.one_gpu.model, self.one_host.model, *(place.model for place in self.cluster.places)):
            lookup("model of maxtext", model, self.models)
            lookup("model", model, load_models())
        for place in self.cluster.places:
            lookup("hardware of maxtext's cluster", place.hardware, self.cluster.gpus_per_node)
            lookup("hardware", place.hardware, load_hardware())
        return self


@cache
def load_experiments() -> ExperimentFile:
    """`experiments.yaml`, validated. Raises CatalogError."""
    return read_yaml(EXPERIMENTS, ExperimentFile)
