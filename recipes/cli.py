"""Commands of the recipes' room: `fewbits capability`, `fewbits experiments`, `fewbits doctor`."""

from __future__ import annotations

import fnmatch
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from recipes.catalog import capability, load_hardware, load_precisions, lookup
from recipes.catalog.capability import load_stacks
from recipes.doctor import SETTINGS, SITES, diagnose
from recipes.maxtext.experiments import all_experiments as maxtext_experiments
from recipes.maxtext.experiments import refused as maxtext_refused
from recipes.nemo.experiments import all_experiments, refused
from recipes.tiers import STACKS


def register(app: typer.Typer) -> None:
    """Add this room's commands to the front door."""
    app.command("capability")(show_capability)
    app.command("experiments")(show_experiments)
    app.command("doctor")(doctor)


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


def show_experiments(
    pattern: Annotated[str, typer.Argument(help="shell-style pattern of names, e.g. 'llama3_8b-h200-*'")] = "*",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON list on standard output")] = False,
) -> None:
    """Experiments of NeMo and MaxText: name, GPUs, layout, what is cut, and whether the gate lets it through."""
    rows = [
        {"stack": "nemo", **one.model_dump(mode="json", exclude={"dimensions"}), "refused": refused(one)}
        for name, one in all_experiments().items()
        if fnmatch.fnmatchcase(name, pattern)
    ]
    rows += [
        {"stack": "maxtext", **one.model_dump(mode="json", exclude={"dimensions"}), "refused": maxtext_refused(one)}
        for name, one in maxtext_experiments().items()
        if fnmatch.fnmatchcase(name, pattern)
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    heads = ("stack", "experiment", "GPUs", "TP x PP x CP (VP)", "batch", "cut", "gate")
    table = Table(*(Column(head, no_wrap=True) for head in heads), box=None, title="Experiments")
    for row in rows:
        layout = row["layout"]
        kinds = [kind for kind in ("tensor", "pipeline", "context") if f"{kind}_parallel" in layout]
        parallel = " x ".join(str(layout[f"{kind}_parallel"]) for kind in kinds) or f"FSDP {layout['fsdp']}"
        batch = (
            f"{layout.get('micro_batch_samples') or layout['device_batch_samples']}/{layout['global_batch_samples']}"
        )
        virtual = f" ({layout['virtual_pipeline']})" if layout.get("virtual_pipeline", 1) > 1 else ""
        gate = f"refused: {row['refused']}" if row["refused"] else "emulated" if row.get("emulated") else "runs"
        cut = ", ".join(row["cut"]) if row["tier"] != "cpu" else "tiny"
        table.add_row(row["stack"], row["name"], str(layout["gpus"]), parallel + virtual, batch, cut, gate)
    # a line an experiment, however wide: names are copied from here, and lists are searched with grep
    Console(width=1000).print(table)


def doctor(
    stacks: Annotated[
        list[str] | None, typer.Argument(metavar="[STACK]...", help=f"of {', '.join(STACKS)}; default: all")
    ] = None,
    settings: Annotated[
        Path,
        typer.Option(
            help="settings of the place, e.g. profiles/slurm/settings.yaml", show_default="config/config.yaml"
        ),
    ] = SETTINGS,
    site: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FOLDER", help=f"unpacked bundle of {', '.join(SITES)}; repeatable")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """What this machine is and can run, tier by tier, and what it lacks. Exit code 3: nothing runs here."""
    raise typer.Exit(diagnose(settings, site or [], stacks or [], as_json))
