"""Commands of the containers' room: `fewbits images`."""

from __future__ import annotations

from typing import Annotated

import typer

from containers.resolve import resolve
from recipes.images import load_images

images = typer.Typer(no_args_is_help=True, help="Container images: what is pinned, and pinning one.")


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
