"""From an experiment to a run folder: check the host, ask the gate, train, seal what is left.

    python -m recipes.maxtext.launch llama3_8b-cpu-nvfp4 --runs runs

Exit codes: 0 the run completed, 1 it failed, 2 wrong arguments or host, 3 the gate refused (recorded as a run), and
128 + n when signal n stopped it. Whole models go to a cluster instead: `python -m recipes.maxtext.submit`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from recipes.catalog import CatalogError
from recipes.checkpoints import set_aside
from recipes.gpus import lent_gpus
from recipes.host import probe_apart
from recipes.launching import (
    IMAGE,
    add_training_options,
    ask_gate,
    base_record,
    conclude,
    launched,
    refuse,
    report,
    resumed_from,
    run_parser,
    say,
    take_facts,
    take_failed_ranks,
)
from recipes.maxtext.arguments import CHECKPOINTS, OUTPUT
from recipes.maxtext.environment import GPU_LOCK, LOCK, check_host, rank_environment
from recipes.maxtext.experiments import STACK, Experiment, experiment
from recipes.maxtext.host import ENVIRONMENT as PROBING
from recipes.maxtext.host import library_path
from recipes.maxtext.rehearse import main as rehearse
from recipes.maxtext.saving import tidy
from recipes.power import PowerSampler
from recipes.ranks import rank_command, run_ranks
from recipes.runs import (
    EXIT_OK,
    EXIT_UNSUPPORTED,
    EXIT_USAGE,
    POWER,
    RunError,
    RunFolder,
    new_session_id,
)


def read_host(which: Experiment) -> dict[str, Any]:
    """What the host is, read by a process that holds no GPU afterwards; a CPU run has none. Raises RunError."""
    if which.tier == "cpu":
        return {"gpus": 0, "versions": probe_apart()["versions"]}
    host = probe_apart("recipes.maxtext.host", {**PROBING, "LD_LIBRARY_PATH": library_path()})
    if not host["gpus"]:
        raise RunError(
            f"{which.name} needs an NVIDIA GPU, JAX sees none here; on CPU run llama3_8b-cpu-...  (fewbits experiments)"
        )
    return host


def command(args: argparse.Namespace) -> list[str]:
    """The process that trains."""
    start = rank_command("recipes.maxtext.worker", 1)
    start += ["--checkpoint-every", str(args.checkpoint_every)] if args.checkpoint_every else []
    return start + (["--resume", str(args.resume)] if args.resume else [])


def describe(which: Experiment, host: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """run.json's part that is known before the run."""
    session = {"id": args.session or new_session_id(), "repeat": args.repeat}
    if args.resume:
        session["resumed_from"] = resumed_from(args.resume)
    image = os.environ.get(IMAGE)
    locks = [] if image else [LOCK if which.tier == "cpu" else GPU_LOCK]
    record = base_record(which, which.precision, which.release, host, locks, session, rank_environment(which))
    record["seed"] = which.seed
    if image:
        record["environment"]["image"] = image
    return record


def run(which: Experiment, args: argparse.Namespace) -> int:
    """One experiment, one run folder; returns the exit code."""
    host = read_host(which)
    answer = ask_gate(which.precision, host, STACK, which.release)
    record = describe(which, host, args)
    session_id = record["session"]["id"]
    refused = answer.reason if answer.status == "unsupported" else None
    if answer.status == "emulated" and not which.emulated:
        refused = f"not native here, and {which.name} does not ask for emulation: {answer.reason}"
    if refused:
        refuse(args.runs, STACK, which.name, session_id, record, f"{refused} ({answer.source})")
        return EXIT_UNSUPPORTED
    check_host(which, host, bool(args.ranks))
    narrow = which.emulated and which.precision != "bf16"
    record["kind"] = "emulated" if narrow else "measured"
    with RunFolder(args.runs, STACK, which.name, f"{session_id}-r{args.repeat}", record) as folder:
        sampled = PowerSampler(folder.path / POWER, host["gpu_uuid"]) if "gpu_uuid" in host else None
        with sampled if sampled and which.nodes == 1 else contextlib.nullcontext():
            code = run_ranks(command(args), folder, rank_environment(which))
        facts = take_facts(folder, STACK)
        folder.record["data"] = facts.pop("data", None)
        done = facts.get("steps_done") == which.steps
        if args.ranks and not done and code <= 128:  # a job that is being cancelled has no time to look at ranks
            take_failed_ranks(folder.path, args.ranks)
        code = conclude(folder, code, done)
        keep = args.checkpoint_every and (code == EXIT_OK or code > 128)
        tidy(folder.path / CHECKPOINTS)
        folder.record["checkpoint"] = set_aside(folder.path / CHECKPOINTS, folder.path) if keep else None
        shutil.rmtree(folder.path / OUTPUT, ignore_errors=True)
    report(folder, args)
    return code


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line to arguments."""
    parser = run_parser("maxtext", __doc__, "llama3_8b-cpu-nvfp4 (all: `fewbits experiments`)")
    add_training_options(parser)
    parser.add_argument("--rehearse", action="store_true", help="only compile, on CPU, for as many virtual devices")
    return launched(parser.parse_args(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parse(arguments)
    if args.rehearse:
        return rehearse([args.experiment])
    try:
        which = experiment(args.experiment)
        if args.steps:
            which = which.model_copy(update={"steps": args.steps})
        # a cluster's scheduler has chosen the GPUs, and a CPU run needs none
        with lent_gpus(which.layout.gpus) if which.tier in ("one_gpu", "one_host") else contextlib.nullcontext():
            return run(which, args)
    except (CatalogError, RunError) as error:
        say(f"maxtext: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
