"""Training precisions by their field names, and what each framework calls them."""

from __future__ import annotations

from functools import cache

from recipes.catalog.hardware import PeakFormat
from recipes.catalog.reading import CATALOG, Entry, read_yaml


class Precision(Entry):
    """One training precision: formats, scaling, and its name in each framework (None: the framework has none)."""

    name: str
    peak_format: PeakFormat
    formats: str
    scaling: str
    nemo: str | None
    maxtext: str | None
    transformer_engine: str | None
    published_as: tuple[str, ...] = ()
    source: str


class PrecisionFile(Entry):
    """`precisions.yaml`."""

    precisions: dict[str, Precision]


@cache
def load_precisions() -> dict[str, Precision]:
    """All precisions by key, in the order tables show them. Raises CatalogError."""
    return read_yaml(CATALOG / "precisions.yaml", PrecisionFile).precisions


def find_precision(published: str) -> str | None:
    """The key of a precision by key or by the name a publication uses, or None when it says too little."""
    for key, precision in load_precisions().items():
        if published == key or published in precision.published_as:
            return key
    return None
