"""`config/config.yaml` as types. Its JSON schema, which Snakemake checks the file against, is generated from here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recipes.catalog.reading import Entry


class Stack(Entry):
    """How to reach one stack's environment."""

    python: str = Field(default="python3", description="interpreter that has the stack's libraries")
    site: str = Field(
        default="", description="site folder unpacked from a bundle, put first on PYTHONPATH; may be empty"
    )


class TrainingStack(Stack):
    """How to reach the environment of a stack that Snakemake can also run in a container."""

    container: str = Field(
        default="",
        description="image that the stack's rules run in (--sdm apptainer): a SIF's path, docker://...@sha256:..., or"
        " `pinned`, as containers/images.lock.yaml has it; empty: none",
    )


class Nemo(TrainingStack):
    """How to reach NeMo's environment on a GPU host; the one for CPU is built under build/envs."""

    site_25_07: str = Field(default="", description="site folder of nemo_25_07, laid over `site` for block scaling")
    container_25_07: str = Field(default="", description="the same for release 25.07's experiments")
    profile: bool = Field(default=False, description="profile the last step of a GPU run into its kernels.csv")


class Slurm(Entry):
    """Where full recipes are sent."""

    account: str = Field(default="", description="Slurm account")
    partition: str = Field(default="", description="Slurm partition")
    home: str = Field(
        default="", description="folder that login and compute nodes share; run folders appear in `runs` under it"
    )
    hardware: tuple[str, ...] = Field(default=(), description="what the partition has: h100, b200, gb200 or gb300")
    image: str = Field(default="", description="path of an imported image, or by digest; empty: the release's, pinned")
    maxtext_image: str = Field(default="", description="the same for MaxText")
    mounts: tuple[str, ...] = Field(default=(), description="further mounts, source:target")
    gres: str = Field(default="", description="where GPUs must be asked for, e.g. gpu:8")
    time_limit: str = Field(default="", description="HH:MM:SS; empty: as in experiments.yaml")


class Settings(Entry):
    """Everything a person may set. `config/README.md` explains every key."""

    gpus: int = Field(default=0, ge=0, description="GPUs this machine lends to rules; 0: only what needs none runs")
    runs: str = Field(default="runs", description="where run folders go")
    te_layers: Stack = Stack()
    nemo: Nemo = Nemo()
    maxtext: TrainingStack = TrainingStack()
    slurm: Slurm = Slurm()
    cpu_tier: tuple[Literal["nemo", "maxtext"], ...] = Field(
        default=("nemo", "maxtext"), description="stacks whose recipes `reproduce_all` trains on CPU; empty: none"
    )
    keep: tuple[Literal["checkpoint"], ...] = Field(
        default=(), description="what `publish` versions beside the evidence: the last checkpoint of VALID runs"
    )
    publish_max_mib: int = Field(default=16, ge=1, description="largest experiment kept in results/reference, MiB")
