"""Every stack's experiments by the kind of place they need, each asked whether it would start on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from recipes import machine
from recipes.catalog import CatalogError
from recipes.host import probe_apart
from recipes.images import pinned
from recipes.launching import CHECKOUT, ask_gate
from recipes.maxtext import environment as maxtext_environment
from recipes.maxtext import experiments as maxtext
from recipes.maxtext.host import ENVIRONMENT as MAXTEXT_PROBING
from recipes.maxtext.host import library_path
from recipes.nemo import experiments as nemo
from recipes.nemo.experiment_file import load_experiments as nemo_rows
from recipes.nemo.launch import check_host as nemo_check_host
from recipes.nemo.place import site_of
from recipes.runs import RunError
from recipes.settings import Settings
from recipes.te_layers import experiments as te_layers
from recipes.te_layers.launch import check_host as te_layers_check_host

GPU_TIERS = ("one_gpu", "one_host")
ON_GPUS, ON_SLURM = "--workflow-profile profiles/gpu", "--workflow-profile profiles/slurm"
Check = Callable[[Any, dict[str, Any]], None]


@dataclass(frozen=True)
class Environment:
    """An interpreter, and folders put first on its PYTHONPATH. `module` reads the host; `made_by` makes it."""

    python: str
    sites: tuple[str, ...] = ()
    module: str = "recipes.host"
    made_by: str = ""


@dataclass
class Tier:
    """A stack's experiments on one kind of place: those that would start here, and why the others would not."""

    stack: str
    name: str
    command: str
    runs: list[str] = field(default_factory=list)
    refused: dict[str, list[str]] = field(default_factory=dict)
    lacking: str = ""


@cache
def probed(environment: Environment) -> dict[str, Any]:
    """What the stack's own interpreter sees. Raises RunError."""
    python = shutil.which(environment.python)
    if python is None:
        hint = f"; `{environment.made_by}` builds it" if environment.made_by else ""
        raise RunError(f"no {environment.python} here{hint}")
    for site in environment.sites:
        if not Path(site).is_dir():
            raise RunError(f"{site}: no such folder; unpack the bundle there (docs/gpu_host.md)")
    path = [*environment.sites, str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])]
    more = {"PYTHONPATH": os.pathsep.join(path)}
    if environment.module != "recipes.host":
        more |= {**MAXTEXT_PROBING, "LD_LIBRARY_PATH": library_path([*environment.sites, *sys.path])}
    return probe_apart(environment.module, more, python)


def gate(precision: str, host: dict[str, Any], stack: str, release: str, emulated: bool = True) -> None:
    """Raises RunError where the capability gate refuses. `emulated`: the experiment takes emulation."""
    answer = ask_gate(precision, host, stack, release)
    if answer.status == "unsupported":
        raise RunError(f"{precision} unsupported: {answer.reason}")
    if answer.status == "emulated" and not emulated:
        raise RunError(f"{precision} is not native here, and emulation was not asked for")


def check_nemo(which: nemo.Experiment, host: dict[str, Any]) -> None:
    """As recipes.nemo.launch asks. Raises RunError."""
    gate(which.precision, host, nemo.STACK, which.release)
    nemo_check_host(which, host | {"gpus": min(host["gpus"], which.layout.gpus)})


def check_maxtext(which: maxtext.Experiment, host: dict[str, Any]) -> None:
    """As recipes.maxtext.launch asks. Raises RunError."""
    gate(which.precision, host, maxtext.STACK, which.release, which.emulated)
    maxtext_environment.check_host(which, host | {"gpus": min(host["gpus"], which.layout.gpus)})


def check_te_layers(which: te_layers.Experiment, host: dict[str, Any]) -> None:
    """As recipes.te_layers.launch asks. Raises RunError."""
    rows = te_layers.load_experiments()
    gate(which.precision, host, te_layers.STACK, rows.release)
    te_layers_check_host(host | {"gpus": min(host["gpus"], rows.gpus)}, rows, te_layers.memory_need_bytes(which))


def judged(tier: Tier, environment: Environment, experiments: Sequence[Any], check: Check) -> Tier:
    """The tier with every experiment judged."""
    try:
        host = probed(environment)
    except RunError as error:
        tier.lacking = str(error)
        return tier
    if tier.name == "cpu":
        host = {"gpus": 0, "versions": host["versions"]}
    elif not host["gpus"]:
        seen = len(machine.gpus()[0])
        tier.lacking = f"{environment.python} sees no GPU"
        if seen:
            tier.lacking += f", the driver {seen}: its torch or JAX is not for CUDA, or for a newer driver's"
        return tier
    for which in experiments:
        try:
            check(which, host)
        except RunError as error:
            tier.refused.setdefault(str(error).replace(which.name, "it"), []).append(which.name)
        else:
            tier.runs.append(which.name)
    return tier


def cluster(stack: str, settings: Settings, image: str, known: Callable[[Sequence[str]], list[str]]) -> Tier:
    """What could be sent to Slurm from here. Compute nodes are asked by the jobs themselves."""
    tier = Tier(stack, "cluster", f"snakemake {stack}_cluster {ON_SLURM}")
    slurm = settings.slurm
    try:
        if shutil.which("sbatch") is None:
            raise RunError("no sbatch here: full recipes are sent from a Slurm cluster's login node")
        lost = [f"slurm.{key}" for key in ("account", "partition", "home", "hardware") if not getattr(slurm, key)]
        if lost:
            raise RunError(
                f"{', '.join(lost)} not set: fill in profiles/slurm/settings.yaml, and give it as --settings"
            )
        if not (slurm.maxtext_image if stack == maxtext.STACK else slurm.image):
            pinned(image)
        tier.runs = known(slurm.hardware)
    except (CatalogError, RunError) as error:
        tier.lacking = str(error)
    return tier


def of_nemo(settings: Settings) -> Iterator[Tier]:
    """NeMo's tiers; the newer release's experiments run in an environment of their own."""
    made = list(nemo.all_experiments().values())
    built = Environment(str(CHECKOUT / "build/envs/nemo/bin/python"), made_by="snakemake nemo_environment")
    yield judged(
        Tier("nemo", "cpu", "snakemake nemo_cpu"), built, [one for one in made if one.tier == "cpu"], check_nemo
    )
    for name, target in zip(GPU_TIERS, ("nemo_gpu", "nemo_host"), strict=True):
        for release in nemo_rows().releases:
            chosen = [one for one in made if one.tier == name and one.release == release]
            if chosen:
                sites = site_of(settings.nemo.model_dump(), chosen[0].name).split(os.pathsep)
                where = Environment(settings.nemo.python, tuple(filter(None, sites)))
                yield judged(Tier(f"nemo {release}", name, f"snakemake {target} {ON_GPUS}"), where, chosen, check_nemo)
    yield cluster("nemo", settings, nemo_rows().releases[nemo.MAIN_RELEASE].image, nemo.cluster_experiments)


def of_maxtext(settings: Settings) -> Iterator[Tier]:
    """MaxText's tiers."""
    made = list(maxtext.all_experiments().values())
    built = Environment(str(CHECKOUT / "build/envs/maxtext/bin/python"), made_by="snakemake maxtext_environment")
    alone = [one for one in made if one.tier == "cpu" and not one.gpus_per_node]
    yield judged(Tier("maxtext", "cpu", "snakemake maxtext_cpu"), built, alone, check_maxtext)
    where = Environment(settings.maxtext.python, tuple(filter(None, [settings.maxtext.site])), "recipes.maxtext.host")
    for name, target in zip(GPU_TIERS, ("maxtext_gpu", "maxtext_host"), strict=True):
        chosen = [one for one in made if one.tier == name]
        yield judged(Tier("maxtext", name, f"snakemake {target} {ON_GPUS}"), where, chosen, check_maxtext)
    yield cluster("maxtext", settings, maxtext.STACK, maxtext.cluster_experiments)


def of_te_layers(settings: Settings) -> Iterator[Tier]:
    """The one tier of te_layers."""
    where = Environment(settings.te_layers.python, tuple(filter(None, [settings.te_layers.site])))
    tier = Tier("te_layers", "one_gpu", f"snakemake smoke {ON_GPUS}")
    yield judged(tier, where, te_layers.all_experiments(), check_te_layers)


STACKS = {"te_layers": of_te_layers, "nemo": of_nemo, "maxtext": of_maxtext}
