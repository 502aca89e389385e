"""What sending a job to Slurm takes, whatever trains in it: options, checks before hours in a queue, the wait."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from recipes.images import check_pinned
from recipes.jobs import seconds_of
from recipes.launching import CHECKOUT, rank, say
from recipes.runs import (
    EXIT_FAILED,
    RUN_JSON,
    RunError,
    git_state,
    run_pattern,
)

RACK_NODES = 18  # GB200 and GB300: nodes of one NVLink rack
# the first rank reads the node and imports Transformer Engine before it opens the run folder
FIRST_RANK_S = 900.0


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """What every stack's submit takes."""
    parser.add_argument("experiment")
    parser.add_argument("--account", required=True)
    parser.add_argument("--partition", required=True)
    parser.add_argument("--home", type=Path, required=True, help="shared folder for jobs and their results")
    parser.add_argument(
        "--image", help="container image, by digest or an imported one's path (default: containers/images.lock.yaml)"
    )
    parser.add_argument("--mount", action="append", default=[], metavar="SOURCE:TARGET")
    parser.add_argument("--gpus-per-node", type=int, help="what your nodes have, to be checked")
    parser.add_argument("--gres", help="where the cluster wants GPUs to be asked for, e.g. gpu:8 or gpu:h100:8")
    parser.add_argument("--time-limit", default="", help="HH:MM:SS (default: experiments.yaml)")
    parser.add_argument(
        "--resubmit",
        type=int,
        default=1,
        metavar="N",
        help="with --wait: send again what Slurm ended (default: 1)",
    )
    parser.add_argument("--steps", type=int, help="default: experiments.yaml")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="K", help="keep a checkpoint every K steps")
    parser.add_argument("--dry-run", action="store_true", help="write the sbatch script, submit nothing")
    parser.add_argument("--wait", action="store_true", help="wait for the job's end, and exit as its run did")
    parser.add_argument("--session-file", type=Path, help="with --wait: list the run folder here when it has completed")


def check_place(name: str, gpus_per_node: int, args: argparse.Namespace) -> None:
    """Refuse a place that would fail after hours in a queue. Raises RunError."""
    if args.gpus_per_node and args.gpus_per_node != gpus_per_node:
        raise RunError(
            f"{name} is for nodes of {gpus_per_node} GPUs, --gpus-per-node says {args.gpus_per_node}: its layout would"
            " be another one; choose the experiment of your hardware"
        )
    image = args.image
    check_pinned(image)
    if image.startswith("/") and not Path(image).exists():
        raise RunError(f"--image {image}: not there; import it first (enroot import)")
    if args.time_limit:
        seconds_of(args.time_limit)
    unfit = [path for path in (str(args.home), image, *args.mount) if set(path) & set(" \t,'\"")]
    if unfit:
        raise RunError(f"{unfit[0]!r}: paths go into a script as they are; choose one without spaces, commas")
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


def segment(nodes: int, gpus_per_node: int) -> int | None:
    """Nodes that Slurm keeps in one rack, for GB200 jobs larger than a rack: the largest divisor that fits one."""
    if gpus_per_node != 4 or nodes <= RACK_NODES:
        return None
    return next(n for n in range(RACK_NODES, 0, -1) if nodes % n == 0)


def join(stack: str, experiment: str, args: argparse.Namespace) -> Path:
    """Wait for the run folder that the job's first task opens, and write to this rank's own log from now on.

    `args`: a launcher's, with `session` and `ranks`. Returns the folder; ends this task when it does not appear.
    """
    run_id = f"{args.session}-r{args.repeat}"
    folder = Path(run_pattern(str(args.runs)).format(stack=stack, experiment=experiment, run_id=run_id))
    end = time.monotonic() + FIRST_RANK_S
    while not (folder / RUN_JSON).is_file():
        if time.monotonic() > end:
            say(f"{experiment}: rank {rank()} has waited {FIRST_RANK_S:.0f} s for {folder}; see the first rank's log")
            sys.exit(EXIT_FAILED)
        time.sleep(1.0)
    args.ranks.mkdir(parents=True, exist_ok=True)
    log = os.open(args.ranks / f"rank-{rank()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return folder
