"""What this machine can run, tier by tier, and what it lacks: `fewbits doctor`, or where only a stack's site is:

    PYTHONPATH=/data/nemo_site:. python3 -m recipes.doctor --site nemo=/data/nemo_site

Every experiment is asked what its launcher asks before it starts (gate, versions, imports, memory), in the interpreter
that would run it; nothing is run. Exit codes: 0 something runs here, 2 wrong arguments, 3 nothing runs here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recipes import machine
from recipes.catalog import CatalogError, lookup
from recipes.catalog.reading import read_yaml
from recipes.launching import CHECKOUT, say
from recipes.runs import EXIT_OK, EXIT_UNSUPPORTED, EXIT_USAGE, RunError, to_json
from recipes.settings import Settings
from recipes.tiers import STACKS

SETTINGS = CHECKOUT / "config/config.yaml"
SITES = {
    "nemo": ("nemo", "site"),
    "nemo_25_07": ("nemo", "site_25_07"),
    "maxtext": ("maxtext", "site"),
    "te_layers": ("te_layers", "site"),
}
GIB = 2**30


def examine(settings: Settings, stacks: Sequence[str] = ()) -> dict[str, Any]:
    """`machine` (recipes.machine.describe) and `tiers`, of all stacks or those named. Raises CatalogError."""
    chosen = [lookup("stack", stack, STACKS) for stack in stacks] or list(STACKS.values())
    found = [tier for tiers_of in chosen for tier in tiers_of(settings)]
    return {"machine": machine.describe(Path(settings.runs)), "tiers": [asdict(tier) for tier in found]}


def text(found: dict[str, Any]) -> Iterator[str]:
    """What `examine` found, in lines for people."""
    here = found["machine"]
    yield (
        f"system    {here['system']} on {here['machine']}, {here['libc']}, Python {here['python']},"
        f" {here['cores']} cores"
    )
    yield f"memory    {here['memory_free_bytes'] / GIB:.1f} of {here['memory_total_bytes'] / GIB:.1f} GiB free"
    yield f"disk      {here['disk_free_bytes'] / GIB:.1f} GiB free for {here['runs']}"
    yield f"programs  {' '.join(here['programs'])}"
    for number, gpu in enumerate(here["gpus"]):
        free, total = ((gpu[f"memory_{key}_bytes"] or 0) / GIB for key in ("free", "total"))
        limit = "?" if gpu["power_limit_w"] is None else f"{gpu['power_limit_w']:.0f}"
        yield (
            f"GPU {number}     {gpu['name']}, compute capability {gpu['compute_capability']}, driver {gpu['driver']},"
            f" {free:.1f} of {total:.1f} GiB free, power limit {limit} W"
        )
    if here["no_gpus"]:
        yield f"GPU       {here['no_gpus']}"
    for tier in found["tiers"]:
        yield ""
        name = f"{tier['stack']}, {tier['name'].replace('_', ' ')}"
        if tier["lacking"]:
            yield f"{name}: nothing runs here: {tier['lacking']}"
            continue
        count = len(tier["runs"]) + sum(map(len, tier["refused"].values()))
        yield f"{name}: {len(tier['runs'])} of {count} experiments run here" + (
            f": {tier['command']}" if tier["runs"] else ""
        )
        for why, names in tier["refused"].items():
            yield f"  {len(names)} would be refused ({names[0]}{', ...' if len(names) > 1 else ''}): {why}"


def with_sites(settings: Settings, sites: Sequence[str]) -> Settings:
    """The settings with `STACK=FOLDER` put in. Raises RunError."""
    values = settings.model_dump()
    for one in sites:
        name, _, folder = one.partition("=")
        if name not in SITES or not folder:
            raise RunError(f"--site {one}: must be NAME=FOLDER, NAME one of {', '.join(SITES)}")
        stack, key = SITES[name]
        values[stack][key] = str(Path(folder).absolute())
    return Settings.model_validate(values)


def diagnose(settings_file: Path, sites: Sequence[str], stacks: Sequence[str], as_json: bool) -> int:
    """The whole command: prints, and returns the exit code. Raises CatalogError and RunError."""
    found = examine(with_sites(read_yaml(settings_file, Settings), sites), stacks)
    print(to_json(found), end="") if as_json else print("\n".join(text(found)))
    return EXIT_OK if any(tier["runs"] for tier in found["tiers"]) else EXIT_UNSUPPORTED


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point where `fewbits` is not installed; returns the exit code."""
    parser = argparse.ArgumentParser(prog="doctor", description=(__doc__ or "").split(":")[0])
    parser.add_argument("stack", nargs="*", help=f"of {', '.join(STACKS)} (default: all)")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="default: config/config.yaml")
    parser.add_argument(
        "--site", action="append", default=[], metavar="NAME=FOLDER", help="site unpacked from a bundle"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    args = parser.parse_args(arguments)
    try:
        return diagnose(args.settings, args.site, args.stack, args.json)
    except (CatalogError, RunError) as error:
        say(f"doctor: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
