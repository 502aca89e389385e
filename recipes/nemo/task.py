"""One task of a Slurm job, a rank each: the first checks the node and seals the run, the others join it.

    srun ... python -m recipes.nemo.task EXPERIMENT --runs RUNS --session ID --ranks FOLDER

Arguments and exit codes are those of `recipes.nemo.launch`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import NoReturn

from recipes.launching import rank
from recipes.nemo.experiments import STACK, experiment
from recipes.nemo.launch import HOMES, command, main, parse, rank_environment
from recipes.slurm import join


def joined(arguments: Sequence[str]) -> NoReturn:
    """Become a rank of the run that the first task has opened."""
    args = parse(arguments)
    which = experiment(args.experiment)
    folder = join(STACK, which.name, args)
    scratch = tempfile.mkdtemp(prefix="fewbits-nemo-")
    start = command(which, args)
    os.chdir(folder)
    os.execve(start[0], start, {**rank_environment(which), **dict.fromkeys(HOMES, scratch)})  # noqa: S606 (no shell)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if rank() == 0 else joined(sys.argv[1:]))
