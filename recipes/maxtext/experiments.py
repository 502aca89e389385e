"""From `experiments.yaml` to experiments. Imports neither MaxText nor JAX."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Literal

from pydantic import Field, model_validator

from recipes.catalog import CatalogError, capability, load_hardware, load_models, lookup
from recipes.catalog.reading import Entry
from recipes.maxtext.experiment_file import Setting, load_experiments
from recipes.training import TrainingExperiment, cut_model, reduced, scaled_dimensions

STACK = "maxtext"
Tier = Literal["cpu", "one_gpu", "one_host", "cluster"]
# Set by the launcher from what an experiment is; `settings` may not say otherwise.
OWN_KEYS = ("quantization", "steps", "run_name", "base_output_directory", "metrics_file", "hardware", "dataset_type")


class Layout(Entry):
    """How a step is spread over GPUs. Batches are in samples (sequences)."""

    gpus: int = Field(default=1, gt=0)
    fsdp: int = Field(default=1, gt=0, description="GPUs that share out weights, gradients and optimizer")
    device_batch_samples: int = Field(gt=0, description="MaxText's per_device_batch_size")
    global_batch_samples: int = Field(gt=0)

    @model_validator(mode="after")
    def _divides(self) -> Layout:
        if self.gpus % self.fsdp:
            raise ValueError(f"{self.gpus} GPUs are not a multiple of FSDP {self.fsdp}")
        if self.global_batch_samples != self.gpus * self.device_batch_samples:
            raise ValueError(
                f"global batch {self.global_batch_samples} is not {self.gpus} GPUs x {self.device_batch_samples}"
            )
        return self


def sharded(gpus: int, samples: int) -> Layout:
    """FSDP over all GPUs, `samples` a GPU."""
    return Layout(gpus=gpus, fsdp=gpus, device_batch_samples=samples, global_batch_samples=gpus * samples)


class Experiment(TrainingExperiment):
    """One experiment, resolved: everything of ours that decides what MaxText trains."""

    tier: Tier
    quantization: str = Field(description="MaxText's name; empty: none")
    emulated: bool = Field(default=False, description="through Transformer Engine's pure-JAX path, wherever it runs")
    layout: Layout
    settings: dict[str, Setting] = Field(default={}, description="further keys of MaxText's configuration")
    model_name: str = Field(default="", description="MaxText's name of the model; empty: its defaults and `dimensions`")
    synthetic: bool = Field(default=False, description="one random batch for ever, not the stream of tokens")
    xla_flags: dict[str, Setting] = Field(default={}, description="XLA_FLAGS of the process that trains")
    variables: dict[str, Setting] = Field(default={}, description="further environment of that process")
    gpus_per_node: int = Field(default=0, ge=0, description="of a cluster, a process a GPU; 0: one process, one host")

    @model_validator(mode="after")
    def _settings_decide_nothing_twice(self) -> Experiment:
        twice = sorted(set(self.settings) & set(OWN_KEYS))
        if twice:
            raise ValueError(f"settings {', '.join(twice)}: the experiment itself says so")
        # MaxText would train BF16 without a word (seen: losses equal BF16's to every digit)
        if self.settings.get("use_qwix_quantization") and self.quantization.startswith(("te_", "nanoo_")):
            raise ValueError(
                f"use_qwix_quantization with quantization {self.quantization}: MaxText would train BF16 and say"
                " nothing; leave use_qwix_quantization out"
            )
        if self.gpus_per_node and self.layout.gpus % self.gpus_per_node:
            raise ValueError(f"{self.layout.gpus} GPUs are no whole number of nodes of {self.gpus_per_node}")
        return self

    @property
    def nodes(self) -> int:
        """Nodes the experiment occupies."""
        return self.layout.gpus // self.gpus_per_node if self.gpus_per_node else 1

    @property
    def tokens(self) -> int:
        """Tokens in one step."""
        return self.layout.global_batch_samples * self.dimensions.sequence


def _quantized(names: tuple[str, ...], start: str, end: str = "", **common: Any) -> Iterator[dict[str, Any]]:
    """An experiment a quantization, each but the baseline and BF16 over the baseline or what `baselines` names."""
    rows = load_experiments()
    baselines: dict[str, str] = common.pop("baselines", {})
    for name in names:
        quantization = rows.quantizations[name]
        over = None if quantization.precision == "bf16" else baselines.get(name, rows.baseline)
        yield {
            **common,
            "name": f"{start}-{name}{end}",
            **quantization.model_dump(),
            "baseline": over and f"{start}-{over}{end}",
        }


def _cpu() -> Iterator[dict[str, Any]]:
    tiny = load_experiments().cpu
    common = {
        "tier": "cpu",
        **reduced(tiny.model, tiny.dimensions),
        "hardware": "cpu",
        "layout": Layout(device_batch_samples=tiny.batch_samples, global_batch_samples=tiny.batch_samples),
        "steps": tiny.steps,
        "settings": tiny.settings,
    }
    for one in _quantized(tiny.quantizations, f"{tiny.model}-cpu", **common):
        yield {**one, "emulated": bool(one["quantization"])}
    (plain,) = _quantized(("bf16",), f"{tiny.model}-cpu", f"-fsdp{tiny.processes}", **common)
    spread = sharded(tiny.processes, tiny.batch_samples // tiny.processes)
    yield {**plain, "layout": spread, "gpus_per_node": tiny.processes}


def _on_gpus(model: str, synthetic: bool = False) -> dict[str, Any]:
    """What every experiment on GPUs has, by its data."""
    rows = load_experiments()
    return {
        "model_name": rows.models[model],
        "settings": rows.settings if synthetic else {**rows.settings, **rows.stream_settings},
        "synthetic": synthetic,
        "xla_flags": {name: flag.value for name, flag in rows.xla_flags.items()},
        "variables": {name: variable.value for name, variable in rows.variables.items()},
    }


def _one_gpu() -> Iterator[dict[str, Any]]:
    rows = load_experiments().one_gpu
    start = f"{rows.model}-{rows.hardware.name}"
    common = {
        **_on_gpus(rows.model),
        "tier": "one_gpu",
        **cut_model(rows.model, scaled_dimensions(load_models()[rows.model], rows.layers)),
        "hardware": rows.hardware.key,
        "layout": sharded(1, rows.batch_samples),
        "steps": rows.steps,
    }
    yield from _quantized(rows.quantizations, start, **common)
    common["settings"] = {**common["settings"], **rows.emulated_settings}
    yield from _quantized(rows.emulated, start, "-emulated", emulated=True, **common)


def _one_host() -> Iterator[dict[str, Any]]:
    rows = load_experiments().one_host
    common = {
        **_on_gpus(rows.model),
        "tier": "one_host",
        **reduced(rows.model, {}),
        "hardware": rows.hardware.key,
        "steps": rows.steps,
    }
    for gpus in rows.gpus:
        layout = sharded(gpus, rows.batch_samples)
        yield from _quantized(rows.quantizations, f"{rows.model}-{rows.hardware.name}x{gpus}", layout=layout, **common)


def _cluster() -> Iterator[dict[str, Any]]:
    rows = load_experiments().cluster
    for place in rows.places:
        common = {
            **_on_gpus(place.model, synthetic=True),
            "tier": "cluster",
            **reduced(place.model, {}),
            "hardware": place.hardware,
            "layout": sharded(place.gpus, place.batch_samples),
            "settings": {**load_experiments().settings, **place.settings},
            "gpus_per_node": rows.gpus_per_node[place.hardware],
            "steps": rows.steps,
            "baselines": rows.baselines,
        }
        yield from _quantized(rows.quantizations, f"{place.model}-{place.hardware}", **common)


@cache
def all_experiments() -> dict[str, Experiment]:
    """Every experiment by name: CPU, one GPU, one host, cluster. Raises CatalogError."""
    rows = load_experiments()
    made = [
        Experiment(**row, seed=rows.seed, release=rows.release)
        for tier in (_cpu(), _one_gpu(), _one_host(), _cluster())
        for row in tier
    ]
    by_name = {one.name: one for one in made}
    assert len(by_name) == len(made), "two experiments have one name"
    return by_name


def experiment(name: str) -> Experiment:
    """The experiment of that name. Raises CatalogError with near misses, and the allowed models and quantizations."""
    found = all_experiments()
    if name in found:
        return found[name]
    parts = name.split("-")
    lookup("model of maxtext", parts[0], dict.fromkeys(one.model for one in found.values()))
    if len(parts) > 1:
        lookup("hardware of maxtext", parts[1], dict.fromkeys(other.split("-")[1] for other in found))
    if len(parts) > 2:
        lookup("quantization of maxtext", parts[2], load_experiments().quantizations)
    alike = [other for other in found if other.startswith("-".join(parts[:2]) + "-")]
    raise CatalogError(f"unknown experiment {name!r}; of this model and hardware there are: {', '.join(alike)}")


def cluster_experiments(hardware: Iterable[str]) -> list[str]:
    """Whole models that the gate lets through on hardware by the catalog's name (`gb200`). Raises CatalogError."""
    known = load_experiments().cluster.gpus_per_node
    names = [lookup("hardware of maxtext's cluster", name, dict.fromkeys(known, name)) for name in hardware]
    if not names:
        raise CatalogError(f"slurm.hardware is empty; say what the cluster has: {', '.join(known)}")
    made = all_experiments().values()
    return [one.name for one in made if one.tier == "cluster" and one.hardware in names and not refused(one)]


def refused(which: Experiment) -> str | None:
    """Why the gate refuses an experiment on the hardware it names, or None."""
    gpu = None if which.hardware == "cpu" else load_hardware()[which.hardware].compute_capability
    answer = capability(which.precision, gpu, STACK, which.release)
    if answer.status == "emulated" and not which.emulated:
        return f"not native on {which.hardware}; {which.name} does not ask for emulation"
    return answer.reason if answer.status == "unsupported" else None
