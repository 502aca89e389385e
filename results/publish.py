"""Publish runs: copy sealed run folders into results/raw, version them with DVC, keep the small ones in git's company.

    python -m results.publish --runs runs

The only writer of `results/raw`. A folder appears there whole or not at all, is never changed afterwards, and a folder
that its manifest does not bear out is refused. What is under --max-mib an experiment is pushed to `results/reference`,
the remote that travels with git; larger experiments go to a remote of your own (`dvc push -r NAME`).
Exit codes: 0 published (or nothing to do), 1 some folder was refused (the others were published), 2 nothing was, or
not everything is where it belongs: the disk is full, DVC failed, a remote is gone. Publishing again goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from recipes.runs import LOG, MANIFEST, METRICS, RUN_JSON, RunError, find_runs, is_complete, manifest_faults
from results.pointers import incomplete, pointer_of

RAW = Path("results/raw")
REMOTE = "reference"
LOCK = Path(".dvc/tmp/publish.lock")  # DVC's own lock is held by single commands, and a publication is several
AGAIN = "nothing is lost or half published; publish again afterwards"


class Refused(RunError):
    """One folder is not published; others may be."""


@contextlib.contextmanager
def alone(lock: Path = LOCK) -> Iterator[None]:
    """Hold this repository against every other publication until the end; waits for the one that holds it.

    The lock is the kernel's, so that a killed process holds nothing.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("publish: waiting for another one in this repository", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def dvc(*arguments: str) -> None:
    """Run DVC, waiting for its lock. Raises RunError with its last line when it fails."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise RunError(f"dvc {arguments[0]} failed: {lines[-1] if lines else 'no message'}")


def copy_run(folder: Path, raw: Path) -> Path:
    """Copy one sealed run folder to its place under `raw`; returns the experiment's folder there.

    Raises Refused when the folder is not intact, or when another one of that name was published before; RunError when
    it cannot be written.
    """
    target = raw.joinpath(*folder.parts[-3:])
    if not target.exists():
        copy_whole(folder, target)
        return target.parent
    _check(folder, folder)
    same = (folder / MANIFEST).read_bytes() == (target / MANIFEST).read_bytes() if is_complete(target) else False
    if not same or manifest_faults(target):
        raise Refused(f"{folder}: not published: {target} holds a different run of this name")
    return target.parent


def copy_whole(folder: Path, target: Path, required: tuple[str, ...] = (RUN_JSON, LOG, METRICS)) -> None:
    """Copy a sealed folder so that `target` appears whole and intact, or not at all.

    What is half done lies outside the experiment. `required`: as in manifest_faults. Raises Refused when what was
    copied is not what the manifest says, RunError when it cannot be written.
    """
    aside = target.parent.parent / f".{target.parent.name}.{target.name}.partial"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(folder, aside, copy_function=_copy)
        _check(aside, folder, required)
        aside.rename(target)
    except OSError as error:
        raise RunError(f"{target}: {error.strerror or error}; {AGAIN}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _copy(source: str, target: str) -> None:
    """Copy a file. The first that cannot be written ends the copy: `copytree` by itself would try all others."""
    try:
        shutil.copy2(source, target)
    except OSError as error:
        raise RunError(f"{target}: {error.strerror or error}; {AGAIN}") from error


def _check(folder: Path, said: Path, required: tuple[str, ...] = (RUN_JSON, LOG, METRICS)) -> None:
    faults = manifest_faults(folder, required)
    if faults:
        raise Refused(f"{said}: not published: {'; '.join(message for _, message in faults)}")


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
        except Refused as error:
            refused.append(str(error))
    if touched:
        _versioned(touched)
        small = [path for path in sorted(touched) if _size(path) <= max_bytes]
        if small:
            _pushed(small)
        for path in sorted(touched - set(small)):
            print(f"{path}: too large for {REMOTE}; push it to a remote of your own", file=sys.stderr)
    return sorted(touched), refused


def _versioned(touched: set[Path]) -> None:
    try:
        dvc("add", "-q", *(str(path) for path in sorted(touched)))
    except RunError as error:
        raise RunError(f"{error}; {AGAIN}") from error


def _pushed(small: list[Path]) -> None:
    try:
        dvc("push", "-q", "-r", REMOTE, *(str(pointer_of(path)) for path in small))
    except RunError as error:
        raise RunError(
            f"{error}; the runs are versioned here and in DVC's cache, remote {REMOTE} lacks them: publish again when"
            " it can be reached"
        ) from error


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m results.publish", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--max-mib", type=int, default=16, help="largest experiment kept in results/reference")
    args = parser.parse_args()
    try:
        with alone():
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
