"""Publish runs: copy sealed run folders into results/raw, version them with DVC, keep the small ones in git's company.

    python -m results.publish --runs runs

The only writer of `results/raw`. A folder appears there whole or not at all, is never changed afterwards, and a folder
that its manifest does not bear out is refused. What is under --max-mib an experiment is pushed to `results/reference`,
the remote that travels with git; larger experiments go to a remote of your own (`dvc push -r NAME`).
Exit codes: 0 published (or nothing to do), 1 some folder was refused (the others were published), 2 DVC failed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from recipes.runs import RunError, find_runs, is_complete, manifest_faults, sha256_of
from results.pointers import incomplete, pointer_of

RAW = Path("results/raw")
REMOTE = "reference"


def dvc(*arguments: str) -> None:
    """Run DVC, waiting for its lock. Raises RunError with its last line when it fails."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise RunError(f"dvc {arguments[0]} failed: {lines[-1] if lines else 'no message'}")


def copy_run(folder: Path, raw: Path) -> Path:
    """Copy one sealed run folder to its place under `raw`; returns the experiment's folder there.

    Raises RunError when the folder is not intact, or when another one of that name was published before.
    """
    faults = manifest_faults(folder)
    if faults:
        raise RunError(f"{folder}: not published: {'; '.join(message for _, message in faults)}")
    target = raw.joinpath(*folder.parts[-3:])
    if target.exists():
        if _same(folder, target):
            return target.parent
        raise RunError(f"{folder}: not published: {target} holds a different run of this name")
    copy_whole(folder, target)
    return target.parent


def copy_whole(folder: Path, target: Path) -> None:
    """Copy a folder so that `target` appears whole or not at all; what is half done lies outside the experiment."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.parent.parent / f".{target.parent.name}.{target.name}.partial"
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(folder, aside)
    aside.rename(target)


def _same(left: Path, right: Path) -> bool:
    names = [{p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()} for root in (left, right)]
    return names[0] == names[1] and all(sha256_of(left / name) == sha256_of(right / name) for name in names[0])


def fetch_earlier(experiments: set[Path]) -> None:
    """Bring back what was published of these experiments before and is not here, whole or in part.

    Without it, adding a new run would publish an experiment that has lost its old ones. Raises RunError when something
    cannot be had: then nothing is published.
    """
    pointers = [pointer_of(experiment) for experiment in sorted(experiments) if pointer_of(experiment).is_file()]
    lacking = [pointer for pointer in pointers if incomplete(pointer)]
    if lacking:
        dvc("pull", "-q", *map(str, lacking))
    lost = [str(pointer) for pointer in lacking if incomplete(pointer)]
    if lost:
        raise RunError(f"nothing was published: earlier runs cannot be fetched ({', '.join(lost)})")


def publish(runs: Path, raw: Path, max_bytes: int) -> tuple[list[Path], list[str]]:
    """Publish every sealed run under `runs`; returns the experiments touched and one line for each refused folder."""
    sealed = [folder for folder in find_runs(runs) if is_complete(folder)]
    fetch_earlier({raw.joinpath(*folder.parts[-3:-1]) for folder in sealed})
    touched: set[Path] = set()
    refused: list[str] = []
    for folder in sealed:
        try:
            touched.add(copy_run(folder, raw))
        except RunError as error:
            refused.append(str(error))
    if touched:
        dvc("add", "-q", *(str(path) for path in sorted(touched)))
        small = [path for path in sorted(touched) if _size(path) <= max_bytes]
        if small:
            dvc("push", "-q", "-r", REMOTE, *(str(pointer_of(path)) for path in small))
        for path in sorted(touched - set(small)):
            print(f"{path}: too large for {REMOTE}; push it to a remote of your own", file=sys.stderr)
    return sorted(touched), refused


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m results.publish", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--max-mib", type=int, default=16, help="largest experiment kept in results/reference")
    args = parser.parse_args()
    try:
        touched, refused = publish(args.runs, RAW, args.max_mib * 2**20)
    except RunError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 2
    for line in refused:
        print(f"publish: {line}", file=sys.stderr)
    print(f"published {len(touched)} experiments from {args.runs}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
