"""Build one exhibit: `python -m analysis.exhibits layer_speedup`. What each DVC stage runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from analysis.exhibits import EXHIBITS, FROM_TABLES
from analysis.exhibits.exhibit import write
from recipes.catalog import CatalogError


def main() -> int:
    """Command line; returns the exit code: 0 written, 2 unusable input."""
    parser = argparse.ArgumentParser(prog="python -m analysis.exhibits", description=__doc__)
    parser.add_argument("name", choices=EXHIBITS)
    parser.add_argument("--raw", type=Path, default=Path("results/raw"))
    parser.add_argument("--published", type=Path, default=Path("results/published/published.csv"))
    parser.add_argument("--out", type=Path, default=Path("results/exhibits"))
    args = parser.parse_args()
    try:
        build = importlib.import_module(f"analysis.exhibits.{args.name}").build
        exhibit = build(args.out) if args.name in FROM_TABLES else build(args.raw, args.published)
    except CatalogError as error:
        print(f"{args.name}: {error}", file=sys.stderr)
        return 2
    for path in write(exhibit, args.out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
