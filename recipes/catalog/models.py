"""Models by their dimensions, with parameter counts and FLOPs in closed form.

Every other room takes sizes from here; a model is added by one entry in `models.yaml`.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import Field, model_validator

from recipes.catalog.reading import CATALOG, Entry, read_yaml

Attention = Literal["full", "causal"]


class Model(Entry):
    """Dimensions of a decoder-only transformer.

    `nominal_parameters` is what its authors state; `parameters(model)` must be within 1 % of it.
    """

    name: str
    family: Literal["llama", "nemotron"]
    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    ffn: int = Field(gt=0, description="inner width of the feed-forward block")
    heads: int = Field(gt=0)
    kv_groups: int = Field(gt=0, description="key/value heads (grouped-query attention)")
    vocabulary: int = Field(gt=0)
    activation: Literal["swiglu", "squared_relu"]
    norm: Literal["rmsnorm", "layernorm"]
    rotary_fraction: float = Field(gt=0, le=1, description="share of each head that is rotated")
    tied_embeddings: bool
    sequence: int = Field(gt=0, description="training sequence length, tokens")
    nominal_parameters: float | None = Field(default=None, gt=0)
    aliases: tuple[str, ...] = ()
    source: str

    @model_validator(mode="after")
    def _heads_divide(self) -> Model:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.heads % self.kv_groups:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_groups {self.kv_groups}")
        return self

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden // self.heads

    @property
    def qkv_width(self) -> int:
        """Output width of the fused query/key/value projection."""
        return self.hidden + 2 * self.kv_groups * self.head_dim

    @property
    def fc1_width(self) -> int:
        """Output width of the first feed-forward GEMM (gate and up together for SwiGLU)."""
        return self.ffn * (2 if self.activation == "swiglu" else 1)


class ModelFile(Entry):
    """`models.yaml`."""

    models: dict[str, Model]


@cache
def load_models() -> dict[str, Model]:
    """All models by key. Raises CatalogError."""
    return read_yaml(CATALOG / "models.yaml", ModelFile).models


def find_model(name: str) -> str | None:
    """The key of a model by key or alias (as publications spell it), or None."""
    key = name.replace("-", "_").lower()
    for known, model in load_models().items():
        if key == known or name.lower() in model.aliases:
            return known
    return None


def layer_matrix_parameters(model: Model) -> int:
    """Weights of one layer's four matrices (QKV, attention output, FC1, FC2); no biases, no norms."""
    attention = model.hidden * model.qkv_width + model.hidden * model.hidden
    return attention + model.hidden * model.fc1_width + model.ffn * model.hidden


def parameters(model: Model) -> int:
    """Parameter count: matrices, norms (LayerNorm has weight and bias), embedding and head (once if tied)."""
    per_norm = model.hidden * (2 if model.norm == "layernorm" else 1)
    layer = layer_matrix_parameters(model) + 2 * per_norm
    tables = model.vocabulary * model.hidden * (1 if model.tied_embeddings else 2)
    return model.layers * layer + per_norm + tables


def layer_flops_per_token(model: Model, sequence: int, attention: Attention) -> float:
    """FLOPs of one layer, forward and backward, per token: 6 per weight, plus attention.

    Attention is 12 x hidden x sequence when all scores are counted (`full`: NeMo's pages up to 25.07, MaxText before
    July 2025) and half of that when the masked half is left out (`causal`: Megatron-Bridge, later MaxText).
    """
    scores = 12 * model.hidden * sequence
    return 6 * layer_matrix_parameters(model) + (scores if attention == "full" else scores / 2)


def flops_per_token(model: Model, sequence: int | None = None, attention: Attention = "causal") -> float:
    """FLOPs of a training step per token: all layers and the output head; the embedding look-up counts nothing."""
    length = model.sequence if sequence is None else sequence
    return model.layers * layer_flops_per_token(model, length, attention) + 6 * model.vocabulary * model.hidden
