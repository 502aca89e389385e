"""From an experiment to a run folder: check the host, start a rank a GPU, seal what they leave.

    python -m recipes.collectives.launch h200x2 --runs runs

Exit codes: 0 the run completed, 1 it failed, 2 wrong arguments or host, and 128 + n when signal n stopped it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipes.catalog import CatalogError
from recipes.collectives.experiments import STACK, Experiment, experiment, load_experiments
from recipes.gpus import lent_gpus
from recipes.host import probe_apart
from recipes.launching import NO_MULTICAST, base_record, python_path, say
from recipes.ranks import rank_command, run_ranks, take_rank_logs, why
from recipes.runs import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    LOG,
    RunError,
    RunFolder,
    new_session_id,
    to_json,
    write_atomically,
)

LOCK = "envs/nemo_gpu/requirements.lock"


def check_host(which: Experiment, host: dict[str, Any]) -> None:
    """Refuse a host that cannot run the experiment, before anything is written. Raises RunError."""
    if host["gpus"] != which.gpus:
        raise RunError(
            f"{which.name} runs on {which.gpus} GPUs, {host['gpus']} are visible; choose the experiment of your number"
        )
    need = 2 * max(which.bytes)
    if host["memory_free_bytes"] < 2 * need:  # buffers, and as much again for what NCCL and torch keep
        raise RunError(
            f"{host['memory_free_bytes'] / 2**30:.1f} GiB of device memory free, {2 * need / 2**30:.0f} needed"
        )


def run(which: Experiment, args: argparse.Namespace) -> int:
    """One experiment, one run folder; returns the exit code."""
    host = probe_apart()
    check_host(which, host)
    session_id = new_session_id()
    session = {"id": session_id, "repeat": args.repeat}
    record = base_record(which, None, load_experiments().release, host, [LOCK], session)
    environment = {**os.environ, **NO_MULTICAST, "PYTHONPATH": python_path()}
    with RunFolder(args.runs, STACK, which.name, f"{session_id}-r{args.repeat}", record) as folder:
        code = run_ranks(rank_command("recipes.collectives.worker", which.gpus), folder, environment)
        take_rank_logs(folder.path)
        if code == EXIT_OK:
            folder.finish("completed")
        elif code > 128:
            folder.finish("interrupted", f"stopped by signal {code - 128}", code)
        else:
            code = code or EXIT_FAILED
            folder.finish("failed", why(folder.path / LOG), code)
    say(f"{which.name}: {folder.record['outcome']['status']}: {folder.record['outcome']['reason'] or folder.path}")
    if args.session_file:
        paths = [folder.path.relative_to(args.runs).as_posix()]
        write_atomically(args.session_file, to_json({"session": session_id, "runs": paths}))
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="collectives", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiment", help="h200x2, say: so many GPUs of this host")
    parser.add_argument("--repeat", type=int, default=1, help="number of this repeat, for the run's name")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders go")
    parser.add_argument("--session-file", type=Path, help="write the list of run folders here when the run has ended")
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
