"""Functions that the rules of every stack share. Rule files hold rules only."""

from __future__ import annotations

import json
import os
import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from snakemake.exceptions import WorkflowError

from recipes.launching import CHECKOUT, commit_told
from recipes.runs import find_runs, is_complete, to_json, utc_now, write_atomically

HOLDER = Path("build/running.json")
MAXTEXT_PYTHON = "3.12"


def require_gpus(
    config: Mapping[str, Any], stack: str, count: int | Callable[[Any], int]
) -> Callable[[Any], list[str]]:
    """An input function that asks for no file, and stops the workflow where fewer GPUs are lent to it than needed.

    `count` is a number, or a function from wildcards to it.
    """

    def check(wildcards: Any) -> list[str]:
        needed = count if isinstance(count, int) else count(wildcards)
        if config["gpus"] < needed:
            more = f" --config gpus={needed} --resources gpu={needed}" if needed > 1 else ""
            raise WorkflowError(
                f"{stack} needs {needed} NVIDIA GPU{'s' * (needed > 1)}: add `--workflow-profile profiles/gpu{more}` on"
                " a GPU host; elsewhere `snakemake reproduce_all` uses the published results"
            )
        return []

    return check


def slurm_place(config: Mapping[str, Any], image: str = "image") -> str:
    """Arguments of a stack's `submit` for the cluster in the settings, quoted for a shell. Raises WorkflowError.

    `image`: which setting names the stack's container.
    """
    slurm = config["slurm"]
    lost = [key for key in ("account", "partition", "home") if not slurm[key]]
    if lost:
        raise WorkflowError(
            f"full recipes go to a Slurm cluster: set {', '.join(f'slurm.{key}' for key in lost)} in"
            " profiles/slurm/settings.yaml and add `--workflow-profile profiles/slurm`"
        )
    chosen = {key: slurm[key] for key in ("account", "partition", "home", "gres", "time_limit") if slurm[key]}
    chosen |= {"image": slurm[image]} if slurm[image] else {}
    words = [word for key, value in chosen.items() for word in (f"--{key.replace('_', '-')}", value)]
    return shlex.join([*words, *(word for mount in slurm["mounts"] for word in ("--mount", mount))])


def sealed_runs(config: Mapping[str, Any]) -> list[str]:
    """Every sealed run folder where run folders go, sorted."""
    return [str(folder) for folder in find_runs(Path(config["runs"])) if is_complete(folder)]


def require_apptainer(config: Mapping[str, Any], deployment: Any) -> None:
    """Stop where an image is set and Snakemake would not run in it: it ignores `container:` without a word.

    `deployment` is the workflow's DeploymentSettings. Jobs are told the commit, since an image may lack git. Raises
    WorkflowError.
    """
    images = [f"{stack}.{key}" for stack in ("nemo", "maxtext") for key in config[stack] if key.startswith("container")]
    asked = [name for name in images if config[name.split(".")[0]][name.split(".")[1]]]
    if not asked:
        return
    if "apptainer" not in [method.name.lower() for method in deployment.deployment_method]:
        raise WorkflowError(
            f"{asked[0]} names an image, which Snakemake ignores without `--sdm apptainer`: add that, or leave the"
            " setting empty"
        )
    os.environ["FEWBITS_COMMIT"] = commit_told(CHECKOUT)


def checkpoint_every(config: Mapping[str, Any], steps: int) -> int:
    """Steps after which a run of `steps` saves a checkpoint: its last, where they are kept; 0: never."""
    return steps if "checkpoint" in config["keep"] else 0


def interpreter(version: str) -> tuple[str, str]:
    """An interpreter of a Python version and "", or "" and why there is none (envs/python.sh)."""
    done = subprocess.run(["sh", "envs/python.sh", version], capture_output=True, text=True)
    return done.stdout.strip(), done.stderr.strip()


def cpu_tier(config: Mapping[str, Any]) -> list[str]:
    """Stacks whose recipes this machine trains on CPU: the settings', where locks and interpreters fit the machine."""
    wanted = list(config["cpu_tier"])
    if wanted and (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print(f"cpu_tier {wanted}: left out, its locks are for Linux on x86_64", file=sys.stderr)
        return []
    if "maxtext" in wanted:
        found, why = interpreter(MAXTEXT_PYTHON)
        if not found:
            print(f"cpu_tier: maxtext is left out: {why}", file=sys.stderr)
            wanted.remove("maxtext")
    return wanted


def announce() -> None:
    """Say who works in this folder from now on, for whoever comes second and meets Snakemake's lock."""
    write_atomically(HOLDER, to_json({"pid": os.getpid(), "host": socket.gethostname(), "since": utc_now()}))


def withdraw() -> None:
    """The work is over."""
    HOLDER.unlink(missing_ok=True)


def name_holder() -> None:
    """Where another Snakemake works in this folder, say which process it is; its own jobs stay silent."""
    try:
        holder = json.loads(HOLDER.read_text(encoding="utf-8"))
        own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
        here = holder["host"] == socket.gethostname()
        alive = psutil.pid_exists(holder["pid"]) if here else True
    except (OSError, ValueError, KeyError, TypeError, psutil.Error):
        return
    if alive and not (here and holder["pid"] in own):
        print(
            f"another Snakemake works in this folder: process {holder['pid']} on {holder['host']} since"
            f" {holder['since']}; wait for it, or stop it and run `snakemake --unlock`",
            file=sys.stderr,
        )
