"""`fewbits verify`, `compare` and `windows` on logs: exit codes, JSON, one-line errors, nothing raw on the terminal."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from analysis.logs.formats import FORMATS
from fewbits import app, main
from tests.break_logs import FAULTS
from tests.write_logs import WRITERS, is_step, maxtext, megatron, nemo, text


def call(*arguments: object, stdin: bytes = b"") -> tuple[int, str]:
    done = CliRunner().invoke(app, list(map(str, arguments)), input=stdin)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def write(path: Path, lines: list[str]) -> Path:
    path.write_bytes(text(lines))
    return path


@pytest.mark.parametrize("name", WRITERS)
def test_json_holds_what_it_promises(tmp_path: Path, name: str) -> None:
    code, output = call("verify", write(tmp_path / "run.log", WRITERS[name]()), "--json")
    assert code == 0
    (record,) = json.loads(output)
    assert {"path", "format", "verdict", "reasons", "steps", "step_time_s", "tokens_per_s_per_gpu", "loss"} <= set(
        record
    )
    assert set(record["steps"]) == {"first", "last", "count", "repeated", "missing"}
    assert set(record["step_time_s"]) == {"median", "ci95", "window", "n"}
    assert set(record["loss"]) == {"first", "last", "min", "nan_steps"}
    assert set(record["grad_norm"]) == {"last"} and set(record["precision"]) == {"declared", "effective"}
    assert len(record["sha256"]) == 64 and record["verdict"] == "VALID"


def test_exit_codes(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good.log", nemo()), write(tmp_path / "bad.log", FAULTS["nan_loss"].make(nemo()))
    assert call("verify", good)[0] == 0
    code, output = call("verify", good, bad)
    assert code == 1
    assert (
        "DIVERGED" in output and "loss_not_finite: the loss is NaN or infinite at 1 step, first 15 (line 19)" in output
    )


def test_standard_input_and_options(tmp_path: Path) -> None:
    content = text([line for line in maxtext() if "Config param" not in line])
    assert call("verify", "-", stdin=content)[0] == 1
    assert call("verify", "-", "--expect-steps", 30, stdin=content)[0] == 0
    assert call("verify", "-", "--expect-steps", 30, "--format", "maxtext", stdin=gzip.compress(content))[0] == 0


def run_main(*arguments: object) -> subprocess.CompletedProcess[str]:
    """As the command would run, in this process (a new one takes a second to start)."""
    words, out, err = ["fewbits", *map(str, arguments)], io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", words)
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code
    return subprocess.CompletedProcess(words, code or 0, out.getvalue(), err.getvalue())


def test_errors_are_one_line_and_debug_shows_more(tmp_path: Path) -> None:
    junk = tmp_path / "junk.txt"
    junk.write_bytes(b"\x1b[2Jhello\n")
    done = run_main("verify", junk)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "\x1b" not in done.stderr
    assert "no line of a known format; line 1 is 'hello'" in done.stderr
    done = run_main("verify", tmp_path / "absent.log")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "no such file or folder" in done.stderr
    command = [sys.executable, "fewbits.py", "--debug", "verify", str(tmp_path / "absent.log")]
    assert "Traceback" in subprocess.run(command, capture_output=True, text=True, timeout=60).stderr


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    done = run_main("verify", write(tmp_path / "run.log", nemo()), "--format", "pytorch")
    assert done.returncode == 2
    assert all(name in done.stderr for name in FORMATS)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert run_main("verify", tmp_path).returncode == 2


def test_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    lines = [*nemo(), "Traceback (most recent call last): \x07\x9b31m \x1b]0;owned\x07"]
    _, output = call("verify", write(tmp_path / "run\x07.log", lines))
    assert not any(character in output for character in "\x07\x1b\x9b")


def test_a_folder_of_logs_skips_what_is_none(tmp_path: Path) -> None:
    write(tmp_path / "a.log", nemo())
    write(tmp_path / "b.log", megatron())
    (tmp_path / "config.yaml").write_text("model: x\n")
    code, output = call("verify", tmp_path, "--json")
    assert code == 0
    assert [record["format"] for record in json.loads(output)] == ["nemo", "megatron"]


def slower(lines: list[str], factor: float) -> list[str]:
    """Every step takes `factor` times as long; rates and samples stay consistent."""

    def scale(line: str) -> str:
        line = re.sub(r"(timing in s: )(\S+)", lambda m: f"{m[1]}{float(m[2]) * factor:.4}", line)
        return re.sub(r"(TFLOPS_per_GPU: )(\S+)", lambda m: f"{m[1]}{float(m[2]) / factor:.4}", line)

    return [scale(line) if is_step(line) else line for line in lines]


@pytest.mark.parametrize(("factor", "code"), [(10.0, 1), (1.2, 1), (1.03, 0), (1.0, 0), (0.95, 0), (0.1, 0)])
def test_a_performance_gate_fails_the_slow_and_passes_the_fast(tmp_path: Path, factor: float, code: int) -> None:
    """The gate of a public project was the wrong way round: ten times slower passed, five percent faster failed."""
    base = write(tmp_path / "base.log", nemo())
    other = write(tmp_path / "other.log", slower(nemo(seed=2), factor))
    done = run_main("compare", base, other, "--min-speedup", "0.95")
    assert done.returncode == code, done.stdout + done.stderr
    assert ("slower than allowed" in done.stderr) == bool(code)


def test_compare_logs(tmp_path: Path) -> None:
    base = write(tmp_path / "bf16.log", nemo(60))
    other = write(tmp_path / "fp8.log", slower(nemo(60, seed=2), 0.5))
    code, output = call("compare", base, other, "--json")
    found: dict[str, Any] = json.loads(output)
    assert code == 0 and found["like_for_like"] and found["differences"] == []
    low, high = found["speedup"]["ci95"]
    assert low <= found["speedup"]["value"] <= high and found["speedup"]["value"] == pytest.approx(2, rel=0.01)
    # the loss falls alike at every step, so that at equal loss it is as much faster as at equal steps
    assert found["loss_matched_speedup"] == pytest.approx(2, rel=0.1)


def test_another_batch_is_no_pair(tmp_path: Path) -> None:
    base, other = write(tmp_path / "a.log", nemo()), write(tmp_path / "b.log", nemo(batch=256))
    code, output = call("compare", base, other, "--json")
    found = json.loads(output)
    assert code == 1 and [d["field"] for d in found["differences"]] == ["batch_samples"]
    assert found["speedup"]["value"] == pytest.approx(2, rel=0.01)  # twice the samples in the same time


def test_only_valid_logs_are_compared(tmp_path: Path) -> None:
    base, other = write(tmp_path / "a.log", nemo()), write(tmp_path / "b.log", FAULTS["nan_loss"].make(nemo()))
    done = run_main("compare", base, other)
    assert done.returncode == 2 and "no VALID run; `fewbits verify" in done.stderr


def test_windows(tmp_path: Path) -> None:
    code, output = call("windows", write(tmp_path / "run.log", nemo(60)), "--json")
    (found,) = json.loads(output)
    assert code == 0 and found["verdict"] == "VALID"
    by_name = {row["window"]: row for row in found["windows"]}
    assert by_name["steps 35-44, mean"]["n"] == 10 and by_name["step 90"]["step_time_s"] is None
