"""From `experiments.yaml` to experiments, their GEMM shapes and their memory need. Imports no GPU library."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, model_validator

from recipes.catalog import Model, load_models, load_precisions, lookup
from recipes.catalog.models import layer_matrix_parameters
from recipes.catalog.reading import Entry, read_yaml

STACK = "te_layers"
Kind = Literal["layers", "gemms"]
KINDS: tuple[Kind, ...] = get_args(Kind)
EXPERIMENTS = Path(__file__).with_name("experiments.yaml")


class Timing(Entry):
    """How often: untimed, then timed iterations of each repeat."""

    warmup: int = Field(ge=1)
    iterations: int = Field(ge=1)


class Width(Timing):
    """How one model's width is measured."""

    layers: int = Field(gt=0, description="layers in the timed stack")


class ExperimentFile(Entry):
    """`experiments.yaml`."""

    release: str
    transformer_engine: str
    micro_batch_size: int = Field(gt=0)
    seed: int
    repeats: int = Field(ge=1)
    gemms: Timing
    gpus: int = Field(ge=1, le=1)
    precisions: tuple[str, ...]
    models: dict[str, Width]

    @model_validator(mode="after")
    def _names_exist(self) -> ExperimentFile:
        for name in self.models:
            lookup("model", name, load_models())
        for name in self.precisions:
            lookup("precision", name, load_precisions())
        return self


class Experiment(Entry):
    """One experiment, resolved: everything that decides what is measured."""

    kind: Kind
    model: str
    precision: str
    dimensions: Model
    layers: int
    sequence: int
    micro_batch_size: int
    seed: int
    warmup: int
    iterations: int

    @property
    def name(self) -> str:
        """`<kind>-<model>-<precision>`, the experiment's folder name."""
        return f"{self.kind}-{self.model}-{self.precision}"

    @property
    def tokens(self) -> int:
        """Tokens in one iteration."""
        return self.micro_batch_size * self.sequence


class Gemm(Entry):
    """One linear layer: its forward GEMM multiplies (m x k) activations by (k x n) weights."""

    name: str
    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """FLOPs of any one of its three GEMMs (forward, input gradient, weight gradient)."""
        return 2 * self.m * self.n * self.k


@cache
def load_experiments() -> ExperimentFile:
    """`experiments.yaml`, validated. Raises CatalogError."""
    return read_yaml(EXPERIMENTS, ExperimentFile)


def experiment(kind: Kind, model: str, precision: str, iterations: int | None = None) -> Experiment:
    """The experiment of that kind, model and precision, with its own number of timed iterations or the one given.

    Raises CatalogError with the allowed names.
    """
    rows = load_experiments()
    width = lookup("model of te_layers", model, rows.models)
    lookup("precision of te_layers", precision, dict.fromkeys(rows.precisions))
    key = model.replace("-", "_").lower()
    dimensions = load_models()[key]
    timing = width if kind == "layers" else rows.gemms
    return Experiment(
        kind=kind,
        model=key,
        precision=precision,
        dimensions=dimensions,
        layers=width.layers if kind == "layers" else 1,
        sequence=dimensions.sequence,
        micro_batch_size=rows.micro_batch_size,
        seed=rows.seed,
        warmup=timing.warmup,
        iterations=iterations or timing.iterations,
    )


def all_experiments() -> list[Experiment]:
    """Every experiment of `experiments.yaml`, in its order."""
    rows = load_experiments()
    return [experiment(k, m, p) for k in KINDS for m in rows.models for p in rows.precisions]


def gemms(model: Model, tokens: int) -> list[Gemm]:
    """The four linear layers of one transformer layer for `tokens` rows of activations."""
    return [
        Gemm(name="qkv", m=tokens, n=model.qkv_width, k=model.hidden),
        Gemm(name="proj", m=tokens, n=model.hidden, k=model.hidden),
        Gemm(name="fc1", m=tokens, n=model.fc1_width, k=model.hidden),
        Gemm(name="fc2", m=tokens, n=model.hidden, k=model.ffn),
    ]


def memory_need_bytes(which: Experiment) -> int:
    """Device memory to ask for before starting: an estimate from above, not a measurement.

    Weights, gradients and two narrow copies: 6 bytes a weight. Activations kept for the backward pass: about 2 bytes
    for the inputs and outputs of every matrix and their narrow copies, taken twice for temporaries.
    """
    model = which.dimensions
    weights = 6 * which.layers * layer_matrix_parameters(model)
    row = 6 * model.hidden + 2 * model.qkv_width + 2 * model.fc1_width + 2 * model.ffn
    return weights + which.layers * which.tokens * row * 2 * 2
