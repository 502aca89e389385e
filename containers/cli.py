"""Commands of the containers' room: `fewbits images`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from containers.build import build
from containers.resolve import resolve
from containers.run import run_inside
from recipes.images import load_images

images = typer.Typer(
    no_args_is_help=True, help="Container images: what is pinned, pinning one, building and running the smoke image."
)

WORK = Path("build/images")


def register(app: typer.Typer) -> None:
    """Add this room's commands to the front door."""
    app.add_typer(images, name="images")


@images.command("list")
def list_images() -> None:
    """Every image with its digest, or that it has none."""
    for name, image in load_images().items():
        where = f"{image.reference}:{image.tag or '(no tag yet)'}"
        typer.echo(f"{name}  {where}  {image.digest or 'not resolved'}")


@images.command("resolve")
def resolve_image(
    name: Annotated[str, typer.Argument(help="a name of containers/images.lock.yaml, e.g. nemo")],
    tag: Annotated[str, typer.Option(help="another tag than the lock's")] = "",
) -> None:
    """Read the digest from the image's registry (skopeo) and write it into containers/images.lock.yaml."""
    typer.echo(f"{name}  {resolve(name, tag)}")


@images.command("build")
def build_image(
    environment: Annotated[Path, typer.Option(help="NeMo's environment for CPU")] = Path("build/envs/nemo"),
    out: Annotated[Path, typer.Option(help="folder for the base, the build context and smoke.json")] = WORK,
) -> None:
    """Build the smoke image (NeMo on CPU) without a registry: mmdebstrap and buildah, as root."""
    record = build(environment, out)
    typer.echo(f"{record['image']}  {len(record['packages'])} packages on Debian {record['base']['digest']}")


@images.command("run", context_settings={"ignore_unknown_options": True})
def run_image(
    command: Annotated[list[str], typer.Argument(help="e.g. python3 -m recipes.nemo.launch llama3_8b-cpu-bf16")],
    out: Annotated[Path, typer.Option(help="folder that `build` wrote")] = WORK,
) -> None:
    """Run a command of this checkout in the smoke image; its exit code is ours."""
    raise typer.Exit(run_inside(command, out))
