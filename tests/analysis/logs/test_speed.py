"""A large log is read in bounded memory, at a speed within sight of a bare line loop. Slow: writes 300 MB."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench_logs import measure, write_large


@pytest.mark.slow
@pytest.mark.parametrize("name", ["megatron", "nemo", "maxtext", "torchtitan"])
def test_memory_does_not_grow_with_the_log(tmp_path: Path, name: str) -> None:
    path = tmp_path / "large.log"
    wanted = ["--format", name, "--mb", "300", "--write", str(path)]
    subprocess.run([sys.executable, "-m", "tests.bench_logs", *wanted], check=True)
    begin = time.process_time()
    with path.open("rb") as file:
        for _ in file:
            pass
    loop = path.stat().st_size / 1e6 / (time.process_time() - begin)
    speed, memory, code = measure(path)
    assert code == 0
    assert memory < 150
    assert speed > loop / 20, (speed, loop)


def test_the_benchmark_writes_what_it_measures(tmp_path: Path) -> None:
    write_large(tmp_path / "small.log", "megatron", 0.2)
    _, _, code = measure(tmp_path / "small.log")
    assert code == 0
