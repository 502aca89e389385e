"""Send a full recipe to a Slurm cluster, or show what would be sent.

    python -m recipes.nemo.submit llama31_405b-gb200-fp8_current --account A --partition P --home /lustre/me/fewbits

Run in a git checkout on the login node, with envs/nemo. Exit codes: 0 submitted (or written, with --dry-run), 2 wrong
arguments or a cluster that does not fit, 3 the gate refuses the experiment on the hardware it names.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from recipes.catalog import CatalogError
from recipes.launching import CHECKOUT, say
from recipes.nemo.experiments import Experiment, experiment, load_experiments, refused
from recipes.runs import EXIT_OK, EXIT_UNSUPPORTED, EXIT_USAGE, RunError, git_state


def check(which: Experiment, args: argparse.Namespace) -> None:
    """Refuse what would fail after hours in a queue. Raises RunError."""
    if which.tier != "cluster":
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="nemo submit", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("experiment")
    parser.add_argument("--account", required=True)
    parser.add_argument("--partition", required=True)
    parser.add_argument("--home", type=Path, required=True, help="shared folder for jobs and their results")
    parser.add_argument("--image", help="container image (default: the release's, by tag)")
    parser.add_argument("--mount", action="append", default=[], metavar="SOURCE:TARGET")
    parser.add_argument("--gpus-per-node", type=int, help="what your nodes have, to be checked")
    parser.add_argument("--time-limit", default="", help="HH:MM:SS (default: experiments.yaml)")
    parser.add_argument("--dry-run", action="store_true", help="write the sbatch script, submit nothing")
    args = parser.parse_args(arguments)
    try:
        which = experiment(args.experiment)
        args.image = args.image or load_experiments().releases[which.release].image
        check(which, args)
        why = refused(which)
        if why:
            say(f"{which.name}: unsupported: {why}")
            return EXIT_UNSUPPORTED
        # late: what is wrong with the arguments is answered without NeMo
        from recipes.nemo.cluster import Place, submit

        place = Place(
            args.account, args.partition, args.image, args.home.absolute(), tuple(args.mount), args.time_limit
        )
        folder = submit(which, place, args.dry_run)
        say(f"{which.name}: {'written to' if args.dry_run else 'submitted from'} {folder}")
        return EXIT_OK
    except (CatalogError, RunError) as error:
        say(f"nemo submit: {error}")
        return EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
