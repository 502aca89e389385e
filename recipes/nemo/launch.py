"""From an experiment to a run folder: check the host, ask the gate, start the ranks, seal what they leave.

    python -m recipes.nemo.launch llama3_8b-cpu-bf16 --runs runs

Exit codes: 0 the run completed, 1 it failed, 2 wrong arguments or host, 3 the gate refused (recorded as a run), and
128 + n when signal n stopped it. Full recipes go to a cluster instead: `python -m recipes.nemo.submit`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.catalog import CatalogError, lookup, parameters
from recipes.checkpoints import set_aside
from recipes.gpus import lent_gpus
from recipes.host import probe_apart
from recipes.launching import (
    IMAGE,
    NO_MULTICAST,
    add_training_options,
    ask_gate,
    base_record,
    conclude,
    is_hardware,
    launched,
    python_path,
    refuse,
    report,
    resumed_from,
    run_parser,
    say,
    take_facts,
    take_failed_ranks,
)
from recipes.nemo.experiment_file import load_experiments
from recipes.nemo.experiments import STACK, Experiment, experiment
from recipes.power import PowerSampler
from recipes.ranks import rank_command, run_ranks, take_rank_logs
from recipes.runs import (
    EXIT_OK,
    EXIT_UNSUPPORTED,
    EXIT_USAGE,
    POWER,
    RunError,
    RunFolder,
    new_session_id,
)

# environment of every rank, from NVIDIA's performance scripts and from running without a network
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "False",
    "USE_TORCH": "1",
    "USE_TF": "0",
    "USE_FLAX": "0",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
    "NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
    "PYTHONWARNINGS": "ignore",
}
# Bytes a parameter. On every GPU that holds it: BF16 weight and gradient. Spread over the GPUs that hold the same ones:
# FP32 master weight and two moments, and the FP32 gradient that megatron-core's optimizer makes of all its parameters
# at once (seen: without it, 70B's layers did not fit).
BYTES_HELD, BYTES_SHARED = 4, 16

# where NeMo and its libraries write beside a run's own files
HOMES = ("NEMO_HOME", "NEMORUN_HOME", "MPLCONFIGDIR", "HF_HOME")


def release_of(version: str) -> str:
    """The numbers a version starts with: 2.3.0 of 2.3.0rc1 or 2.3.0+abc."""
    return (re.match(r"\d+(?:\.\d+)*", version) or [""])[0]


def memory_need_bytes(which: Experiment) -> int:
    """Bytes that weights, gradients and optimizer take on each GPU, activations not counted."""
    split = which.layout.tensor_parallel * which.layout.pipeline_parallel
    copies = which.layout.gpus // split  # the optimizer is spread over context-parallel ranks too
    held = BYTES_HELD / copies if which.layout.fsdp else BYTES_HELD
    return int(parameters(which.dimensions) / split * (held + BYTES_SHARED / copies))


def check_release(release: str, versions: Mapping[str, str], name: str = "this") -> None:
    """Refuse other packages than a release's. `versions`: recipes.host.versions. Raises RunError, CatalogError."""
    wanted = lookup("release of nemo", release, load_experiments().releases)
    for package, version in (("nemo-toolkit", wanted.nemo_toolkit), ("megatron-core", wanted.megatron_core)):
        found = versions.get(package)
        if found is None:
            raise RunError(
                f"{package} is not installed; `snakemake nemo_environment` builds it for CPU, a bundle brings it to a"
                " GPU (docs/nemo.md)"
            )
        if release_of(found) != version:
            raise RunError(f"{package} {found} found, {name} is for {version}; use envs/nemo of that release")


def check_host(which: Experiment, host: dict[str, Any], slurm: bool = False) -> None:
    """Refuse a host that cannot run the experiment, before anything is written. Raises RunError.

    `slurm`: this is one node of a job, which Slurm has started a task a rank on.
    """
    tasks = int(os.environ.get("SLURM_NTASKS", "1")) if slurm else which.layout.gpus
    if tasks != which.layout.gpus:
        raise RunError(f"{which.name} has {which.layout.gpus} ranks, Slurm started {tasks} tasks; submit it anew")
    check_release(which.release, host["versions"], which.name)
    if which.tier == "cpu":
        if which.layout.context_parallel > 1:
            raise RunError("context parallelism does not exist on CPU (megatron-core needs Transformer Engine for it)")
        return
    here = min(which.layout.gpus, which.gpus_per_node)
    if host["gpus"] != here or (which.nodes > 1 and not slurm):
        instead = "send it to a cluster: python -m recipes.nemo.submit"
        if which.tier != "cluster":
            instead = "choose an experiment of your number (fewbits experiments)"
        raise RunError(
            f"{which.name} runs on {which.layout.gpus} GPUs, {host['gpus']} are visible; set CUDA_VISIBLE_DEVICES, or"
            f" {instead}"
        )
    if which.tier == "cluster" and not is_hardware(which.hardware, host):
        raise RunError(
            f"{which.name} is for {which.hardware}, this is {host['gpu_name']}: its layout would be another one;"
            " choose the experiment of your hardware, or another partition"
        )
    if "transformer_engine" not in host["versions"]:
        raise RunError("Transformer Engine is not installed: NeMo would train BF16 and say nothing; see docs/nemo.md")
    if host.get("import_error"):
        raise RunError(f"Transformer Engine does not import: {host['import_error']}; install the environment anew")
    need = memory_need_bytes(which)
    if host["memory_free_bytes"] < need:
        raise RunError(
            f"{host['memory_free_bytes'] / 2**30:.1f} GiB of device memory free, weights and optimizer alone need"
            f" {need / 2**30:.1f} GiB; stop what else uses the GPU, or choose a smaller experiment"
        )


def command(which: Experiment, args: argparse.Namespace) -> list[str]:
    """The process that trains: one rank directly, several through torchrun, unless Slurm has started a task a rank."""
    start = rank_command("recipes.nemo.worker", 1 if args.ranks else which.layout.gpus)
    start += ["--checkpoint-every", str(args.checkpoint_every)] if args.checkpoint_every else []
    start += ["--resume", str(args.resume)] if args.resume else []
    return start + (["--profile-step", str(args.profile_step)] if args.profile_step >= 0 else [])


def rank_environment(which: Experiment) -> dict[str, str]:
    """The environment every rank gets."""
    # on a cluster the job script has set what its recipe wants
    ours = {**ENVIRONMENT, **os.environ} if which.tier == "cluster" else {**os.environ, **ENVIRONMENT}
    environment = {**ours, "PYTHONPATH": python_path()}
    if which.tier == "cluster":
        return environment
    # megatron-core asserts on these; Transformer Engine chooses by itself
    environment.pop("NVTE_FLASH_ATTN", None)
    environment.pop("NVTE_FUSED_ATTN", None)
    if which.layout.tensor_parallel * which.layout.context_parallel > 1:
        environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    if which.tier == "cpu":
        return environment | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    if which.layout.gpus > 1:
        environment |= NO_MULTICAST
    # the optimizer takes and frees tensors of several GiB: in fixed segments tens of GiB lay unused beside them
    environment.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    return environment


def train(
    which: Experiment, folder: RunFolder, host: dict[str, Any], args: argparse.Namespace, environment: dict[str, str]
) -> int:
    """Run the ranks with their output in log.txt; returns the exit code as a shell would see it.

    On one node power.csv holds samples of the first rank's GPU.
    """
    power = PowerSampler(folder.path / POWER, host["gpu_uuid"]) if which.nodes == 1 and host["gpus"] else None
    with tempfile.TemporaryDirectory(prefix="fewbits-nemo-") as scratch, power or contextlib.nullcontext():
        return run_ranks(command(which, args), folder, {**environment, **dict.fromkeys(HOMES, scratch)})


def tidy(folder: Path, keep_checkpoints: bool) -> dict[str, Any] | None:
    """Flatten the logs of further ranks to rank-N.log, drop NeMo's own folder; returns what was kept as checkpoints."""
    take_rank_logs(folder)
    kept = set_aside(folder / "nemo/checkpoints", folder) if keep_checkpoints else None
    shutil.rmtree(folder / "nemo", ignore_errors=True)
    return kept


def run(which: Experiment, args: argparse.Namespace) -> int:
    """One experiment, one run folder; returns the exit code."""
    host = probe_apart()
    answer = ask_gate(which.precision, host, STACK, which.release)
    if which.tier == "cpu" and which.precision != "bf16":
        answer = ask_gate(which.precision, {"gpus": 0}, STACK, which.release)
    session_id = args.session or new_session_id()
    session = {"id": session_id, "repeat": args.repeat, "resumed_from": None}
    if args.resume:
        session["resumed_from"] = resumed_from(args.resume)
    locks = ["envs/nemo/requirements.lock", "envs/nemo/release.lock"]
    if which.tier != "cpu":
        locks[0] = "envs/nemo_gpu/requirements.lock"
    if which.release == "25.07":
        locks[1] = "envs/nemo_25_07/release.lock"
    image = os.environ.get(IMAGE)
    if image:
        locks = []  # the container holds what runs
    environment = rank_environment(which)
    record = {
        **base_record(which, which.precision, which.release, host, locks, session, environment),
        "seed": which.seed,
        "data": "NeMo's MockDataModule: uniform random tokens from NumPy's default generator, seed 42 + sample",
    }
    if image:
        record["environment"]["image"] = image
    if answer.status == "unsupported":
        refuse(args.runs, STACK, which.name, session_id, record, f"{answer.reason} ({answer.source})")
        return EXIT_UNSUPPORTED
    check_host(which, host, bool(args.ranks))
    record["kind"] = "measured" if answer.status == "native" else "emulated"
    with RunFolder(args.runs, STACK, which.name, f"{session_id}-r{args.repeat}", record) as folder:
        code = train(which, folder, host, args, environment)
        facts = take_facts(folder, STACK)
        done = facts.get("steps_done") == which.steps
        if args.ranks and not done and code <= 128:  # a job that is being cancelled has no time to look at ranks
            take_failed_ranks(folder.path, args.ranks)
        code = conclude(folder, code, done)
        kept = tidy(folder.path, bool(args.checkpoint_every) and (code == EXIT_OK or code > 128))
        folder.record["checkpoint"] = kept
    report(folder, args)
    return code


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line to arguments."""
    parser = run_parser("nemo", __doc__, "llama3_8b-cpu-bf16 (all: `fewbits experiments`)")
    add_training_options(parser)
    parser.add_argument("--profile-step", type=int, default=-1, metavar="N", help="profile step N into kernels.csv")
    return launched(parser.parse_args(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parse(arguments)
    try:
        which = experiment(args.experiment)
        if args.steps:
            which = which.model_copy(update={"steps": args.steps})
        # a cluster's scheduler has chosen the GPUs, and a CPU run needs none
        with lent_gpus(which.layout.gpus) if which.tier in ("one_gpu", "one_host") else contextlib.nullcontext():
            return run(which, args)
    except (CatalogError, RunError) as error:
        say(f"nemo: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
