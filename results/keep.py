"""Keep checkpoints: version those of VALID runs with DVC, under results/checkpoints.

    fewbits verify runs --json > verdicts.json; python -m results.keep --runs runs --verdicts verdicts.json

Nothing is kept of a run that is not VALID, or whose checkpoint is not the one that its run.json names. Pointers
stand in git; the bytes go to a remote of your own (`dvc push -r NAME`), never to results/reference.
Exit codes: 0 kept (or nothing to keep), 1 some checkpoint was refused (others were kept), 2 DVC failed, wrong input.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from recipes.checkpoints import place_of
from recipes.runs import MANIFEST, RUN_JSON, RunError, find_runs, manifest_faults, sha256_of
from results.pointers import pointer_of
from results.publish import Refused, alone, copy_whole, dvc

KEPT = Path("results/checkpoints")


def fault(run: Path, verdict: str) -> str | None:
    """Why a run's checkpoint may not be kept, or None."""
    if verdict != "VALID":
        return f"the run is {verdict}"
    said = json.loads((run / RUN_JSON).read_text(encoding="utf-8"))["checkpoint"]
    place = place_of(run)
    if not (place / MANIFEST).is_file() or sha256_of(place / MANIFEST) != said["manifest_sha256"]:
        return f"{place} is not the checkpoint that {RUN_JSON} names"
    faults = manifest_faults(place, required=())
    return faults[0][1] if faults else None


def has_checkpoint(run: Path) -> bool:
    """Whether a run says that it has left a checkpoint."""
    try:
        return bool(json.loads((run / RUN_JSON).read_text(encoding="utf-8")).get("checkpoint"))
    except (OSError, ValueError, AttributeError):
        return False


def keep(runs: Path, verdicts: dict[str, str], kept: Path) -> tuple[list[Path], list[str]]:
    """Copy and version checkpoints; returns their folders under `kept`, and a line for each that was refused."""
    done: list[Path] = []
    refused: list[str] = []
    for run in filter(has_checkpoint, find_runs(runs)):
        why = fault(run, verdicts.get(str(run), "not judged"))
        if why:
            refused.append(f"{run}: checkpoint not kept: {why}")
            continue
        target = kept.joinpath(*run.parts[-3:])
        if not pointer_of(target).is_file():
            try:
                if not target.exists():  # a process killed before it added it left it whole
                    copy_whole(place_of(run), target, required=())
            except Refused as error:
                refused.append(str(error))
                continue
            dvc("add", "-q", str(target))
        done.append(target)
    return done, refused


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m results.keep", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--verdicts", type=Path, required=True, help="what `fewbits verify RUNS --json` printed")
    args = parser.parse_args()
    try:
        rows = json.loads(args.verdicts.read_text(encoding="utf-8"))
        verdicts = {row["path"]: row["verdict"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"keep: {args.verdicts}: {error}", file=sys.stderr)
        return 2
    try:
        with alone():
            done, refused = keep(args.runs, verdicts, KEPT)
    except (RunError, OSError) as error:
        print(f"keep: {error}", file=sys.stderr)
        return 2
    for line in refused:
        print(f"keep: {line}", file=sys.stderr)
    print(f"{len(done)} checkpoints of {args.runs} are versioned under {KEPT}")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
