"""What every stack's launcher does alike: ask the gate, describe the host, state the outcome, speak on stderr."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.catalog import Capability, capability, find_gpu, load_hardware
from recipes.catalog.reading import Entry
from recipes.gpus import VISIBLE
from recipes.ranks import ERROR, why
from recipes.runs import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_UNSUPPORTED,
    FACTS,
    LOG,
    RunFolder,
    git_state,
    sha256_of,
    to_json,
    write_atomically,
)

CHECKOUT = Path(__file__).resolve().parents[1]
# environment variables that change what the libraries do
VARIABLES = ("NVTE_", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "TORCH_", "PYTORCH_", "NEMO_", "XLA_", "JAX_")
# container image of a Slurm job, told by its script
IMAGE = "FEWBITS_IMAGE"
RANKS_WAIT_S = 10.0
MOST_RANKS = 8  # of a failed job, kept logs
# NVLink multicast off: a host that is shared with others may not allow it
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "UB_SKIPMC": "1", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}


def ask_gate(precision: str, host: dict[str, Any], stack: str, release: str) -> Capability:
    """The gate's answer for a precision on a probed host; a host without a GPU has no compute capability."""
    if not host["gpus"]:
        return capability(precision, None, stack, release)
    major, minor = host["compute_capability"]
    cuda = tuple(int(part) for part in str(host["cuda"]).split(".")[:2])
    return capability(precision, (major, minor), stack, release, (cuda[0], cuda[1]))


def is_hardware(key: str, host: dict[str, Any]) -> bool:
    """Whether a host's GPU is the catalog's `key`; names unknown to the catalog count by compute capability."""
    named = find_gpu(host["gpu_name"])
    if named is not None:
        return named == key
    return tuple(host["compute_capability"]) == load_hardware()[key].compute_capability


def python_path() -> str:
    """PYTHONPATH for a process that starts in another folder: this checkout, then what was there, absolute."""
    parts = [CHECKOUT, *(Path(part).absolute() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part)]
    return os.pathsep.join(dict.fromkeys(map(str, parts)))


def commit_told(checkout: Path) -> str:
    """What FEWBITS_COMMIT says to a process that cannot ask git; empty outside a repository."""
    state = git_state(checkout)
    return f"{state['commit'] or ''}{'+dirty' if state['dirty'] else ''}"


def base_record(
    which: Entry,
    precision: str | None,
    release: str,
    host: dict[str, Any],
    locks: Sequence[str],
    session: dict[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """The part of run.json that is known before the run starts. `locks` are paths in the checkout.

    `precision` is None where nothing is computed; `environment` is that of the process that trains.
    """
    hashes = [sha256_of(CHECKOUT / lock) if (CHECKOUT / lock).is_file() else None for lock in locks]
    return {
        "configuration": which.model_dump(mode="json"),
        "release": release,
        "requested_precision": precision,
        "effective_precision": None,
        "hardware": {key: value for key, value in host.items() if key != "versions"},
        "versions": host["versions"],
        "environment": {
            "lock_sha256": hashes[0] if len(hashes) == 1 else hashes,
            "variables": {
                key: environment[key] for key in sorted(environment) if key.startswith(VARIABLES) and key != VISIBLE
            },
        },
        "git": git_state(CHECKOUT),
        "session": session,
    }


def refuse(runs: Path, stack: str, experiment: str, session_id: str, record: dict[str, Any], reason: str) -> None:
    """Leave a run folder that says why the gate lets an experiment not run here."""
    with RunFolder(runs, stack, experiment, f"{session_id}-gate", record) as folder:
        folder.finish("unsupported", reason, EXIT_UNSUPPORTED)
    say(f"{experiment}: unsupported here: {reason}")


def take_facts(folder: RunFolder, stack: str) -> dict[str, Any]:
    """What the first rank left about itself, moved into run.json under its stack's name."""
    path = folder.path / FACTS
    if not path.is_file():
        return {}
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    folder.record["effective_precision"] = facts.pop("effective_precision", None)
    folder.record[stack] = facts
    return facts


def take_failed_ranks(folder: Path, ranks: Path) -> None:
    """Of a Slurm job's other ranks, whose logs lie in `ranks`, those that name an error, into the run folder."""
    time.sleep(RANKS_WAIT_S)  # they fail after the one that failed first, or are still writing
    failed = [log for log in sorted(ranks.glob("rank-*.log")) if ERROR.search(log.read_text(errors="replace"))]
    for log in failed[:MOST_RANKS]:
        shutil.copy(log, folder / log.name)


def conclude(folder: RunFolder, code: int, done: bool) -> int:
    """State a run's outcome from its ranks' exit code; `done`: everything that should be measured was written.

    Returns the launcher's exit code.
    """
    if done and (code == EXIT_OK or code > 128):
        folder.finish("completed")
        return EXIT_OK  # a signal after the last step changes nothing
    if code > 128:
        folder.finish("interrupted", f"stopped by signal {code - 128}", code)
        return code
    code = code or EXIT_FAILED
    folder.finish("failed", why(folder.path / LOG), code)
    return code


def report(folder: RunFolder, args: argparse.Namespace) -> None:
    """Say how a sealed run ended, and write the list of the session's run folders where it was asked for."""
    record, path = folder.record, folder.path
    say(f"{record['experiment']}: {record['outcome']['status']}: {record['outcome']['reason'] or path}")
    if args.session_file:
        runs = [path.relative_to(args.runs).as_posix()]
        write_atomically(args.session_file, to_json({"session": record["session"]["id"], "runs": runs}))


def run_parser(program: str, said: str | None, example: str) -> argparse.ArgumentParser:
    """A command line with what every launcher of single runs takes. `said`: its module's docstring."""
    parser = argparse.ArgumentParser(prog=program, description=(said or "").split("\n")[0])
    parser.add_argument("experiment", help=f"a name, e.g. {example}")
    parser.add_argument("--repeat", type=int, default=1, help="number of this repeat, for the run's name")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where run folders go")
    parser.add_argument("--session-file", type=Path, help="write the list of run folders here when the run has ended")
    return parser


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """What launchers of training stacks take besides."""
    parser.add_argument("--steps", type=int, help="default: experiments.yaml")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="K", help="keep a checkpoint every K steps")
    parser.add_argument("--resume", type=Path, help="checkpoint to go on from")
    parser.add_argument("--session", help="id of the session (default: a new one); Slurm jobs are told theirs")
    parser.add_argument("--ranks", type=Path, help="in a Slurm job, where the other ranks write")


def launched(args: argparse.Namespace) -> argparse.Namespace:
    """Arguments with absolute paths, since ranks work in the run folder."""
    for name in ("runs", "resume", "ranks"):
        path = getattr(args, name)
        setattr(args, name, path.absolute() if path else None)
    return args


def resumed_from(checkpoint: Path) -> str:
    """What run.json says of a checkpoint: by run and step; where runs lie is this machine's."""
    return "/".join(checkpoint.parts[-4:])


def rank() -> int:
    """This process's rank, as torchrun or Slurm numbers it; 0 where neither started it."""
    return int(os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or 0)


def without_folders(trace: str) -> str:
    """A traceback without the folders that libraries lie in: a log is published, and they are this machine's."""
    for folder in sorted(filter(None, sys.path), key=len, reverse=True):
        trace = trace.replace(folder.rstrip("/") + "/", "<site>/")
    return trace


def say(line: str) -> None:
    """Progress, one line a run, on stderr."""
    print(line, file=sys.stderr, flush=True)
