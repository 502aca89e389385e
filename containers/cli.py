"""Commands of the containers' room: `fewbits images`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from containers.build import build
from containers.engine import ENGINES, pick
from containers.release import NAMES, build_release
from containers.resolve import resolve
from containers.run import run_inside
from recipes.images import load_images

images = typer.Typer(no_args_is_help=True, help="Container images: what is pinned, pinning one, building and running.")

WORK = Path("build/images")
SMOKE = "smoke"


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
    name: Annotated[
        str, typer.Argument(help=f"smoke (NeMo on CPU, no registry needed), or {', '.join(NAMES)}")
    ] = SMOKE,
    base: Annotated[str, typer.Option(help="base by digest, not the lock's; for smoke there is none")] = "",
    engine: Annotated[str, typer.Option(help=f"{', '.join(ENGINES)}; default: the first that works")] = "",
    environment: Annotated[Path, typer.Option(help="for smoke: NeMo's environment for CPU")] = Path("build/envs/nemo"),
    out: Annotated[Path, typer.Option(help="folder for build contexts and what was built (NAME.json)")] = WORK,
) -> None:
    """Build an image: NVIDIA's of the lock with this project's code, or the smoke image, on a Debian made here."""
    chosen = pick(engine)
    record = build(environment, out, chosen) if name == SMOKE else build_release(name, base, out, chosen)
    typer.echo(f"{record['image']}  {len(record['packages'])} Python packages, by {record['engine_version']}")


@images.command("run", context_settings={"ignore_unknown_options": True})
def run_image(
    command: Annotated[list[str], typer.Argument(help="e.g. python3 -m recipes.nemo.launch llama3_8b-cpu-bf16")],
    image: Annotated[str, typer.Option(help="which that was built")] = SMOKE,
    out: Annotated[Path, typer.Option(help="folder that `build` wrote")] = WORK,
) -> None:
    """Run a command of this checkout in an image that was built; its exit code is ours."""
    raise typer.Exit(run_inside(command, out, image))
