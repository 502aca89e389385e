"""From an experiment to real runs: check the host, ask the gate, then run every precision of one model, interleaved.

    python -m recipes.te_layers.launch --kind layers --model llama3_8b --runs runs

One process runs A B C D, A B C D, ... so that drift of the machine meets all precisions alike; every repeat of every
precision leaves its own run folder. Exit codes: 0 all ran (or were refused by the gate, which is recorded as a run),
1 a run failed, 2 wrong arguments or host, 3 the gate refused everything that was asked for.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recipes.catalog import CatalogError
from recipes.gpus import lent_gpus
from recipes.host import probe
from recipes.launching import ask_gate, base_record, say
from recipes.power import PowerSampler
from recipes.runs import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_UNSUPPORTED,
    EXIT_USAGE,
    POWER,
    RunError,
    RunFolder,
    new_session_id,
    to_json,
    write_atomically,
)
from recipes.te_layers.experiments import (
    KINDS,
    STACK,
    Experiment,
    ExperimentFile,
    experiment,
    load_experiments,
    memory_need_bytes,
)

LOCK = f"envs/{STACK}/requirements.lock"


def check_host(host: dict[str, Any], rows: ExperimentFile, need_bytes: int) -> None:
    """Refuse a host that cannot run what was asked, before anything is written. Raises RunError.

    Checked: the GPU count against the experiments', Transformer Engine's version and that its parts agree, free memory.
    """
    if host["gpus"] == 0:
        raise RunError("no GPU found; te_layers needs one NVIDIA GPU (elsewhere use the published results)")
    if host["gpus"] != rows.gpus:
        raise RunError(
            f"{host['gpus']} GPUs visible, the experiments use {rows.gpus}; set CUDA_VISIBLE_DEVICES to one of them"
        )
    parts = {name: version for name, version in host["versions"].items() if name.startswith("transformer_engine")}
    if "transformer_engine_torch" not in parts:
        raise RunError("Transformer Engine for PyTorch is not installed; unpack a bundle or install envs/te_layers")
    if len(set(parts.values())) != 1:
        raise RunError(f"Transformer Engine's parts have different versions: {parts}; install one version of all")
    if parts["transformer_engine_torch"] != rows.transformer_engine:
        raise RunError(
            f"Transformer Engine {parts['transformer_engine_torch']} found, the experiments are for"
            f" {rows.transformer_engine}; install envs/te_layers"
        )
    if host.get("import_error"):
        raise RunError(f"Transformer Engine does not import: {host['import_error']}; install envs/{STACK} anew")
    if host["memory_free_bytes"] < need_bytes:
        raise RunError(
            f"{host['memory_free_bytes'] / 2**30:.1f} GiB of device memory free, about {need_bytes / 2**30:.1f} GiB"
            " needed; stop what else uses the GPU, or choose a smaller model"
        )


def run_record(which: Experiment, host: dict[str, Any], release: str, session: dict[str, Any]) -> dict[str, Any]:
    """The part of run.json that is known before the run starts."""
    return {
        **base_record(which, which.precision, release, host, [LOCK], session),
        "seed": which.seed,
        "data": "random normal activations and output gradients, generated on the device from the seed",
    }


@contextlib.contextmanager
def output_to(descriptor: int) -> Iterator[None]:
    """Send what the process (C libraries included) prints to a file, and give the streams back afterwards."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, number)
            os.close(copy)


def run_one(which: Experiment, folder: RunFolder, baseline: dict[str, Any], gpu_uuid: str) -> None:
    """Run one repeat of one experiment into its folder; its output goes to log.txt, power samples to power.csv."""
    with folder, output_to(folder.log_file_descriptor()), PowerSampler(folder.path / POWER, gpu_uuid):
        # inside the folder's context, so that a library that does not load is recorded and sealed like any failure
        if which.kind == "layers":
            from recipes.te_layers.layers import measure
        else:
            from recipes.te_layers.gemms import measure
        measure(which, folder, baseline)
        folder.finish("completed")


def release_memory() -> None:
    """Give device memory back between runs, so that a run (or one that failed) leaves nothing to the next."""
    gc.collect()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()


def run_all(chosen: Sequence[Experiment], host: dict[str, Any], args: argparse.Namespace, release: str) -> int:
    """Run what the gate lets through, interleaved; record what it refuses. Returns the exit code."""
    session_id = new_session_id()
    folders: list[Path] = []
    runnable: list[Experiment] = []
    kinds: dict[str, str] = {}
    for which in chosen:
        answer = ask_gate(which.precision, host, STACK, release)
        kinds[which.name] = "measured" if answer.status == "native" else "emulated"
        if answer.status != "unsupported":
            runnable.append(which)
            continue
        record = run_record(which, host, release, {"id": session_id, "repeat": None})
        with RunFolder(args.runs, STACK, which.name, f"{session_id}-gate", record) as folder:
            folder.finish("unsupported", f"{answer.reason} ({answer.source})", EXIT_UNSUPPORTED)
        folders.append(folder.path)
        say(f"{which.name}: unsupported here: {answer.reason}")
    failed = 0
    baseline: dict[str, Any] = {}
    total = args.repeats * len(runnable)
    for number in range(total):
        repeat, which = number // len(runnable) + 1, runnable[number % len(runnable)]
        session = {"id": session_id, "repeat": repeat, "order": number, "repeats": args.repeats}
        record = {**run_record(which, host, release, session), "kind": kinds[which.name]}
        folder = RunFolder(args.runs, STACK, which.name, f"{session_id}-r{repeat}", record)
        folders.append(folder.path)
        try:
            run_one(which, folder, baseline, host["gpu_uuid"])
            say(f"[{number + 1}/{total}] {which.name} repeat {repeat}: {folder.path}")
        except Exception as error:
            failed += 1
            why = (str(error).splitlines() or [type(error).__name__])[0][:200]
            say(f"[{number + 1}/{total}] {which.name} repeat {repeat}: FAILED: {why}")
        release_memory()
    if args.session_file:
        paths = [path.relative_to(args.runs).as_posix() for path in folders]
        write_atomically(args.session_file, to_json({"session": session_id, "runs": paths}))
    if failed:
        return EXIT_FAILED
    return EXIT_OK if runnable else EXIT_UNSUPPORTED


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line to arguments; defaults come from experiments.yaml."""
    rows = load_experiments()
    parser = argparse.ArgumentParser(prog="te_layers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--model", required=True, help=f"one of {', '.join(rows.models)}")
    parser.add_argument("--precision", action="append", help="default: every precision of experiments.yaml")
    parser.add_argument("--repeats", type=int, default=rows.repeats)
    parser.add_argument("--iterations", type=int, help="timed iterations (default: experiments.yaml)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders go")
    parser.add_argument("--session-file", type=Path, help="write the list of run folders here when all have ended")
    parser.add_argument("--check", action="store_true", help="check host and gate, run nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    try:
        args = parse(arguments)
        rows = load_experiments()
        chosen = [experiment(args.kind, args.model, p, args.iterations) for p in args.precision or rows.precisions]
        with lent_gpus(rows.gpus):
            host = probe()
            check_host(host, rows, max(memory_need_bytes(which) for which in chosen))
            if not args.check:
                return run_all(chosen, host, args, rows.release)
        for which in chosen:
            answer = ask_gate(which.precision, host, STACK, rows.release)
            say(f"{which.name}: {answer.status}: {answer.reason}")
        return EXIT_OK
    except (CatalogError, RunError) as error:
        say(f"te_layers: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
