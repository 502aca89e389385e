"""Send a whole model to a Slurm cluster, or show what would be sent.

    python -m recipes.maxtext.submit llama31_405b-gb200-nvfp4 --account A --partition P --home /shared/me/fewbits \\
        --image /shared/images/maxtext.sqsh

Run in a git checkout on the login node; nothing but this project's own environment is needed. The job leaves its run
folder in HOME/runs; publish it with `snakemake publish --config runs=HOME/runs`. Exit codes: 0 submitted (written, with
--dry-run; completed, with --wait), 1 the job failed (--wait), 2 wrong arguments or a cluster that does not fit, 3 the
gate refuses the experiment.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.catalog import CatalogError
from recipes.images import pinned
from recipes.jobs import Sent, carry_through
from recipes.launching import CHECKOUT, IMAGE, say
from recipes.maxtext.experiment_file import load_experiments
from recipes.maxtext.experiments import STACK, Experiment, experiment, refused
from recipes.runs import (
    EXIT_OK,
    EXIT_UNSUPPORTED,
    EXIT_USAGE,
    RunError,
    git_state,
    new_session_id,
    run_pattern,
    write_atomically,
)
from recipes.slurm import add_place_options, check_place, segment


def check(which: Experiment, args: argparse.Namespace) -> None:
    """Refuse what would fail after hours in a queue. Raises RunError."""
    if not which.gpus_per_node:
        raise RunError(f"{which.name} is no cluster experiment; run it here: python -m recipes.maxtext.launch")
    args.image = args.image or pinned(STACK)
    check_place(which.name, which.gpus_per_node, args)


def script(which: Experiment, args: argparse.Namespace, session: str, commit: str | None, limit: str = "") -> str:
    """The sbatch script: one task a GPU in the container, each of them recipes.maxtext.task."""
    limit = limit or time_limit(args)
    home = args.home.absolute()
    job = home / "jobs" / session
    racked = segment(which.nodes, which.gpus_per_node)
    options = {
        "job-name": which.name,
        "account": args.account,
        "partition": args.partition,
        "nodes": which.nodes,
        "ntasks-per-node": which.gpus_per_node,
        "time": limit,
        "mem": 0,
        "output": job / "slurm.out",
        **({"gres": args.gres} if args.gres else {}),
        **({"segment": racked} if racked else {}),
    }
    task = ["python3", "-m", "recipes.maxtext.task", which.name, "--runs", str(home / "runs"), "--session", session]
    task += ["--ranks", str(home / "ranks" / session)]
    task += ["--steps", str(args.steps)] if args.steps else []
    task += ["--checkpoint-every", str(args.checkpoint_every)] if args.checkpoint_every else []
    mounts = ",".join([f"{home}:{home}", *args.mount])
    container = [
        "--container-image",
        args.image,
        "--container-mounts",
        mounts,
        "--container-workdir",
        str(job / "code"),
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in options.items())]
    # a job that Slurm starts anew would find its own run folder there; recipes.jobs sends a new one
    lines += ["#SBATCH --exclusive", "#SBATCH --no-requeue"]
    lines += ["set -eu", f"export FEWBITS_COMMIT={commit or ''} {IMAGE}={shlex.quote(args.image)}"]
    # a task that fails ends the job: the others would wait for it until the time limit
    lines += [f"srun --kill-on-bad-exit=1 {shlex.join(container)} \\", f"    {shlex.join(task)}"]
    return "\n".join(lines) + "\n"


def time_limit(args: argparse.Namespace) -> str:
    """What was asked for, or experiments.yaml's."""
    return args.time_limit or load_experiments().cluster.time_limit


def pack(job: Path) -> None:
    """The committed code under `job/code`. Raises RunError."""
    code = job / "code"
    code.mkdir(parents=True)
    packed = subprocess.run(["git", "-C", str(CHECKOUT), "archive", "HEAD", "recipes", "envs"], capture_output=True)
    unpacked = subprocess.run(["tar", "-x", "-C", str(code)], input=packed.stdout, capture_output=True)
    if packed.returncode or unpacked.returncode:
        said = (packed.stderr + unpacked.stderr).decode(errors="replace").strip().splitlines() or ["no message"]
        raise RunError(f"the code could not be packed into {code}: {said[-1]}")


def submit(path: Path) -> str:
    """Hand a script to sbatch; returns the job's id. Raises RunError."""
    done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"sbatch refused {path}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout.strip().split(";")[0]


def write_script(which: Experiment, args: argparse.Namespace, session: str, commit: str | None, limit: str) -> Path:
    """Write a job's script under HOME/jobs; returns its path."""
    path: Path = args.home.absolute() / "jobs" / session / "job.sh"
    write_atomically(path, script(which, args, session, commit, limit))
    return path


def send(which: Experiment, args: argparse.Namespace, limit: str) -> Sent:
    """Pack the committed code and hand a new job to Slurm. Raises RunError."""
    session = new_session_id()
    path = write_script(which, args, session, git_state(CHECKOUT)["commit"], limit)
    pack(path.parent)
    pattern = run_pattern(str(args.home.absolute() / "runs"))
    folder = Path(pattern.format(stack=STACK, experiment=which.name, run_id=f"{session}-r1"))
    return Sent(submit(path), folder, path.parent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="maxtext submit", description=(__doc__ or "").split("\n")[0])
    add_place_options(parser)
    args = parser.parse_args(arguments)
    try:
        which = experiment(args.experiment)
        why = refused(which)
        if why:
            say(f"{which.name}: unsupported: {why}")
            return EXIT_UNSUPPORTED
        check(which, args)
        if args.dry_run:
            path = write_script(which, args, new_session_id(), None, time_limit(args))
            say(f"{which.name}: written to {path}")
            return EXIT_OK
        if args.wait:
            return carry_through(
                which.name, lambda limit: send(which, args, limit), time_limit(args), args.resubmit, args.session_file
            )
        sent = send(which, args, time_limit(args))
        say(f"{which.name}: job {sent.slurm_id} submitted, log in {sent.log}; its run will be {sent.folder}")
        return EXIT_OK
    except (CatalogError, RunError) as error:
        say(f"maxtext submit: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
