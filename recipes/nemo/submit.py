"""Send a full recipe to a Slurm cluster, or show what would be sent.

    python -m recipes.nemo.submit llama31_405b-gb200-fp8_current --account A --partition P --home /shared/me/fewbits

Run in a git checkout on the login node, with envs/nemo. The job leaves its run folder in HOME/runs; publish it with
`snakemake publish --config runs=HOME/runs`. Exit codes: 0 submitted (written, with --dry-run; completed, with --wait),
1 the job failed (--wait), 2 wrong arguments or a cluster that does not fit, 3 the gate refuses the experiment.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from recipes.catalog import CatalogError
from recipes.launching import CHECKOUT, say
from recipes.nemo.experiment_file import load_experiments
from recipes.nemo.experiments import STACK, Experiment, experiment, refused
from recipes.runs import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_UNSUPPORTED,
    EXIT_USAGE,
    RUN_JSON,
    RunError,
    git_state,
    is_complete,
    new_session_id,
    run_pattern,
    to_json,
    write_atomically,
)

POLL_S = 10.0
PATIENCE = 6  # a shared file system shows on the login node later what a compute node has written
RETRIES = 30  # a controller that restarts is back within minutes
ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
}


def check(which: Experiment, args: argparse.Namespace) -> None:
    """Refuse what would fail after hours in a queue. Raises RunError."""
    if which.tier in ("one_gpu", "one_host"):
        raise RunError(f"{which.name} is no cluster experiment; run it here: python -m recipes.nemo.launch")
    if args.gpus_per_node and args.gpus_per_node != which.gpus_per_node:
        raise RunError(
            f"{which.name} is for nodes of {which.gpus_per_node} GPUs, --gpus-per-node says {args.gpus_per_node}: its"
            " layout would be another one; choose the experiment of your hardware"
        )
    image = args.image
    if image.startswith(("./", "../")) or (image.endswith(".sqsh") and not image.startswith("/")):
        raise RunError(f"--image {image}: Slurm starts jobs elsewhere; give the image's absolute path")
    if image.startswith("/") and not Path(image).exists():
        raise RunError(f"--image {image}: not there; import it first (enroot import)")
    unfit = [path for path in (str(args.home), image, *args.mount) if set(path) & set(" \t,'\"")]
    if unfit:
        raise RunError(
            f"{unfit[0]!r}: nemo_run writes paths into its script as they are; choose one without spaces, commas"
        )
    for mount in args.mount:
        source = mount.split(":")[0]
        if not source.startswith("/") or ":" not in mount:
            raise RunError(f"--mount {mount}: must be /absolute/source:/target")
        if not args.dry_run and not Path(source).exists():
            raise RunError(f"--mount {mount}: {source} does not exist on this node")
    if args.dry_run:
        return
    if shutil.which("sbatch") is None:
        raise RunError("no sbatch here: run this on a login node, or add --dry-run")
    if git_state(CHECKOUT)["dirty"]:
        raise RunError("the checkout has uncommitted changes, and the job runs what is committed; commit them first")


def wait(which: Experiment, slurm_id: str, folder: Path, job: Path, session_file: Path | None) -> int:
    """Wait until Slurm has no such job any more; returns the exit code of the run that it left."""
    while in_queue(slurm_id):
        time.sleep(POLL_S)
    for _ in range(PATIENCE):
        if is_complete(folder):
            break
        time.sleep(POLL_S)
    if not is_complete(folder):
        gate = folder.with_name(folder.name.replace("-r1", "-gate"))
        if is_complete(gate):
            say(f"{which.name}: unsupported there, see {gate}")
            return EXIT_UNSUPPORTED
        say(f"{which.name}: job {slurm_id} has left no complete run in {folder}; its own log is in {job}")
        return EXIT_FAILED
    outcome = json.loads((folder / RUN_JSON).read_text(encoding="utf-8"))["outcome"]
    say(f"{which.name}: {outcome['status']}: {outcome['reason'] or folder}")
    if outcome["status"] == "completed" and session_file:
        name = folder.relative_to(folder.parents[2]).as_posix()
        write_atomically(session_file, to_json({"session": folder.name.removesuffix("-r1"), "runs": [name]}))
    return EXIT_OK if outcome["status"] == "completed" else EXIT_FAILED


def in_queue(slurm_id: str) -> bool:
    """Whether Slurm still holds the job. Raises RunError when it cannot be asked several times in a row."""
    said = ""
    for _ in range(RETRIES):
        done = subprocess.run(["squeue", "-h", "-o", "%T", "-j", slurm_id], capture_output=True, text=True)
        said = done.stderr.strip()
        if done.returncode == 0:
            return bool(set(done.stdout.split()) - ENDED)
        if "Invalid job id" in said:
            return False
        time.sleep(POLL_S)
    raise RunError(f"squeue cannot be asked for job {slurm_id}: {said}; the job itself goes on")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Command line to arguments."""
    parser = argparse.ArgumentParser(prog="nemo submit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("--account", required=True)
    parser.add_argument("--partition", required=True)
    parser.add_argument("--home", type=Path, required=True, help="shared folder for jobs and their results")
    parser.add_argument("--image", help="container image (default: the release's, by tag)")
    parser.add_argument("--mount", action="append", default=[], metavar="SOURCE:TARGET")
    parser.add_argument("--gpus-per-node", type=int, help="what your nodes have, to be checked")
    parser.add_argument("--gres", help="where the cluster wants GPUs to be asked for, e.g. gpu:8 or gpu:h100:8")
    parser.add_argument("--time-limit", default="", help="HH:MM:SS (default: experiments.yaml)")
    parser.add_argument("--steps", type=int, help="default: experiments.yaml")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="K", help="keep a checkpoint every K steps")
    parser.add_argument("--dry-run", action="store_true", help="write the sbatch script, submit nothing")
    parser.add_argument("--wait", action="store_true", help="wait for the job's end, and exit as its run did")
    parser.add_argument("--session-file", type=Path, help="with --wait: list the run folder here when it has completed")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = parse(arguments)
    try:
        which = experiment(args.experiment)
        args.image = args.image or load_experiments().releases[which.release].image
        check(which, args)
        why = refused(which) if which.tier == "cluster" else None
        if why:
            say(f"{which.name}: unsupported: {why}")
            return EXIT_UNSUPPORTED
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
        place = Place(args.account, args.partition, args.image, home, tuple(args.mount), args.time_limit, args.gres)
        session = new_session_id()
        more = ["--steps", str(args.steps)] * bool(args.steps)
        more += ["--checkpoint-every", str(args.checkpoint_every)] * bool(args.checkpoint_every)
        job = submit(which, place, session, args.dry_run, more)
        run_id = f"{session}-r1"
        folder = Path(run_pattern(str(home / "runs")).format(stack=STACK, experiment=which.name, run_id=run_id))
        if args.dry_run:
            say(f"{which.name}: written to {job.folder}")
            return EXIT_OK
        say(f"{which.name}: job {job.slurm_id} submitted from {job.folder}; its run will be {folder}")
        return wait(which, str(job.slurm_id), folder, job.folder, args.session_file) if args.wait else EXIT_OK
    except (CatalogError, RunError) as error:
        say(f"nemo submit: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
