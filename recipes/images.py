"""Container images by name, each pinned by a digest that was read somewhere; `containers/images.lock.yaml` as types."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import Field, model_validator

from recipes.catalog import lookup
from recipes.catalog.reading import Entry, read_yaml
from recipes.launching import CHECKOUT
from recipes.runs import RunError

LOCK = CHECKOUT / "containers/images.lock.yaml"
PINNED = "pinned"  # as a setting: what the lock names
DIGEST = r"sha256:[0-9a-f]{64}"


class Image(Entry):
    """An image in a registry."""

    reference: str = Field(description="registry and name, without tag")
    tag: str
    digest: str = Field(pattern=rf"^({DIGEST})?$", description="empty: not resolved")
    obtained: str = Field(description="from where and when the digest is")

    @model_validator(mode="after")
    def _says_from_where(self) -> Image:
        if bool(self.digest) != bool(self.obtained):
            raise ValueError("a digest says where it was read (obtained), and nothing else does")
        return self


class ImageFile(Entry):
    """`containers/images.lock.yaml`."""

    images: dict[str, Image]


@cache
def load_images() -> dict[str, Image]:
    """All images by name. Raises CatalogError."""
    return read_yaml(LOCK, ImageFile).images


def pinned(name: str) -> str:
    """`reference@digest` of an image. Raises CatalogError for an unknown name, RunError where it is not resolved."""
    image = lookup("image", name, load_images())
    if not image.digest:
        tag = "" if image.tag else " --tag TAG"
        raise RunError(
            f"image {name} ({image.reference}) is not resolved: run `fewbits images resolve {name}{tag}` where its"
            " registry can be reached, or name an imported one by its path"
        )
    return f"{image.reference}@{image.digest}"


def check_pinned(image: str) -> None:
    """Refuse an image that a tag names: it may be another one tomorrow. Raises RunError."""
    if not image.startswith("/") and "sha256:" not in image:
        raise RunError(
            f"image {image}: a tag can be moved; name it by digest (...@sha256:...), or give the absolute path of an"
            " imported one"
        )


def container_of(setting: str, name: str) -> str | None:
    """What a rule's `container:` says: the image of a setting, `name` that of the lock; None where no image is set.

    Raises RunError for an image that a tag names, that was never resolved, or that is not there.
    """
    if not setting:
        return None
    if setting == PINNED:
        return f"docker://{pinned(name)}"
    check_pinned(setting)
    if setting.startswith("/") and not Path(setting).exists():
        raise RunError(f"image {setting}: not there; import it first (apptainer build)")
    return setting


def image_named(image: str | None) -> str:
    """An image as run.json names it, whichever program starts it; empty for none."""
    return (image or "").removeprefix("docker://")
