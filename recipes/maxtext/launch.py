"""From an experiment to a run folder: check the host, ask the gate, train, seal what is left.

    python -m recipes.maxtext.launch llama3_8b-cpu-nvfp4 --runs runs

Exit codes: 0 the run completed, 1 it failed, 2 wrong arguments or host, 3 the gate refused (recorded as a run), and
128 + n when signal n stopped it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from recipes.catalog import CatalogError
from recipes.host import probe_apart
from recipes.launching import ask_gate, base_record, conclude, python_path, refuse, report, run_parser, say, take_facts
from recipes.maxtext.arguments import OUTPUT
from recipes.maxtext.emulation import ENVIRONMENT as EMULATION
from recipes.maxtext.experiments import STACK, Experiment, experiment, load_experiments
from recipes.ranks import rank_command, run_ranks
from recipes.runs import (
    EXIT_UNSUPPORTED,
    EXIT_USAGE,
    RunError,
    RunFolder,
    new_session_id,
)

LOCK = "envs/maxtext/requirements.lock"
ENVIRONMENT = {
    "DECOUPLE_GCLOUD": "TRUE",  # no Google Cloud, no TensorBoard
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}
# LLVM with little optimization compiles NVFP4's step in 22 s instead of 90; a tiny step then takes 0.07 s
ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "XLA_FLAGS": "--xla_backend_optimization_level=1"}


def check_host(which: Experiment, host: dict[str, Any]) -> None:
    """Refuse a host that cannot run the experiment, before anything is written. Raises RunError."""
    wanted, found = load_experiments().maxtext, host["versions"].get("maxtext")
    if found is None:
        raise RunError("maxtext is not installed; `make reproduce_all` builds its environment (docs/maxtext.md)")
    if found != wanted:
        raise RunError(f"maxtext {found} found, {which.name} is for {wanted}; install {LOCK} anew")


def rank_environment(which: Experiment) -> dict[str, str]:
    """The environment of the process that trains."""
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": python_path()}
    environment.pop("XLA_FLAGS", None)
    if which.emulated:
        environment |= EMULATION
    return environment | (ON_CPU if which.tier == "cpu" else {})


def run(which: Experiment, args: argparse.Namespace) -> int:
    """One experiment, one run folder; returns the exit code."""
    host = probe_apart()
    if which.tier == "cpu":
        host = {"gpus": 0, "versions": host["versions"]}
    answer = ask_gate(which.precision, host, STACK, which.release)
    session_id = new_session_id()
    session, environment = {"id": session_id, "repeat": args.repeat}, rank_environment(which)
    record = base_record(which, which.precision, which.release, host, [LOCK], session, environment)
    record["seed"] = which.seed
    refused = answer.reason if answer.status == "unsupported" else None
    if answer.status == "emulated" and not which.emulated:
        refused = f"{answer.reason}; not native here, and {which.name} does not ask for emulation"
    if refused:
        refuse(args.runs, STACK, which.name, session_id, record, f"{refused} ({answer.source})")
        return EXIT_UNSUPPORTED
    check_host(which, host)
    narrow = which.emulated and which.precision != "bf16"
    record["kind"] = "emulated" if narrow else "measured"
    with RunFolder(args.runs, STACK, which.name, f"{session_id}-r{args.repeat}", record) as folder:
        code = run_ranks(rank_command("recipes.maxtext.worker", 1), folder, environment)
        facts = take_facts(folder, STACK)
        folder.record["data"] = facts.pop("data", None)
        code = conclude(folder, code, facts.get("steps_done") == which.steps)
        shutil.rmtree(folder.path / OUTPUT, ignore_errors=True)
    report(folder, args)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = run_parser("maxtext", __doc__, "llama3_8b-cpu-nvfp4 (all: `fewbits experiments`)")
    parser.add_argument("--steps", type=int, help="default: experiments.yaml")
    args = parser.parse_args(arguments)
    args.runs = args.runs.absolute()
    try:
        which = experiment(args.experiment)
        if args.steps:
            which = which.model_copy(update={"steps": args.steps})
        return run(which, args)
    except (CatalogError, RunError) as error:
        say(f"maxtext: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
