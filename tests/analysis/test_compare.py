"""Pairs: a speedup with its interval, and the exact list of what differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fewbits import app, main
from recipes.runs import METRICS
from tests.make_run import make_run


def compared(*arguments: object) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, ["compare", *map(str, arguments), "--json"])
    return done.exit_code, json.loads(done.output) if done.exit_code < 2 and done.output else {}


@pytest.mark.parametrize("kind", ["layers", "gemms"])
def test_like_for_like(tmp_path: Path, kind: str) -> None:
    for repeat in (1, 2, 3):
        base = make_run(tmp_path, "bf16", kind=kind, repeat=repeat)
        other = make_run(tmp_path, "fp8_current", kind=kind, repeat=repeat, scale=0.5)
    code, found = compared(base.parent, other.parent)
    assert code == 0
    assert found["like_for_like"]
    assert found["differences"] == []
    low, high = found["speedup"]["ci95"]
    assert low <= found["speedup"]["value"] <= high
    # of bare operations, the quantization passes do not get faster
    assert found["speedup"]["value"] == pytest.approx(2.0 if kind == "layers" else 1.73, rel=0.01)


def test_what_differs_is_listed(tmp_path: Path) -> None:
    def other_host(record: dict[str, Any]) -> None:
        record["hardware"] = {**record["hardware"], "driver": "999"}
        record["versions"] = {"torch": "2.9"}

    base = make_run(tmp_path, "bf16", session="monday")
    other = make_run(tmp_path, "fp8_current", session="tuesday", scale=0.5, change=other_host)
    code, found = compared(base, other)
    assert code == 1
    assert not found["like_for_like"]
    assert {d["field"] for d in found["differences"]} == {"hardware.driver", "versions", "session.id"}


def test_ten_times_slower_is_seen_and_five_percent_faster_too(tmp_path: Path) -> None:
    """A gate on this number fails what is slower and passes what is faster: not the other way round."""
    base = make_run(tmp_path, "bf16")
    slow, fast = (make_run(tmp_path, "fp8_current", session="s1", repeat=1, scale=10.0),
                  make_run(tmp_path, "fp8_block", session="s1", repeat=1, scale=0.95))  # fmt: skip
    assert compared(base, slow)[1]["speedup"]["ci95"][1] < 0.2
    assert compared(base, fast)[1]["speedup"]["ci95"][0] > 1.0


def test_invalid_runs_are_never_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, other = make_run(tmp_path, "bf16"), make_run(tmp_path, "fp8_current")
    (other / METRICS).write_text("edited\n")
    monkeypatch.setattr("sys.argv", ["fewbits", "compare", str(base), str(other)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "no VALID run" in capsys.readouterr().err
