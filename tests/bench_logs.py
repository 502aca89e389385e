"""How fast a large log is read and judged, and in how much memory: python -m tests.bench_logs --mb 2000

Writes an invented log of that size, runs `fewbits verify` on it as its own process, and prints MB/s (of the wall time
of the whole process, start included) and peak memory. `--keep FILE` reads a log that is there already.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.write_logs import WRITERS


def write_large(path: Path, name: str, megabytes: float) -> None:
    """An invented log of about that size."""
    sample = WRITERS[name](400)
    size = sum(len(line) + 1 for line in sample) / 400
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for line in WRITERS[name](int(megabytes * 1e6 / size)):
            file.write(line + "\n")


def measure(path: Path) -> tuple[float, float, int]:
    """MB/s, peak memory in MiB and exit code of `fewbits verify` on a file."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "fewbits.py", "verify", str(path)], stdout=subprocess.DEVNULL, env={**os.environ}
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begin
    return path.stat().st_size / 1e6 / seconds, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench_logs", description=__doc__)
    parser.add_argument("--format", choices=WRITERS, default="megatron")
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", type=Path, help="only write the log")
    args = parser.parse_args()
    if args.write:
        write_large(args.write, args.format, args.mb)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "large.log"
        if not args.keep:
            # in a process of its own: a child begins with its parent's peak memory
            wanted = ["--format", args.format, "--mb", str(args.mb), "--write", str(path)]
            subprocess.run([sys.executable, "-m", "tests.bench_logs", *wanted], check=True)
        speed, memory, code = measure(path)
    print(f"{args.format}: {speed:.0f} MB/s, peak {memory:.0f} MiB, exit code {code}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
