"""Rebuild exhibits from raw results: fetch what is missing, refuse what was changed, then let DVC do its stages.

    python -m analysis.rebuild layer_speedup claims

Raw files that the versioned pointer does not bear out are named and nothing is built. A raw file that is gone, here and
in the remote, is not an error: its run is judged INCOMPLETE and the cell is empty with that reason.
Stages run one by one (`dvc repro --single-item`): plain `dvc repro` would take changed raw data for new data, and
rewrite the pointers that say what was published. Exit codes: 0 built, 1 a stage failed, 2 raw results were changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from analysis.exhibits import FROM_RAW, FROM_TABLES
from recipes.runs import find_runs, manifest_faults
from results.pointers import incomplete

RAW = Path("results/raw")
RESTORE = "dvc checkout --force --recursive results/raw"
DVC = [sys.executable, "-m", "dvc"]


def discard_stale_stamp(stamp: Path, lock: Path) -> None:
    """Remove the stamp when an exhibit is missing or is not what dvc.lock says, so that the rule runs again.

    Not while another Snakemake works here: the stamp may be the one that it is about to finish.
    """
    working = any(Path(".snakemake/locks").glob("*"))
    if working or not stamp.is_file():
        return
    try:
        stages = yaml.safe_load(lock.read_text(encoding="utf-8"))["stages"]
        outs = [(Path(out["path"]), out["md5"]) for stage in stages.values() for out in stage["outs"]]
        current = all(hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == md5 for path, md5 in outs)
    except (OSError, KeyError, TypeError, yaml.YAMLError):
        current = False
    if not current:
        stamp.unlink(missing_ok=True)


def changed_files(raw: Path) -> list[str]:
    """Raw files that differ from their run's manifest, and files that no manifest lists."""
    return [
        f"{folder}: {message}"
        for folder in find_runs(raw)
        for code, message in manifest_faults(folder)
        if code in ("file_changed", "file_not_in_manifest", "manifest_unreadable")
    ]


def fetch(raw: Path) -> None:
    """Bring back raw results that are versioned but not here; say which could not be had."""
    lacking = [str(path) for path in sorted(raw.rglob("*.dvc")) if incomplete(path)]
    if not lacking:
        return
    command = [*DVC, "--wait-for-lock", "pull", "-q"]
    if not subprocess.run([*command, *lacking], capture_output=True).returncode:
        return
    for pointer in lacking:  # one by one, so that one that is lost does not keep the others from coming
        done = subprocess.run([*command, pointer], capture_output=True, text=True)
        if done.returncode:
            print(
                f"{pointer}: some of it could not be fetched; its runs will be judged by what is here", file=sys.stderr
            )


def repro(stage: str) -> int:
    """Have DVC run one stage, up to date or not; returns its exit code.

    Forced: whoever runs this wants to see the exhibits made here from raw results, not hashes compared.
    """
    command = [*DVC, "--wait-for-lock", "repro", "--single-item", "--force", stage]
    done = subprocess.run(command, capture_output=True, text=True)
    print(f"{stage}: built from raw results" if not done.returncode else done.stderr, flush=True)
    return done.returncode


def main(stages: list[str]) -> int:
    """Fetch, check, rebuild; returns the exit code."""
    fetch(RAW)
    changed = changed_files(RAW)
    if changed:
        for line in changed:
            print(f"changed: {line}", file=sys.stderr)
        print(f"nothing was built; restore the published files with `{RESTORE}`", file=sys.stderr)
        return 2
    # DVC holds its lock only before and after a stage's command, so that stages can run side by side
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        failed = any(pool.map(repro, [stage for stage in stages if stage in FROM_RAW]))
        failed = any(pool.map(repro, [stage for stage in stages if stage in FROM_TABLES])) or failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
