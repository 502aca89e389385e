"""Container images by name, each pinned by a digest that was read somewhere; `containers/images.lock.yaml` as types."""

from __future__ import annotations

from functools import cache

from pydantic import Field, model_validator

from recipes.catalog import lookup
from recipes.catalog.reading import Entry, read_yaml
from recipes.launching import CHECKOUT
from recipes.runs import RunError

LOCK = CHECKOUT / "containers/images.lock.yaml"
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
            " registry can be reached, or give --image the path of an imported one"
        )
    return f"{image.reference}@{image.digest}"


def check_pinned(image: str) -> None:
    """Refuse an image that a tag names: it may be another one tomorrow. Raises RunError."""
    if not image.startswith("/") and "sha256:" not in image:
        raise RunError(
            f"--image {image}: a tag can be moved; name the image by digest (...@sha256:...), or give the absolute path"
            " of an imported one"
        )
