"""Commands of the recipes' room: `fewbits capability`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from recipes.catalog import capability, load_hardware, load_precisions, lookup
from recipes.catalog.capability import load_stacks


def register(app: typer.Typer) -> None:
    """Add this room's commands to the front door."""
    app.command("capability")(show_capability)


def show_capability(
    hardware: Annotated[str, typer.Argument(help="a GPU of the catalog, or cpu")] = "h200_sxm",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON list on standard output")] = False,
) -> None:
    """What runs natively, emulated or not at all on one GPU, by stack, release and precision, with the reason."""
    compute = None
    if hardware.lower() != "cpu":
        compute = lookup("hardware (or cpu)", hardware, load_hardware()).compute_capability
    rows = [
        {"stack": stack, "release": release, "precision": key, **capability(key, compute, stack, release).model_dump()}
        for stack, releases in load_stacks().items()
        for release in releases
        for key in load_precisions()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("stack", "release", "precision", "status", "reason", title=f"What runs on {hardware}")
    for row in rows:
        table.add_row(*(row[column] for column in ("stack", "release", "precision", "status", "reason")))
    Console().print(table)
