"""Collectives: what a complete run looks like to the judge, and each way in which one is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from analysis.judge import judge
from analysis.judge_collectives import bus_bandwidth
from analysis.logs import read_run
from recipes.catalog import CatalogError
from recipes.collectives.experiments import experiment
from recipes.collectives.launch import check_host
from recipes.runs import RunError, RunFolder

Calls = list[dict[str, Any]]


def make_run(
    root: Path, change: Callable[[Calls], Any] = lambda calls: None, logged: float = 1.0, **record: Any
) -> Path:
    """A sealed run of two GPUs with invented times: a fixed latency, and 350 GB/s."""
    which = experiment("h200x2")
    content = {
        "configuration": which.model_dump(mode="json"),
        "requested_precision": None,
        "hardware": {"gpus": 2, "gpu_name": "NVIDIA H200"},
        **record,
    }
    calls: Calls = [
        {
            "record": "transfer",
            "operation": operation,
            "payload": payload,
            "bytes": size,
            "step": step,
            "time_s": 1e-5 + size / 3.5e11 * (1 + step / 1000),
        }
        for operation, payloads in which.operations.items()
        for payload in payloads
        for size in which.bytes
        for step in range(which.iterations)
    ]
    with RunFolder(root, "collectives", which.name, "20260101T000000Z-0000-r1", content) as folder:
        for key in dict.fromkeys((call["operation"], call["payload"], call["bytes"]) for call in calls):
            times = [c["time_s"] for c in calls if (c["operation"], c["payload"], c["bytes"]) == key]
            folder.log(f"{key[0]} {key[1]} {key[2]} bytes: median {median(times) * logged:.9f} s")
        change(calls)
        for call in calls:
            folder.metric(**call)
        folder.finish("completed")
    return folder.path


def test_a_complete_run_is_valid(tmp_path: Path) -> None:
    judged = judge(read_run(make_run(tmp_path)))
    assert judged.valid, judged.reasons
    assert len(judged.run.transfers) == 6 * 11 * 20


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda calls: calls.pop(), "steps_missing"),
        (lambda calls: calls.insert(0, calls[5]), "steps_repeated"),
        (lambda calls: calls[0].update(operation="all_to_all"), "steps_missing"),
        (lambda calls: calls[0].update(time_s=0.0), "time_not_positive"),
        (lambda calls: calls[0].update(time_s=float("nan")), "not_finite"),
        (lambda calls: [call.update(time_s=1e-5) for call in calls], "above_peak"),
        (lambda calls: [call.update(time_s=call["time_s"] * 1.01) for call in calls], "log_disagrees"),
        (lambda calls: calls[0].update(record="step"), "metrics_line_unreadable"),
    ],
)
def test_each_fault_is_found(change: Callable[[Calls], Any], code: str, tmp_path: Path) -> None:
    judged = judge(read_run(make_run(tmp_path, change)))
    assert code in {reason.code for reason in judged.reasons}
    assert not judged.valid


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ({"hardware": {"gpus": 4, "gpu_name": "NVIDIA H200"}}, "configuration_mismatch"),
        ({"configuration": {"operations": 3, "bytes": [], "iterations": None}}, "steps_missing"),
        ({"configuration": None}, "steps_missing"),
    ],
)
def test_a_record_that_does_not_fit_is_found(record: dict[str, Any], code: str, tmp_path: Path) -> None:
    assert code in {reason.code for reason in judge(read_run(make_run(tmp_path, **record))).reasons}


def test_bandwidth_is_that_of_nccl_tests() -> None:
    assert bus_bandwidth("all_reduce", 800, 4, 1.0) == 1200
    assert bus_bandwidth("all_gather", 800, 4, 1.0) == bus_bandwidth("reduce_scatter", 800, 4, 1.0) == 600
    assert bus_bandwidth("send_recv", 800, 8, 1.0) == 800


def test_a_host_with_another_number_of_gpus_is_refused() -> None:
    with pytest.raises(RunError, match="runs on 4 GPUs, 2 are visible"):
        check_host(experiment("h200x4"), {"gpus": 2, "memory_free_bytes": 140 << 30})
    with pytest.raises(RunError, match=r"1\.0 GiB of device memory free, 4 needed"):
        check_host(experiment("h200x2"), {"gpus": 2, "memory_free_bytes": 1 << 30})
    check_host(experiment("h200x2"), {"gpus": 2, "memory_free_bytes": 140 << 30})
    with pytest.raises(CatalogError, match="h200x2"):
        experiment("h200x3")
