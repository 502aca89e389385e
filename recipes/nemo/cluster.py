"""A full recipe as a Slurm job, through nemo_run: the executor that NVIDIA's own scripts use. Imports NeMo.

nemo_run rather than Snakemake's Slurm executor: a recipe is one job of up to 128 nodes that srun starts in a container,
a task a GPU; Snakemake's executor submits one-node rules, and its jobs do not start containers through srun.
Values are those of NVIDIA/NeMo v2.3.0 scripts/performance/utils.py `slurm_executor` and llm/pretrain_*.py.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nemo_run
from nemo.lightning.run.plugins import PerfEnvPlugin

from recipes.nemo.experiments import Experiment, load_experiments
from recipes.nemo.recipe import recipe
from recipes.nemo.recorder import RunRecorder

# in the container: nemo_run mounts a job's own folder there
IN_CONTAINER = "/nemo_run"
ENVIRONMENT = {
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "False",
    "NCCL_NVLS_ENABLE": "0",
    "NVTE_FLASH_ATTN": "1",
    "NVTE_FUSED_ATTN": "1",
    "NEMO_LOG_MEMORY_USAGE": "1",
}
# for normalisation kernels to overlap with FSDP's communication
CUDNN_NORMS = {"NVTE_NORM_FWD_USE_CUDNN": "1", "NVTE_NORM_BWD_USE_CUDNN": "1"}
CUDNN_NORM_MODELS = ("llama31_405b", "nemotron4_340b")
# GB200: nodes of one NVLink rack
RACK_NODES = 18
P2P_CHUNK_BYTES = 2097152


@dataclass(frozen=True)
class Place:
    """Where a job goes: Slurm's account and partition, the container image, NeMo-Run's home, mounts, time limit."""

    account: str
    partition: str
    image: str
    home: Path
    mounts: tuple[str, ...] = ()
    time_limit: str = ""


def segment(which: Experiment) -> int | None:
    """Nodes that Slurm keeps in one rack, for GB200 jobs larger than a rack: the largest divisor that fits one."""
    if which.gpus_per_node != 4 or which.nodes <= RACK_NODES:
        return None
    return next(n for n in range(RACK_NODES, 0, -1) if which.nodes % n == 0)


def executor(which: Experiment, place: Place, packager: Any) -> Any:
    """The Slurm executor of an experiment; `packager` brings the code."""
    norms = CUDNN_NORMS if which.model in CUDNN_NORM_MODELS else {}
    return nemo_run.SlurmExecutor(
        account=place.account,
        partition=place.partition,
        tunnel=nemo_run.LocalTunnel(job_dir=str(place.home / "experiments")),
        nodes=which.nodes,
        ntasks_per_node=min(which.gpus_per_node, which.layout.gpus),
        container_image=place.image,
        container_mounts=list(place.mounts),
        env_vars={**ENVIRONMENT, "NEMORUN_HOME": str(place.home), **norms},
        srun_args=["--mpi=pmix", "numactl --cpunodebind=$((SLURM_LOCALID/4)) --membind=$((SLURM_LOCALID/4))"],
        time=place.time_limit or load_experiments().cluster.time_limit,
        mem="0",
        exclusive=True,
        packager=packager,
        segment=segment(which),
    )


def plugins(which: Experiment) -> list[Any]:
    """What sets environment variables by layout, as in NVIDIA's scripts."""
    return [
        PerfEnvPlugin(
            enable_vboost=True,
            nccl_pp_comm_chunksize=P2P_CHUNK_BYTES if which.layout.pipeline_parallel > 1 else None,
            gpu_sm100_or_newer=which.hardware in ("b200", "gb200"),
        )
    ]


def task(which: Experiment) -> Any:
    """The recipe with our recorder, which leaves metrics.jsonl and facts.json in the job's folder."""
    made = recipe(which, f"{IN_CONTAINER}/nemo")
    made.trainer.callbacks.append(
        nemo_run.Config(RunRecorder, folder=IN_CONTAINER, precision=which.precision, bf16_layers=[])
    )
    return made


def submit(which: Experiment, place: Place, dry_run: bool) -> Path:
    """Submit the job, or (dry run) only write what would be submitted; returns the folder with sbatch script and task.

    A submitted job runs what is committed; a dry run packs no code.
    """
    packager = nemo_run.Packager() if dry_run else nemo_run.GitArchivePackager()
    os.environ["NEMORUN_HOME"] = str(place.home)
    with nemo_run.Experiment(which.name, base_dir=str(place.home)) as job:
        job.add(task(which), executor=executor(which, place, packager), name=which.name, plugins=plugins(which))
        if dry_run:
            job.dryrun(log=False, delete_exp_dir=False)
        else:
            job.run(sequential=True, detach=True)
        return Path(job._exp_dir)


def sbatch_text(which: Experiment) -> str:
    """The sbatch script of an experiment with placeholders for the place, normalised: what golden files hold."""
    with tempfile.TemporaryDirectory(prefix="fewbits-submit-") as name:
        place = Place("ACCOUNT", "PARTITION", "IMAGE", Path(name))
        folder = submit(which, place, dry_run=True)
        text = next(folder.glob("*_sbatch.sh")).read_text(encoding="utf-8")
        text = text.replace(str(folder), "JOB").replace(name, "HOME")
    return re.sub(r"_\d{10}\b", "_ID", text)
