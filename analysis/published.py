"""Facts from publications: one row a number, a source on every row, validated when read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from recipes.catalog.models import find_model
from recipes.catalog.precisions import find_precision
from recipes.catalog.reading import CatalogError, Entry


class PublishedRow(Entry):
    """One published number. `verbatim` is `no` for what was derived from other rows (the notes say how)."""

    id: str = Field(pattern=r"^P\d{4}$")
    source_id: str = Field(min_length=1)
    claim_kind: str = Field(min_length=1)
    framework: str
    model: str
    hardware: str
    gpus: str
    recipe: str
    baseline: str
    value: float
    unit: str = Field(min_length=1)
    verbatim: Literal["yes", "no"]
    source_url_or_repo_path: str = Field(min_length=1)
    notes: str

    @field_validator("value")
    @classmethod
    def _finite(cls, value: float) -> float:
        if not 0 < value < 1e12:
            raise ValueError("must be a positive, finite number")
        return value

    @property
    def model_key(self) -> str | None:
        """Our key of the model, or None when the row names no single model we know."""
        return find_model(self.model)

    @property
    def precision_key(self) -> str | None:
        """Our key of the precision, or None when the source says too little."""
        return find_precision(self.recipe)


def read_published(path: Path) -> list[PublishedRow]:
    """All rows of a published CSV. Raises CatalogError naming file, line and field, also for an id used twice."""
    rows: list[PublishedRow] = []
    seen: set[str] = set()
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, fields in enumerate(csv.DictReader(file, strict=True), 2):
                row = PublishedRow.model_validate(fields)
                if row.id in seen:
                    raise CatalogError(f"{path}: line {number}: id {row.id} is used twice")
                seen.add(row.id)
                rows.append(row)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise CatalogError(f"{path}: line {len(rows) + 2}: {where}: {problem['msg']}") from error
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise CatalogError(f"{path}: cannot be read: {error}") from error
    return rows
