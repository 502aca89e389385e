"""One task of a Slurm job, a process a GPU: the first checks the node and seals the run, the others join it.

    srun ... python3 -m recipes.maxtext.task EXPERIMENT --runs RUNS --session ID --ranks FOLDER

Arguments and exit codes are those of `recipes.maxtext.launch`. JAX finds the others by what Slurm says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from recipes.launching import rank
from recipes.maxtext.environment import rank_environment
from recipes.maxtext.experiments import STACK, experiment
from recipes.maxtext.launch import command, main, parse
from recipes.slurm import join


def joined(arguments: Sequence[str]) -> NoReturn:
    """Become a rank of the run that the first task has opened."""
    args = parse(arguments)
    which = experiment(args.experiment)
    folder = join(STACK, which.name, args)
    start = command(args)
    os.chdir(folder)
    os.execve(start[0], start, rank_environment(which))  # noqa: S606 (no shell)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) if rank() == 0 else joined(sys.argv[1:]))
