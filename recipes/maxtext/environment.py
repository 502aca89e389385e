"""The environment of the process that trains, and what has to be true of a host before it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from recipes.catalog import parameters
from recipes.launching import NO_MULTICAST, is_hardware, python_path
from recipes.maxtext.emulation import ENVIRONMENT as EMULATION
from recipes.maxtext.experiment_file import load_experiments
from recipes.maxtext.experiments import Experiment
from recipes.maxtext.host import library_path
from recipes.runs import RunError

LOCK, GPU_LOCK = "envs/maxtext/requirements.lock", "envs/maxtext_gpu/requirements.lock"
ENVIRONMENT = {
    "DECOUPLE_GCLOUD": "TRUE",  # no Google Cloud, no TensorBoard
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
    "TF_CPP_MIN_LOG_LEVEL": "1",  # XLA's remarks name folders of this machine
}
# LLVM with little optimization compiles NVFP4's step in 22 s instead of 90; a tiny step then takes 0.07 s
ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "XLA_FLAGS": "--xla_backend_optimization_level=1"}
# Bytes a parameter: FP32 weight, gradient and two moments, all spread by FSDP.
BYTES_SHARED = 16
PARTS = "transformer_engine"  # it and its core and extension say their versions apart


def xla_flags(which: Experiment) -> str:
    """XLA_FLAGS of an experiment."""
    plain = {name: str(value).lower() if isinstance(value, bool) else value for name, value in which.xla_flags.items()}
    return " ".join(f"--{name}={value}" for name, value in plain.items())


def rank_environment(which: Experiment) -> dict[str, str]:
    """The environment of a process that trains. XLA_FLAGS of the caller count for nothing: they decide the result."""
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": python_path()}
    environment.pop("XLA_FLAGS", None)
    if which.emulated:
        environment |= EMULATION
    if which.tier == "cpu":
        return environment | ON_CPU
    environment |= {name: str(value) for name, value in which.variables.items()}
    environment |= {"XLA_FLAGS": xla_flags(which), "LD_LIBRARY_PATH": library_path()}
    return environment | (NO_MULTICAST if which.tier == "one_host" else {})


def check_release(versions: Mapping[str, str], name: str = "this", lock: str = GPU_LOCK) -> None:
    """Refuse another MaxText than the experiments'. `versions`: recipes.host.versions. Raises RunError."""
    wanted = load_experiments().maxtext
    if "maxtext" not in versions:
        raise RunError("maxtext is not installed; `make reproduce_all` builds its environment (docs/maxtext.md)")
    if versions["maxtext"] != wanted:
        raise RunError(f"maxtext {versions['maxtext']} found, {name} is for {wanted}; install {lock} anew")


def check_host(which: Experiment, host: dict[str, Any], slurm: bool = False) -> None:
    """Refuse a host that cannot run the experiment, before anything is written. Raises RunError.

    `slurm`: this is one node of a job, which Slurm has started a task a GPU on.
    """
    check_release(host["versions"], which.name, LOCK if which.tier == "cpu" else GPU_LOCK)
    tasks = int(os.environ.get("SLURM_NTASKS", "1")) if slurm else which.layout.gpus
    if tasks != which.layout.gpus:
        raise RunError(f"{which.name} has {which.layout.gpus} ranks, Slurm started {tasks} tasks; submit it anew")
    if which.gpus_per_node and not slurm:
        raise RunError(f"{which.name} goes to a cluster: python -m recipes.maxtext.submit")
    if which.tier == "cpu":
        return
    here = which.gpus_per_node or which.layout.gpus
    if host["gpus"] != here:
        raise RunError(
            f"{which.name} runs on {here} GPUs of a host with FSDP {which.layout.fsdp}, {host['gpus']} are visible to"
            " JAX; set CUDA_VISIBLE_DEVICES, or choose an experiment of your number (fewbits experiments)"
        )
    if which.tier == "cluster" and not is_hardware(which.hardware, host):
        raise RunError(
            f"{which.name} is for {which.hardware}, this is {host['gpu_name']}; choose the experiment of your"
            " hardware, or another partition"
        )
    if which.quantization.startswith("te_") and not which.emulated:
        check_transformer_engine(which, host)
    need = parameters(which.dimensions) * BYTES_SHARED // which.layout.fsdp
    if host.get("memory_free_bytes", need) < need:
        raise RunError(
            f"{host['memory_free_bytes'] / 2**30:.1f} GiB of device memory free, weights, gradients and optimizer alone"
            f" need {need / 2**30:.1f} GiB; stop what else uses the GPU, or choose a smaller experiment"
        )


def check_transformer_engine(which: Experiment, host: dict[str, Any]) -> None:
    """Transformer Engine's three parts are there, of one version, and import. Raises RunError."""
    found = {name: version for name, version in host["versions"].items() if name.startswith(PARTS)}
    missing = [part for part in ("transformer_engine", "transformer_engine_jax") if part not in found]
    missing += [] if any("_cu1" in part for part in found) else ["transformer_engine_cu13"]
    if missing:
        raise RunError(
            f"{which.name} needs Transformer Engine's {' and '.join(missing)}; unpack a bundle (docs/maxtext.md), or"
            " choose an emulated experiment"
        )
    parts = {name: version for name, version in found.items() if name != "transformer_engine_torch"}
    if len(set(parts.values())) > 1:
        said = ", ".join(f"{name} {version}" for name, version in sorted(parts.items()))
        raise RunError(f"Transformer Engine's parts are of different versions: {said}; install {GPU_LOCK} anew")
    if host.get("import_error"):
        raise RunError(f"Transformer Engine does not import: {host['import_error']}; install the environment anew")
