"""Commands of the environments' room: `fewbits bundle`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envs.bundle import make_bundle


def register(app: typer.Typer) -> None:
    """Add this room's commands to the front door."""
    app.command("bundle")(bundle)


def bundle(
    stack: Annotated[str, typer.Argument(help="a stack with a lock and a bundle.yaml, e.g. te_layers")],
    out: Annotated[Path, typer.Option(help="folder for the parts, bundle.json and unpack.py")],
    arch: Annotated[
        list[int] | None, typer.Option(help="GPU architecture to keep, e.g. 90 for Hopper; repeatable; default: all")
    ] = None,
    part_mib: Annotated[int, typer.Option(min=1, help="largest part, MiB")] = 1024,
    wheel: Annotated[
        list[Path] | None, typer.Option(help="wheel built on a host before, instead of its source; repeatable")
    ] = None,
) -> None:
    """Pack a stack's locked packages into parts for a GPU host without a network.

    Copy the folder to the host and run `python3 unpack.py --site SITE` there.
    """
    made = make_bundle(stack, out, set(arch or ()), part_mib, tuple(wheel or ()))
    size = sum(part["bytes"] for part in made["parts"]) / 2**20
    typer.echo(f"{out}: {len(made['parts'])} parts, {size:.1f} MiB, {len(made['distributions'])} distributions")
    for spec in made["build"]:
        typer.echo(f"  {spec['name']} will be built on the host")
