"""From an experiment to a run folder: check the host, start a rank a GPU, seal what they leave.

    python -m recipes.collectives.launch h200x2 --runs runs

Exit codes: 0 the run completed, 1 it failed, 2 wrong arguments or host, and 128 + n when signal n stopped it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from recipes.catalog import CatalogError
from recipes.collectives.experiments import STACK, Experiment, experiment, load_experiments
from recipes.gpus import lent_gpus
from recipes.host import probe_apart
from recipes.launching import NO_MULTICAST, base_record, conclude, python_path, report, run_parser, say
from recipes.ranks import rank_command, run_ranks, take_rank_logs
from recipes.runs import (
    EXIT_OK,
    EXIT_USAGE,
    RunError,
    RunFolder,
    new_session_id,
)

LOCK = "envs/nemo_gpu/requirements.lock"


def check_host(which: Experiment, host: dict[str, Any]) -> None:
    """Refuse a host that cannot run the experiment, before anything is written. Raises RunError."""
    if host["gpus"] != which.gpus:
        raise RunError(
            f"{which.name} runs on {which.gpus} GPUs, {host['gpus']} are visible; choose the experiment of your number"
        )
    need = 4 * max(which.bytes)  # two buffers, and as much again for what NCCL and torch keep
    if host["memory_free_bytes"] < need:
        raise RunError(f"{host['memory_free_bytes'] / 2**30:.1f} GiB of device memory free, {need / 2**30:.0f} needed")


def run(which: Experiment, args: argparse.Namespace) -> int:
    """One experiment, one run folder; returns the exit code."""
    host = probe_apart()
    check_host(which, host)
    session_id = new_session_id()
    session = {"id": session_id, "repeat": args.repeat}
    environment = {**os.environ, **NO_MULTICAST, "PYTHONPATH": python_path()}
    record = base_record(which, None, load_experiments().release, host, [LOCK], session, environment)
    with RunFolder(args.runs, STACK, which.name, f"{session_id}-r{args.repeat}", record) as folder:
        code = run_ranks(rank_command("recipes.collectives.worker", which.gpus), folder, environment)
        take_rank_logs(folder.path)
        code = conclude(folder, code, done=code == EXIT_OK)
    report(folder, args)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = run_parser("collectives", __doc__, "h200x2: two GPUs of this host")
    args = parser.parse_args(arguments)
    args.runs = args.runs.absolute()
    try:
        which = experiment(args.experiment)
        with lent_gpus(which.gpus):
            return run(which, args)
    except (CatalogError, RunError) as error:
        say(f"collectives: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
