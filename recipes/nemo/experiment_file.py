"""`experiments.yaml` as types: what NeMo's experiments are made from. Its JSON schema is generated from here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import Field, model_validator

from recipes.catalog import GpuName, load_hardware, load_models, load_precisions, lookup
from recipes.catalog.reading import Entry, read_yaml

EXPERIMENTS = Path(__file__).with_name("experiments.yaml")


class Release(Entry):
    """A release of the NeMo Framework: its own packages, and the image that holds it (containers/images.lock.yaml)."""

    nemo_toolkit: str
    megatron_core: str
    image: str


class Hardware(Entry):
    """A cluster's GPU: the catalog's key and the GPUs of one node."""

    key: str
    gpus_per_node: int = Field(gt=0)


class Block(Entry):
    """Block scaling, in a release of its own and with its own baseline."""

    release: str
    hardware: tuple[str, ...] = ()
    precisions: tuple[str, ...]


class Cluster(Entry):
    """The full recipes."""

    recommended: str
    steps: int = Field(gt=0)
    time_limit: str
    hardware: dict[str, Hardware]
    precisions: tuple[str, ...]
    block: Block


class Depth(Entry):
    """How much of a model one GPU holds."""

    layers: int = Field(gt=0)
    micro_batches: int = Field(gt=0)
    steps: int | None = Field(default=None, gt=0, description="where not the default of one GPU")


class Narrow(Entry):
    """What one host's experiments share: its GPU, how long, and in which precisions of which release."""

    hardware: GpuName
    steps: int = Field(gt=0)
    precisions: tuple[str, ...]
    block: Block


class OneGpu(Narrow):
    """True width, reduced depth."""

    models: dict[str, Depth]
    scaled: dict[str, Depth]
    first_last_layers_bf16: tuple[str, ...]
    rowwise_weight_cast: tuple[str, ...]


class Whole(Entry):
    """A whole model on GPUs of one host, in the layout that NVIDIA recommends for other hardware."""

    gpus: tuple[int, ...]
    layout_of: str = Field(description="hardware of `cluster`; its samples a GPU are kept")


class Parallel(Entry):
    """A cut model in several layouts, all with the same global batch."""

    layers: int = Field(gt=0)
    samples: int = Field(gt=0, description="of the global batch")
    scaled: bool = Field(default=False, description="vocabulary cut like the layers")
    layouts: tuple[str, ...]


class OneHost(Narrow):
    """Several GPUs of one host."""

    whole: dict[str, Whole]
    layouts: dict[str, dict[str, int]]
    models: dict[str, Parallel]

    @model_validator(mode="after")
    def _layouts_exist(self) -> OneHost:
        for model in self.models.values():
            for name in model.layouts:
                lookup("layout of one_host", name, self.layouts)
        return self


class Cpu(Entry):
    """Plumbing: every recipe with tiny dimensions."""

    steps: int = Field(gt=0)
    dimensions: dict[str, int]
    micro_batch_samples: int = Field(gt=0)
    global_batch_samples: int = Field(gt=0)
    layouts: dict[str, dict[str, int]]


class ExperimentFile(Entry):
    """`experiments.yaml`."""

    releases: dict[str, Release]
    seed: int
    cluster: Cluster
    one_gpu: OneGpu
    one_host: OneHost
    cpu: Cpu

    @model_validator(mode="after")
    def _names_exist(self) -> ExperimentFile:
        for tier in (self.cluster, self.one_gpu, self.one_host):
            lookup("release of nemo", tier.block.release, self.releases)
            for name in tier.precisions:
                lookup("precision", name, load_precisions())
        keys = [hardware.key for hardware in self.cluster.hardware.values()]
        for key in (*keys, self.one_gpu.hardware.key, self.one_host.hardware.key):
            lookup("hardware", key, load_hardware())
        for name in (*self.one_gpu.models, *self.one_gpu.scaled, *self.one_host.whole, *self.one_host.models):
            lookup("model", name, load_models())
        for whole in self.one_host.whole.values():
            lookup("hardware of nemo's full recipes", whole.layout_of, self.cluster.hardware)
        return self


@cache
def load_experiments() -> ExperimentFile:
    """`experiments.yaml`, validated. Raises CatalogError."""
    return read_yaml(EXPERIMENTS, ExperimentFile)
