"""What an experiment of every training stack says alike, and what `analysis` reads from its run.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from recipes.catalog import Model, load_models
from recipes.catalog.reading import Entry


class TrainingExperiment(Entry):
    """Fields that stacks share. Each adds its `tier` and its `layout`, with `gpus` and `global_batch_samples`."""

    name: str
    model: str
    hardware: str = Field(description="the catalog's key, or `cpu`")
    precision: str
    release: str
    dimensions: Model
    cut: tuple[str, ...] = Field(default=(), description="what is smaller than in the model, for every label")
    steps: int = Field(gt=0)
    seed: int
    baseline: str | None = Field(default=None, description="the experiment that it is compared with")


def reduced(model: str, changes: Mapping[str, int], words: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A model's key, its dimensions after `changes`, and what they cut; `words` for those that are said otherwise."""
    full = load_models()[model]
    said = {key: f"{key} {value} of {getattr(full, key)}" for key, value in changes.items()} | dict(words or {})
    return {"model": model, "dimensions": full.model_copy(update=dict(changes)), "cut": tuple(said.values())}


VOCABULARY_UNIT = 128  # megatron-core pads a vocabulary to multiples of it, for each tensor-parallel rank


def scaled_dimensions(model: Model, layers: int) -> dict[str, int]:
    """Layers cut, and the vocabulary like them, so that embedding, head and loss weigh as in the whole model."""
    vocabulary = round(model.vocabulary * layers / model.layers / VOCABULARY_UNIT) * VOCABULARY_UNIT
    return {"layers": layers, "vocabulary": vocabulary}


def cut_model(model: str, changes: Mapping[str, int]) -> dict[str, Any]:
    """The model, its dimensions after `changes`, and what they cut, layers in their own words."""
    words = {"layers": f"{changes['layers']} of {load_models()[model].layers} layers"} if "layers" in changes else {}
    return reduced(model, changes, words)
