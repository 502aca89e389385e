"""Jobs in Slurm's queue: waited for until their run is sealed, and sent again where Slurm ended them, not what ran."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recipes.launching import say
from recipes.runs import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_UNSUPPORTED,
    RUN_JSON,
    RunError,
    is_complete,
    to_json,
    write_atomically,
)

POLL_S = 10.0
PATIENCE = 6  # a shared file system shows on the login node later what a compute node has written
RETRIES = 30  # a controller that restarts is back within minutes
TIMEOUT = "TIMEOUT"
# a node's or the scheduler's doing, so that another try may go otherwise; a job that failed would fail again
WORTH_ANOTHER = {"BOOT_FAIL", "NODE_FAIL", "PREEMPTED", TIMEOUT}
ENDED = {*WORTH_ANOTHER, "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "OUT_OF_MEMORY"}
_LIMIT = re.compile(r"(?:(\d+)-)?(\d{1,2}):(\d\d):(\d\d)")


@dataclass(frozen=True)
class Sent:
    """A job in the queue: Slurm's id, the run folder that it will leave, and where its own log is."""

    slurm_id: str
    folder: Path
    log: Path


def seconds_of(limit: str) -> int:
    """Seconds of a time limit, `HH:MM:SS` or `D-HH:MM:SS`. Raises RunError."""
    match = _LIMIT.fullmatch(limit)
    if match is None:
        raise RunError(f"time limit {limit}: must be HH:MM:SS or D-HH:MM:SS")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def doubled(limit: str) -> str:
    """A time limit twice as long. Raises RunError."""
    minutes, seconds = divmod(2 * seconds_of(limit), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"


def carry_through(
    name: str, send: Callable[[str], Sent], time_limit: str, resubmit: int, session_file: Path | None
) -> int:
    """Send a job with a time limit and wait for its run; returns the run's exit code.

    A job that Slurm or a node ended is sent again, `resubmit` times at most, after a timeout with twice the time: each
    is a run of its own, and the one that was cut off stays what it is, INCOMPLETE.
    """
    while True:
        sent = send(time_limit)
        say(f"{name}: job {sent.slurm_id} submitted, log in {sent.log}; its run will be {sent.folder}")
        code, state = wait(name, sent, session_file)
        if code == EXIT_OK or state not in WORTH_ANOTHER or resubmit <= 0:
            return code
        resubmit -= 1
        time_limit = doubled(time_limit) if state == TIMEOUT else time_limit
        say(f"{name}: job {sent.slurm_id} ended as {state}; it is sent again, with {time_limit}")


def wait(name: str, sent: Sent, session_file: Path | None) -> tuple[int, str]:
    """Wait until Slurm has no such job any more; returns the exit code of the run that it left, and its last state.

    The state is empty where Slurm has forgotten the job.
    """
    state = state_of(sent.slurm_id)
    while state and state not in ENDED:
        time.sleep(POLL_S)
        state = state_of(sent.slurm_id)
    for _ in range(PATIENCE):
        if is_complete(sent.folder):
            break
        time.sleep(POLL_S)
    return _outcome(name, sent, session_file), state


def _outcome(name: str, sent: Sent, session_file: Path | None) -> int:
    """Exit code of the run that a job has left; says what became of it, and lists it where it completed."""
    if not is_complete(sent.folder):
        gate = sent.folder.with_name(sent.folder.name.replace("-r1", "-gate"))
        if is_complete(gate):
            say(f"{name}: unsupported there, see {gate}")
            return EXIT_UNSUPPORTED
        say(f"{name}: job {sent.slurm_id} has left no complete run in {sent.folder}; its own log is in {sent.log}")
        return EXIT_FAILED
    outcome = json.loads((sent.folder / RUN_JSON).read_text(encoding="utf-8"))["outcome"]
    say(f"{name}: {outcome['status']}: {outcome['reason'] or sent.folder}")
    if outcome["status"] != "completed":
        return EXIT_FAILED
    if session_file:
        run = sent.folder.relative_to(sent.folder.parents[2]).as_posix()
        write_atomically(session_file, to_json({"session": sent.folder.name.removesuffix("-r1"), "runs": [run]}))
    return EXIT_OK


def state_of(slurm_id: str) -> str:
    """Slurm's word for a job's state; empty for a job that it does not know any more.

    Raises RunError when it cannot be asked several times in a row.
    """
    said = ""
    for _ in range(RETRIES):
        asked = ["squeue", "-h", "-t", "all", "-o", "%T", "-j", slurm_id]
        done = subprocess.run(asked, capture_output=True, text=True)
        said = done.stderr.strip()
        if done.returncode == 0:
            return (done.stdout.split() or [""])[-1]
        if "Invalid job id" in said:
            return ""
        time.sleep(POLL_S)
    raise RunError(f"squeue cannot be asked for job {slurm_id}: {said}; the job itself goes on")
