"""The ground floor: models, GPUs, precisions, and what runs where. Imports nothing of ours."""

from recipes.catalog.capability import Capability, Status, capability
from recipes.catalog.hardware import GpuName, Hardware, find_gpu, load_hardware
from recipes.catalog.models import Model, flops_per_token, load_models, parameters
from recipes.catalog.precisions import Precision, load_precisions
from recipes.catalog.reading import CatalogError, lookup

__all__ = [
    "Capability",
    "CatalogError",
    "GpuName",
    "Hardware",
    "Model",
    "Precision",
    "Status",
    "capability",
    "find_gpu",
    "flops_per_token",
    "load_hardware",
    "load_models",
    "load_precisions",
    "lookup",
    "parameters",
]
