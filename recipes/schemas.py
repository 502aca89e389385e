"""JSON schemas of every YAML file people edit, generated from the types that read them.

python -m recipes.schemas          # write them
python -m recipes.schemas --check  # exit 1 when one is stale
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pydantic import BaseModel

from recipes.catalog.capability import CapabilityFile
from recipes.catalog.hardware import HardwareFile
from recipes.catalog.models import ModelFile
from recipes.catalog.precisions import PrecisionFile
from recipes.collectives.experiments import ExperimentFile as CollectivesExperimentFile
from recipes.images import ImageFile
from recipes.maxtext.experiment_file import ExperimentFile as MaxtextExperimentFile
from recipes.nemo.experiment_file import ExperimentFile as NemoExperimentFile
from recipes.runs import to_json, write_atomically
from recipes.settings import Settings
from recipes.te_layers.experiments import ExperimentFile

CHECKOUT = Path(__file__).resolve().parents[1]
SCHEMAS: dict[str, type[BaseModel]] = {
    "config/config.schema.json": Settings,
    "recipes/catalog/schemas/models.schema.json": ModelFile,
    "recipes/catalog/schemas/hardware.schema.json": HardwareFile,
    "recipes/catalog/schemas/precisions.schema.json": PrecisionFile,
    "recipes/catalog/schemas/capability.schema.json": CapabilityFile,
    "containers/images.schema.json": ImageFile,
    "recipes/te_layers/experiments.schema.json": ExperimentFile,
    "recipes/collectives/experiments.schema.json": CollectivesExperimentFile,
    "recipes/maxtext/experiments.schema.json": MaxtextExperimentFile,
    "recipes/nemo/experiments.schema.json": NemoExperimentFile,
}


def schema_text(model: type[BaseModel]) -> str:
    """A type's JSON schema as it is stored."""
    return to_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()})


def stale(checkout: Path = CHECKOUT) -> list[str]:
    """Paths of schemas that are missing or differ from what the types give now."""
    return [
        path
        for path, model in SCHEMAS.items()
        if not (checkout / path).is_file() or (checkout / path).read_text(encoding="utf-8") != schema_text(model)
    ]


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m recipes.schemas", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    paths = stale()
    if args.check:
        for path in paths:
            print(f"{path} is stale; run `make schemas`", file=sys.stderr)
        return 1 if paths else 0
    for path in paths:
        write_atomically(CHECKOUT / path, schema_text(SCHEMAS[path]))
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
