"""A full recipe as a Slurm job, through nemo_run: the executor that NVIDIA's own scripts use. Imports NeMo.

nemo_run rather than Snakemake's Slurm executor: a recipe is one job of up to 128 nodes that srun starts in a container,
a task a GPU; Snakemake's executor submits one-node rules, and its jobs do not start containers through srun. Each task
is `recipes.nemo.task`: the same launcher and worker as on one machine, so that a job leaves a sealed run folder.
Values are those of NVIDIA/NeMo v2.3.0 scripts/performance/utils.py `slurm_executor` and llm/pretrain_*.py.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nemo_run
from nemo.lightning.run.plugins import PerfEnvPlugin

from recipes.launching import CHECKOUT, IMAGE
from recipes.nemo.experiment_file import load_experiments
from recipes.nemo.experiments import Experiment, experiment
from recipes.nemo.recipe import recipe
from recipes.runs import git_state
from recipes.slurm import segment

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
P2P_CHUNK_BYTES = 2097152


@dataclass(frozen=True)
class Place:
    """Where a job goes. `home` is a folder that login and compute nodes share: jobs, ranks' logs and run folders."""

    account: str
    partition: str
    image: str
    home: Path
    mounts: tuple[str, ...] = ()
    time_limit: str = ""
    gres: str | None = None


def executor(which: Experiment, place: Place, packager: Any, commit: str | None) -> Any:
    """The Slurm executor of an experiment; `packager` brings the code of `commit`."""
    norms = CUDNN_NORMS if which.model in CUDNN_NORM_MODELS else {}
    told = {"FEWBITS_COMMIT": commit or "", IMAGE: place.image}
    return nemo_run.SlurmExecutor(
        account=place.account,
        partition=place.partition,
        tunnel=nemo_run.LocalTunnel(job_dir=str(place.home / "experiments")),
        nodes=which.nodes,
        ntasks_per_node=min(which.gpus_per_node, which.layout.gpus),
        gres=place.gres,
        container_image=place.image,
        container_mounts=[f"{place.home}:{place.home}", *place.mounts],
        env_vars={**ENVIRONMENT, "NEMORUN_HOME": str(place.home), **norms, **told},
        srun_args=["--mpi=pmix", "numactl --cpunodebind=$((SLURM_LOCALID/4)) --membind=$((SLURM_LOCALID/4))"],
        time=place.time_limit or load_experiments().cluster.time_limit,
        mem="0",
        exclusive=True,
        packager=packager,
        segment=segment(which.nodes, which.gpus_per_node),
        # a job that Slurm starts anew would find its own run folder there; recipes.jobs sends a new one
        additional_parameters={"no_requeue": True},
    )


@dataclass(kw_only=True)
class RecipeEnvironment(nemo_run.Plugin):  # type: ignore[misc]
    """NeMo's PerfEnvPlugin, which reads a recipe, for a job whose task is a script."""

    experiment: str  # its name: nemo_run writes plugins down

    def setup(self, task: Any, executor: Any) -> None:
        """Set environment variables by layout, as in NVIDIA's scripts. Nothing on CPU."""
        which = experiment(self.experiment)
        if which.tier == "cpu":
            return
        # only the layout is read; block scaling's plugin is unknown to the login node's NeMo
        which = which.model_copy(update={"precision": "bf16"})
        PerfEnvPlugin(
            enable_vboost=True,
            nccl_pp_comm_chunksize=P2P_CHUNK_BYTES if which.layout.pipeline_parallel > 1 else None,
            gpu_sm100_or_newer=which.hardware in ("b200", "gb200"),
        ).setup(recipe(which, "nemo"), executor)


def task(which: Experiment, place: Place, session: str, more: Sequence[str]) -> Any:
    """What every rank runs: one leaves the run folder in `home/runs`, the others join it; `more` goes to launch."""
    arguments = [which.name, "--runs", str(place.home / "runs"), "--session", session]
    arguments += ["--ranks", str(place.home / "ranks" / session), *more]
    return nemo_run.Script(path="recipes.nemo.task", m=True, entrypoint="python", args=arguments)


@dataclass(frozen=True)
class Job:
    """A job as submitted: nemo_run's folder with sbatch script and logs, Slurm's id (None in a dry run)."""

    folder: Path
    slurm_id: str | None


def submit(which: Experiment, place: Place, session: str, dry_run: bool, more: Sequence[str] = ()) -> Job:
    """Submit the job, or (dry run) only write what would be submitted.

    A submitted job runs what is committed; a dry run packs no code.
    """
    packager = nemo_run.Packager() if dry_run else nemo_run.GitArchivePackager()
    commit = None if dry_run else git_state(CHECKOUT)["commit"]
    os.environ["NEMORUN_HOME"] = str(place.home)
    with nemo_run.Experiment(which.name, base_dir=str(place.home)) as job:
        job.add(
            task(which, place, session, more),
            executor=executor(which, place, packager, commit),
            name=which.name,
            plugins=[RecipeEnvironment(experiment=which.name)],
        )
        if dry_run:
            job.dryrun(log=False, delete_exp_dir=False)
        else:
            job.run(sequential=True, detach=True)
        slurm_id = None if dry_run else job.jobs[0].handle.rpartition("/")[2]
        return Job(Path(job._exp_dir), slurm_id)


def sbatch_text(which: Experiment) -> str:
    """The sbatch script of an experiment with placeholders for the place, normalised: what golden files hold."""
    with tempfile.TemporaryDirectory(prefix="fewbits-submit-") as name:
        place = Place("ACCOUNT", "PARTITION", "IMAGE", Path(name))
        folder = submit(which, place, "SESSION", dry_run=True).folder
        text = next(folder.glob("*_sbatch.sh")).read_text(encoding="utf-8")
        text = text.replace(str(folder), "JOB").replace(name, "HOME").replace(which.name, "EXPERIMENT")
    return re.sub(r"_\d{10}\b", "_ID", text)
