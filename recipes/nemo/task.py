"""One task of a Slurm job, a rank each: the first checks the node and seals the run, the others join it.

    srun ... python -m recipes.nemo.task EXPERIMENT --runs RUNS --session ID --ranks FOLDER

Arguments and exit codes are those of `recipes.nemo.launch`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from recipes.launching import rank, say
from recipes.nemo.experiments import STACK, experiment
from recipes.nemo.launch import HOMES, command, main, parse, rank_environment
from recipes.runs import EXIT_FAILED, RUN_JSON, run_pattern

# the first rank reads the node and imports Transformer Engine before it opens the run folder
PATIENCE_S = 900.0


def joined(arguments: Sequence[str]) -> int:
    """Become a rank of the run that the first task has opened; returns only when there is none."""
    args = parse(arguments)
    which = experiment(args.experiment)
    run_id = f"{args.session}-r{args.repeat}"
    folder = Path(run_pattern(str(args.runs)).format(stack=STACK, experiment=which.name, run_id=run_id))
    end = time.monotonic() + PATIENCE_S
    while not (folder / RUN_JSON).is_file():
        if time.monotonic() > end:
            say(f"{which.name}: rank {rank()} has waited {PATIENCE_S:.0f} s for {folder}; see the first rank's log")
            return EXIT_FAILED
        time.sleep(1.0)
    args.ranks.mkdir(parents=True, exist_ok=True)
    log = os.open(args.ranks / f"rank-{rank()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    scratch = tempfile.mkdtemp(prefix="fewbits-nemo-")
    start = command(which, args)
    os.chdir(folder)
    os.execve(start[0], start, {**rank_environment(which), **dict.fromkeys(HOMES, scratch)})  # noqa: S606 (no shell)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if rank() == 0 else joined(sys.argv[1:]))
