"""Where NeMo's rules run by the settings: the image, the interpreter, the sites, each by the experiment's release."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from recipes.images import container_of
from recipes.nemo.experiment_file import load_experiments
from recipes.nemo.experiments import MAIN_RELEASE, experiment


def image_of(settings: Mapping[str, Any], name: str) -> str | None:
    """The image of an experiment's release for `container:`, or None. `settings`: `nemo` of the configuration."""
    release = experiment(name).release
    key = "container" if release == MAIN_RELEASE else "container_25_07"
    return container_of(settings[key], load_experiments().releases[release].image)


def site_of(settings: Mapping[str, Any], name: str) -> str:
    """What goes first on PYTHONPATH; 25.07's own packages lie over 25.04's site."""
    newer = settings["site_25_07"] if experiment(name).release != MAIN_RELEASE else ""
    return os.pathsep.join(filter(None, (newer, settings["site"])))
