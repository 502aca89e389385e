"""Reading the catalog's YAML files: safe loading, validation, and errors that name file, path and what is allowed.

Everything of ours that reads YAML goes through `read_yaml`, so that a mistyped key gets the same answer everywhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

T = TypeVar("T", bound=BaseModel)
V = TypeVar("V")

CATALOG = Path(__file__).parent


class CatalogError(ValueError):
    """A file of facts or settings is wrong; the message is one line: file, path, problem, what is allowed."""


class Entry(BaseModel):
    """Base of everything read from YAML: unknown keys are errors, values never change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# libyaml where PyYAML was built with it: ten times as fast
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_SafeLoader):  # type: ignore[misc]
    """SafeLoader that refuses a key given twice (YAML would silently keep the last)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            if isinstance(key, str | int):
                seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def read_yaml(path: Path, schema: type[T]) -> T:
    """The content of a YAML file as `schema`.

    Raises CatalogError (one line) when the file is absent, is not YAML, or does not fit.
    """
    try:
        # SafeLoader's subclass: no tag of the file can construct anything but plain data
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeyLoader)  # noqa: S506
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        raise CatalogError(_explain(path, schema, error)) from error


def _explain(path: Path, schema: type[BaseModel], error: ValidationError) -> str:
    parts = []
    for problem in error.errors():
        where = ".".join(str(step) for step in problem["loc"]) or "(top level)"
        text = problem["msg"]
        if problem["type"] == "extra_forbidden":
            allowed = _fields_at(schema, problem["loc"][:-1])
            text = "unknown key" + (f"; allowed: {', '.join(allowed)}" if allowed else "")
        parts.append(f"{where}: {text}")
    return f"{path}: " + "; ".join(parts)


def _fields_at(schema: Any, loc: tuple[Any, ...]) -> list[str]:
    """Field names of the model at `loc` inside `schema`, as far as annotations tell; for messages only."""
    for step in loc:
        field = getattr(schema, "model_fields", {}).get(step)
        annotation = field.annotation if field else schema
        inner = [a for a in getattr(annotation, "__args__", ()) if hasattr(a, "model_fields")]
        schema = inner[-1] if inner else annotation
    return sorted(getattr(schema, "model_fields", {}))


def lookup(kind: str, name: str, known: Mapping[str, V]) -> V:
    """`known[name]`, where `-` and `_` are the same; a wrong name is told its nearest misses and all allowed ones."""
    if name in known:
        return known[name]
    key = name.replace("-", "_").lower()
    if key in known:
        return known[key]
    near = difflib.get_close_matches(key, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise CatalogError(f"unknown {kind} {name!r}{hint}; allowed: {', '.join(sorted(known))}")
