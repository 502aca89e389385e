"""Ranks of a run on this host: started one process a rank, signalled, waited for, and their logs brought together."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recipes.runs import RunFolder

# a line that names an error, with torchrun's prefix or without
ERROR = re.compile(r"^\s*(?:\[rank\d+\]:\s*)?[\w.]*(?:Error|Exception)\b.*:", re.MULTILINE)
_RANKS = "ranks"


def rank_command(module: str, ranks: int) -> list[str]:
    """The command that runs `module` on every rank: one directly, several through torchrun."""
    if ranks == 1:
        return [sys.executable, "-m", module]
    logs = ["--log-dir", _RANKS, "--redirects", ",".join(f"{rank}:3" for rank in range(1, ranks))]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *logs]
    return [sys.executable, *torchrun, "-m", module]


@contextlib.contextmanager
def signals_to(process: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """SIGTERM and SIGINT go to the ranks, so that they end in order and the folder is sealed afterwards.

    Yields the list of what came: Lightning ends on SIGTERM after the step, with an exit code that says nothing.
    """
    came: list[int] = []

    def hand_on(number: int, frame: Any) -> None:
        came.append(number)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    before = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_ranks(command: Sequence[str], folder: RunFolder, environment: Mapping[str, str]) -> int:
    """Run ranks in the run folder with the first one's output in log.txt; returns the exit code as a shell sees it."""
    process = subprocess.Popen(
        command,
        stdout=folder.log_file_descriptor(),
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=folder.path,  # programs print where they write: a name, not a folder of this machine
        start_new_session=True,
    )
    with signals_to(process) as came:
        code = process.wait()
    if came:
        return 128 + came[-1]
    return 128 - code if code < 0 else code


def take_rank_logs(folder: Path) -> None:
    """Flatten the logs of further ranks, which torchrun keeps, to rank-N.log."""
    for log in sorted((folder / _RANKS).glob("*/attempt_0/*/stdout.log")):
        rank = log.parent.name
        text = log.read_bytes() + (
            log.with_name("stderr.log").read_bytes() if log.with_name("stderr.log").is_file() else b""
        )
        (folder / f"rank-{rank}.log").write_bytes(text)
    shutil.rmtree(folder / _RANKS, ignore_errors=True)


def why(log: Path) -> str:
    """The last line of a log that names an error, or its last line."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    errors = [line.strip() for line in lines if ERROR.match(line)]
    return ([*errors] or [line for line in lines if line.strip()] or ["no output"])[-1][:300]
