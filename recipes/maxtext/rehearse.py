"""Compile a whole configuration ahead of time, for as many virtual devices as it has GPUs: faults before any is rented.

    python -m recipes.maxtext.launch llama31_405b-gb200-nvfp4 --rehearse

In MaxText's environment for CPU; nothing is trained and no GPU is needed. Written to stdout as JSON: what the step is
made of, bytes a device by kind, and the collectives. Exit codes: 0 it compiled and fits, 1 it does not, 2 wrong
arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from recipes.catalog import CatalogError, load_hardware
from recipes.launching import python_path, say
from recipes.maxtext.arguments import arguments, command_line
from recipes.maxtext.environment import ENVIRONMENT
from recipes.maxtext.experiment_file import Setting
from recipes.maxtext.experiments import Experiment, experiment
from recipes.maxtext.proof import collectives, hadamard_products, narrow_types, proved_precision
from recipes.runs import EXIT_FAILED, EXIT_OK, EXIT_USAGE, RunError, to_json

# What cannot be as on the GPUs: unrolled layers would compile for hours. Attention is recipes.maxtext.blockwise.
INSTEAD: dict[str, Setting] = {"hardware": "cpu", "scan_layers": True}
# What a step needs by the CPU's compiler, over its peak on an H200 (8 layers of Llama 3 8B, docs/log.md).
# Emulated block formats keep FP32 values that no GPU keeps: their bytes say nothing.
CPU_OVER_GPU = {"bf16": 1.39, "fp8_current": 1.41, "fp8_delayed": 1.58}
STARTED = "FEWBITS_REHEARSAL"


def configuration(which: Experiment) -> dict[str, Setting]:
    """MaxText's configuration of the rehearsal."""
    one_process = {"skip_jax_distributed_system": True, "ici_fsdp_parallelism": which.layout.fsdp}
    return {**arguments(which), **INSTEAD, **one_process, "dcn_fsdp_parallelism": 1, "dataset_type": "synthetic"}


def compiled(which: Experiment) -> dict[str, Any]:
    """Lower and compile the training step; what was found. To be called where JAX has the virtual devices."""
    mended: list[str] = []
    if which.quantization.startswith("te_"):
        from recipes.maxtext.emulation import emulate

        mended = emulate()
    import jax
    from maxtext.configs import pyconfig
    from maxtext.trainers.pre_train import train, train_compile
    from maxtext.utils import maxtext_utils, sharding

    from recipes.maxtext.blockwise import replace_cudnn
    from recipes.maxtext.worker import place_of_maxtext

    replace_cudnn()
    jax.config.update("jax_default_prng_impl", "unsafe_rbg")
    base = str(place_of_maxtext() / "configs/base.yml")
    config = pyconfig.initialize(["maxtext", base, *command_line(configuration(which))])
    mesh = jax.sharding.Mesh(maxtext_utils.create_device_mesh(config, jax.devices()), config.mesh_axes)
    start = time.perf_counter()
    inputs, named, state_shardings, _, model = train_compile.get_shaped_inputs(mesh, config)
    parameters, state_shardings = sharding.maybe_update_params_sharding_with_opt(config, state_shardings)
    data = sharding.get_input_data_sharding(config, mesh)
    function, into, out, static, donated = maxtext_utils.get_functional_train_with_signature(
        train.train_step, data, state_shardings, model, config, parameters
    )
    with jax.set_mesh(mesh), train_compile.axis_rules(config.logical_axis_rules):
        step = jax.jit(function, in_shardings=into, out_shardings=out, static_argnums=static, donate_argnums=donated)
        lowered = step.lower(*inputs, **named)
    lowering_s = time.perf_counter() - start
    text = lowered.as_text()
    start = time.perf_counter()
    made = lowered.compile()
    compiling_s = time.perf_counter() - start
    memory = made.memory_analysis()
    state = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(inputs[0])[0]]
    types, hadamards = narrow_types(text), hadamard_products(text)
    return {
        "devices": len(jax.devices()),
        "mended": mended,
        "precision": proved_precision(types, hadamards, state),
        "narrow_types": types,
        "hadamard_products": hadamards,
        "lowering_s": lowering_s,
        "compiling_s": compiling_s,
        "bytes_a_device": {
            "arguments": memory.argument_size_in_bytes,
            "temporary": memory.temp_size_in_bytes,
            "outputs_not_in_place": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        },
        "collectives": collectives(made.as_text()),
    }


def verdict(which: Experiment, found: dict[str, Any]) -> list[str]:
    """What is wrong with a compiled step, a line each; nothing when it may be rented for."""
    wrong = []
    if found["devices"] != which.layout.gpus:
        wrong.append(f"{which.layout.gpus} devices were asked for, JAX had {found['devices']}")
    if found["precision"] != which.precision:
        wrong.append(f"{which.precision} was asked for, the lowered step is {found['precision']}")
    held, memory = found["bytes_a_device"]["arguments"], memory_of(which)
    if held > memory:
        wrong.append(
            f"weights and optimizer take {held / 1e9:.1f} GB a device, {which.hardware} has {memory / 1e9:.0f}"
        )
    if which.layout.gpus > 1 and not found["collectives"]:
        wrong.append("no collective in the compiled step: the devices would train apart")
    return wrong


def memory_of(which: Experiment) -> float:
    """Bytes of one device's memory, by the catalog."""
    return load_hardware()[which.hardware].hbm_gb.value * 1e9


def warnings(which: Experiment, found: dict[str, Any]) -> list[str]:
    """What may be wrong, a line each: a GPU needs less than the CPU's compiler does, by a factor that was seen."""
    if which.precision not in CPU_OVER_GPU:
        return ["temporary bytes are the emulation's, not a GPU's; rehearse te_no_quant for memory"]
    sizes, memory = found["bytes_a_device"], memory_of(which) / 1e9
    factor = CPU_OVER_GPU[which.precision]
    needed = (sizes["arguments"] + sizes["temporary"]) / factor / 1e9
    if needed <= memory:
        return []
    return [
        f"may not fit: about {needed:.0f} GB a device (what it needs on CPU, over {factor}), {which.hardware} has"
        f" {memory:.0f}; recompute more (remat_policy), or give it more GPUs"
    ]


def again(which: Experiment) -> None:
    """Become a process that has the virtual devices: XLA reads its flags once."""
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": python_path(), STARTED: "1", "JAX_PLATFORMS": "cpu"}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "XLA_FLAGS": _flags(which)}
    os.execve(sys.executable, [sys.executable, "-m", "recipes.maxtext.rehearse", which.name], environment)  # noqa: S606


def _flags(which: Experiment) -> str:
    # code is never run: as little optimization as there is
    return f"--xla_force_host_platform_device_count={which.layout.gpus} --xla_backend_optimization_level=0"


def main(arguments_: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="maxtext rehearse", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiment", help="a name, e.g. llama31_405b-gb200-nvfp4 (all: `fewbits experiments`)")
    args = parser.parse_args(arguments_)
    try:
        which = experiment(args.experiment)
        if which.tier == "cpu":
            raise RunError(f"{which.name} runs here: python -m recipes.maxtext.launch {which.name}")
        if not os.environ.get(STARTED):
            again(which)
        with contextlib.redirect_stdout(sys.stderr):  # MaxText prints
            found = compiled(which)
    except (CatalogError, RunError) as error:
        say(f"maxtext rehearse: {error}")
        return EXIT_USAGE
    wrong = verdict(which, found)
    instead = {key: value for key, value in INSTEAD.items() if arguments(which).get(key) != value}
    doubts = warnings(which, found)
    print(to_json({"experiment": which.name, "instead": instead, **found, "wrong": wrong, "warnings": doubts}), end="")
    for line in (*wrong, *doubts):
        say(f"{which.name}: {line}")
    return EXIT_FAILED if wrong else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
