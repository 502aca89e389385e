"""Send a full recipe to a Slurm cluster, or show what would be sent.

    python -m recipes.nemo.submit llama31_405b-gb200-fp8_current --account A --partition P --home /shared/me/fewbits

Run in a git checkout on the login node, with envs/nemo. The job leaves its run folder in HOME/runs; publish it with
`snakemake publish --config runs=HOME/runs`. Exit codes: 0 submitted (written, with --dry-run; completed, with --wait),
1 the job failed (--wait), 2 wrong arguments or a cluster that does not fit, 3 the gate refuses the experiment.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.catalog import CatalogError
from recipes.images import pinned
from recipes.jobs import Sent, carry_through
from recipes.launching import say
from recipes.nemo.experiment_file import load_experiments
from recipes.nemo.experiments import STACK, Experiment, experiment, refused
from recipes.runs import EXIT_OK, EXIT_UNSUPPORTED, EXIT_USAGE, RunError, new_session_id, run_pattern
from recipes.slurm import add_place_options, check_place


def check(which: Experiment, args: argparse.Namespace) -> None:
    """Refuse what would fail after hours in a queue. Raises RunError."""
    if which.tier in ("one_gpu", "one_host"):
        raise RunError(f"{which.name} is no cluster experiment; run it here: python -m recipes.nemo.launch")
    args.image = args.image or pinned(load_experiments().releases[which.release].image)
    check_place(which.name, which.gpus_per_node, args)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line to arguments."""
    parser = argparse.ArgumentParser(prog="nemo submit", description=(__doc__ or "").split("\n")[0])
    add_place_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parse(arguments)
    try:
        which = experiment(args.experiment)
        why = refused(which) if which.tier == "cluster" else None
        if why:
            say(f"{which.name}: unsupported: {why}")
            return EXIT_UNSUPPORTED
        check(which, args)
        home = args.home.absolute()
        home.mkdir(parents=True, exist_ok=True)
        os.environ["NEMORUN_HOME"] = str(home)  # nemo_run reads it when it is imported
        # late: what is wrong with the arguments is answered without NeMo
        try:
            from recipes.nemo.cluster import Place, submit
        except ModuleNotFoundError as error:
            raise RunError(
                f"{error.name} is not installed here; run this with build/envs/nemo/bin/python, which `snakemake"
                " nemo_environment` builds"
            ) from error
        more = ["--steps", str(args.steps)] * bool(args.steps)
        more += ["--checkpoint-every", str(args.checkpoint_every)] * bool(args.checkpoint_every)

        def send(limit: str) -> Sent:
            place = Place(args.account, args.partition, args.image, home, tuple(args.mount), limit, args.gres)
            session = new_session_id()
            job = submit(which, place, session, args.dry_run, more)
            pattern = run_pattern(str(home / "runs"))
            folder = Path(pattern.format(stack=STACK, experiment=which.name, run_id=f"{session}-r1"))
            return Sent(str(job.slurm_id), folder, job.folder)

        limit = args.time_limit or load_experiments().cluster.time_limit
        if args.wait and not args.dry_run:
            return carry_through(which.name, send, limit, args.resubmit, args.session_file)
        sent = send(limit)
        if args.dry_run:
            say(f"{which.name}: written to {sent.log}")
        else:
            say(f"{which.name}: job {sent.slurm_id} submitted, log in {sent.log}; its run will be {sent.folder}")
        return EXIT_OK
    except (CatalogError, RunError) as error:
        say(f"nemo submit: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
