"""From `experiments.yaml` and NVIDIA's layouts to experiments. Imports neither NeMo nor torch."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from recipes.catalog import CatalogError, capability, load_hardware, load_models, lookup
from recipes.catalog.reading import Entry
from recipes.nemo.experiment_file import Narrow, load_experiments
from recipes.training import TrainingExperiment, cut_model, reduced, scaled_dimensions

STACK = "nemo"
HERE = Path(__file__).parent
Tier = Literal["cluster", "one_gpu", "one_host", "cpu"]


class Layout(Entry):
    """How a step is spread over GPUs. Batches are in samples (sequences); `virtual_pipeline` 1 means none."""

    gpus: int = Field(default=1, gt=0)
    tensor_parallel: int = Field(default=1, gt=0)
    pipeline_parallel: int = Field(default=1, gt=0)
    context_parallel: int = Field(default=1, gt=0)
    virtual_pipeline: int = Field(default=1, gt=0)
    micro_batch_samples: int = Field(default=1, gt=0)
    global_batch_samples: int = Field(default=1, gt=0)
    cuda_graphs: bool = False
    fsdp: bool = False
    recomputed_layers: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _divides(self) -> Layout:
        model_parallel = self.tensor_parallel * self.pipeline_parallel * self.context_parallel
        if self.gpus % model_parallel:
            raise ValueError(
                f"{self.gpus} GPUs are not a multiple of tensor x pipeline x context parallel = {model_parallel}"
            )
        if self.global_batch_samples % (self.micro_batch_samples * self.data_parallel):
            raise ValueError(
                f"global batch {self.global_batch_samples} is not a multiple of micro-batch {self.micro_batch_samples}"
                f" x data parallel {self.data_parallel}"
            )
        return self

    @property
    def data_parallel(self) -> int:
        """Copies of the model that see different samples."""
        return self.gpus // (self.tensor_parallel * self.pipeline_parallel * self.context_parallel)

    @property
    def micro_batches(self) -> int:
        """Micro-batches each copy works through in one step (gradient accumulation)."""
        return self.global_batch_samples // (self.micro_batch_samples * self.data_parallel)


class Experiment(TrainingExperiment):
    """One experiment, resolved: everything of ours that decides what NeMo trains."""

    tier: Tier
    gpus_per_node: int = Field(gt=0)
    layout: Layout
    first_last_layers_bf16: bool = False
    rowwise_weight_cast: bool = Field(
        default=False, description="weights cast to FP8 without the transpose that Transformer Engine 2.7 added"
    )
    without_userbuffers: bool = Field(
        default=False, description="no tensor-parallel overlap through userbuffers, which use NVLink multicast"
    )
    matched: bool = Field(default=False, description="in the layout of the BF16 recipe, not in NVIDIA's own")

    @model_validator(mode="after")
    def _whole_nodes(self) -> Experiment:
        if self.layout.gpus > self.gpus_per_node and self.layout.gpus % self.gpus_per_node:
            raise ValueError(f"{self.layout.gpus} GPUs are no whole number of nodes of {self.gpus_per_node}")
        return self

    @property
    def nodes(self) -> int:
        """Nodes the experiment occupies."""
        return -(-self.layout.gpus // self.gpus_per_node)

    @property
    def tokens(self) -> int:
        """Tokens in one step."""
        return self.layout.global_batch_samples * self.dimensions.sequence


MAIN_RELEASE = "25.04"


@cache
def recommended() -> dict[tuple[str, str, str], Layout]:
    """NVIDIA's layouts at 25.04 by model, hardware (our short name) and dtype (`bf16`, `fp8`). Raises CatalogError."""
    path = HERE / load_experiments().cluster.recommended
    found = {}
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            values = {name: row[name] for name in Layout.model_fields if name in row}
            try:
                layout = Layout.model_validate(values)
            except ValidationError as error:
                raise CatalogError(f"{path}: line {number}: {error.errors()[0]['msg']}") from error
            if [layout.data_parallel, layout.micro_batches] != [
                int(row["data_parallel"]),
                int(row["gradient_accumulation"]),
            ]:
                raise CatalogError(f"{path}: line {number}: data_parallel or gradient_accumulation does not follow")
            found[row["model"], row["hardware"].lower(), row["dtype"]] = layout
    return found


def _cluster() -> Iterator[dict[str, Any]]:
    rows = load_experiments()
    for (model, hardware, dtype), layout in recommended().items():
        base = recommended()[model, hardware, "bf16"]
        place = rows.cluster.hardware[hardware]
        common = {
            "tier": "cluster",
            "model": model,
            "hardware": place.key,
            "gpus_per_node": place.gpus_per_node,
            "dimensions": load_models()[model],
            "steps": rows.cluster.steps,
            "release": MAIN_RELEASE,
        }
        start = f"{model}-{hardware}"
        for precision in rows.cluster.precisions:
            if (precision == "bf16") == (dtype == "bf16"):
                baseline = None if dtype == "bf16" else f"{start}-bf16"
                one = {**common, "precision": precision, "baseline": baseline}
                yield {**one, "name": f"{start}-{precision}", "layout": layout}
                if layout != base:
                    yield {**one, "name": f"{start}-{precision}-matched", "layout": base, "matched": True}
        block = rows.cluster.block
        if dtype == "bf16" and hardware in block.hardware:
            for precision in block.precisions:
                name = f"{start}-{precision}-{block.release}"
                baseline = None if precision == "bf16" else f"{start}-bf16-{block.release}"
                one = {**common, "release": block.release, "precision": precision, "baseline": baseline}
                yield {**one, "name": name, "layout": layout}


def _one_gpu() -> Iterator[dict[str, Any]]:
    rows = load_experiments().one_gpu
    cuts = [(model, depth, {"layers": depth.layers}, "") for model, depth in rows.models.items()]
    for model, depth in rows.scaled.items():
        cuts.append((model, depth, scaled_dimensions(load_models()[model], depth.layers), "-scaled"))
    for model, depth, changes, end in cuts:
        common = {
            **cut_model(model, changes),
            "tier": "one_gpu",
            "hardware": rows.hardware.key,
            "gpus_per_node": 1,
            "layout": Layout(global_batch_samples=depth.micro_batches),
            "steps": depth.steps or rows.steps,
        }
        for one in _precisions(rows, f"{model}-{rows.hardware.name}", end, common):
            yield one
            if one["precision"] == "fp8_current" and not end and model in rows.first_last_layers_bf16:
                name = f"{model}-{rows.hardware.name}-fp8_current-first_last_bf16"
                yield {**one, "name": name, "first_last_layers_bf16": True}
            if one["precision"] in rows.rowwise_weight_cast:
                yield {**one, "name": f"{one['name']}-rowwise_cast", "rowwise_weight_cast": True}


def _one_host() -> Iterator[dict[str, Any]]:
    rows = load_experiments().one_host
    common = {"tier": "one_host", "hardware": rows.hardware.key, "steps": rows.steps}
    common |= {"without_userbuffers": True}
    for model, whole in rows.whole.items():
        base = recommended()[model, whole.layout_of, "bf16"]
        for gpus in whole.gpus:
            samples = base.global_batch_samples * gpus // base.gpus
            layout = Layout.model_validate({**base.model_dump(), "gpus": gpus, "global_batch_samples": samples})
            one = {**common, **cut_model(model, {}), "gpus_per_node": gpus, "layout": layout}
            yield from _precisions(rows, f"{model}-{rows.hardware.name}x{gpus}", "", one)
    for model, parallel in rows.models.items():
        changes = {"layers": parallel.layers}
        if parallel.scaled:
            changes = scaled_dimensions(load_models()[model], parallel.layers)
        for name in parallel.layouts:
            layout = Layout.model_validate({**rows.layouts[name], "global_batch_samples": parallel.samples})
            one = {**common, **cut_model(model, changes), "gpus_per_node": layout.gpus, "layout": layout}
            end = f"-{name}" + ("-scaled" if parallel.scaled else "")
            yield from _precisions(rows, f"{model}-{rows.hardware.name}x{layout.gpus}", end, one)


def _precisions(rows: Narrow, start: str, end: str, common: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """An experiment a precision, of both releases, each over its release's BF16."""
    for release, precisions in ((MAIN_RELEASE, rows.precisions), (rows.block.release, rows.block.precisions)):
        last = f"{end}-{release}" if release != MAIN_RELEASE else end
        for precision in precisions:
            baseline = None if precision == "bf16" else f"{start}-bf16{last}"
            one = {**common, "release": release, "precision": precision, "baseline": baseline}
            yield {**one, "name": f"{start}-{precision}{last}"}


def _cpu() -> Iterator[dict[str, Any]]:
    rows = load_experiments().cpu
    models = list(load_experiments().one_gpu.scaled)
    for model in models:
        common = {
            **reduced(model, rows.dimensions),
            "tier": "cpu",
            "hardware": "cpu",
            "precision": "bf16",
            "release": MAIN_RELEASE,
            "steps": rows.steps,
        }
        batch = {
            "micro_batch_samples": rows.micro_batch_samples,
            "global_batch_samples": rows.global_batch_samples,
        }
        yield {**common, "name": f"{model}-cpu-bf16", "gpus_per_node": 1, "layout": Layout.model_validate(batch)}
        for name, parallel in rows.layouts.items() if model == models[0] else ():
            ranks = parallel.get("tensor_parallel", 1) * parallel.get("pipeline_parallel", 1) * parallel.get("gpus", 1)
            layout = Layout.model_validate({**batch, **parallel, "gpus": ranks})
            yield {**common, "name": f"{model}-cpu-bf16-{name}", "gpus_per_node": ranks, "layout": layout}


@cache
def all_experiments() -> dict[str, Experiment]:
    """Every experiment by name: cluster, one GPU, one host, CPU. Raises CatalogError."""
    seed = load_experiments().seed
    made = [Experiment(**row, seed=seed) for rows in (_cluster(), _one_gpu(), _one_host(), _cpu()) for row in rows]
    by_name = {one.name: one for one in made}
    assert len(by_name) == len(made), "two experiments have one name"
    return by_name


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises CatalogError with near misses, and the allowed models and precisions."""
    found = all_experiments()
    if name in found:
        return found[name]
    parts = name.split("-")
    lookup("model of nemo", parts[0], dict.fromkeys(one.model for one in found.values()))
    hardware = dict.fromkeys(other.split("-")[1] for other in found)
    if len(parts) > 1:
        lookup("hardware of nemo", parts[1], hardware)
    if len(parts) > 2:
        lookup("precision of nemo", parts[2], dict.fromkeys(one.precision for one in found.values()))
    alike = [other for other in found if other.startswith("-".join(parts[:2]) + "-")]
    raise CatalogError(f"unknown experiment {name!r}; of this model and hardware there are: {', '.join(alike)}")


def cluster_experiments(hardware: Iterable[str]) -> list[str]:
    """Full recipes that the gate lets through on hardware by its name in experiments (`h100`). Raises CatalogError."""
    known = load_experiments().cluster.hardware
    keys = {lookup("hardware of nemo's full recipes", name, known).key for name in hardware}
    if not keys:
        raise CatalogError(f"slurm.hardware is empty; say what the cluster has: {', '.join(known)}")
    made = all_experiments().values()
    return [one.name for one in made if one.tier == "cluster" and one.hardware in keys and not refused(one)]


def refused(which: Experiment) -> str | None:
    """Why the gate refuses an experiment on the hardware it names, or None."""
    gpu = None if which.hardware == "cpu" else load_hardware()[which.hardware].compute_capability
    answer = capability(which.precision, gpu, STACK, which.release)
    return answer.reason if answer.status == "unsupported" else None
