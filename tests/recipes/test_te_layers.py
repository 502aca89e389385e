"""te_layers without a GPU: experiments, GEMM shapes, and a launcher that refuses what it cannot run."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from recipes.catalog import CatalogError, load_models
from recipes.catalog.models import layer_matrix_parameters
from recipes.runs import EXIT_FAILED, EXIT_OK, EXIT_UNSUPPORTED, EXIT_USAGE, find_runs, is_complete
from recipes.te_layers import launch
from recipes.te_layers.experiments import all_experiments, experiment, gemms, load_experiments, memory_need_bytes

GOLDEN = Path(__file__).with_name("te_layers.golden.jsonl")


def golden_text() -> str:
    return "".join(
        json.dumps({"name": which.name, **which.model_dump(mode="json", exclude={"dimensions"})}) + "\n"
        for which in all_experiments()
    )


HOST: dict[str, Any] = {
    "gpus": 1,
    "gpu_name": "NVIDIA H200",
    "gpu_uuid": "GPU-0",
    "compute_capability": [9, 0],
    "cuda": "13.0",
    "memory_free_bytes": 140 * 2**30,
    "versions": {"transformer_engine": "2.20.2", "transformer_engine_torch": "2.20.2"},
}


def test_all_experiments_are_named_and_complete() -> None:
    found = all_experiments()
    assert len({which.name for which in found}) == len(found) == 2 * 5 * 6
    assert all(which.iterations >= 30 for which in found)
    assert load_experiments().repeats >= 3


def test_resolved_experiments_are_the_golden_ones() -> None:
    """What is measured changes only in sight: `python -m tests.recipes.test_te_layers` writes the file anew."""
    assert GOLDEN.read_text() == golden_text()


@pytest.mark.parametrize("key", load_experiments().models)
def test_gemms_hold_all_matrix_parameters(key: str) -> None:
    model = load_models()[key]
    assert sum(gemm.n * gemm.k for gemm in gemms(model, 8192)) == layer_matrix_parameters(model)


def test_memory_need_covers_what_was_measured() -> None:
    """Peaks measured on the reference H200, GiB; the estimate must not be below them."""
    for key, peak in {"llama3_8b": 8.84, "llama3_70b": 13.36, "llama31_405b": 22.2, "nemotron4_340b": 20.7}.items():
        assert memory_need_bytes(experiment("layers", key, "fp8_block")) > peak * 2**30


def test_unknown_names() -> None:
    with pytest.raises(CatalogError, match="did you mean llama3_8b"):
        experiment("layers", "llama3_8x", "bf16")
    with pytest.raises(CatalogError, match="allowed: bf16"):
        experiment("layers", "llama3_8b", "int8")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpus": 0}, "no GPU found"),
        ({"gpus": 8}, "8 GPUs visible, the experiments use 1"),
        ({"versions": {}}, "not installed"),
        ({"versions": {"transformer_engine": "2.19.0", "transformer_engine_torch": "2.20.2"}}, "different versions"),
        ({"versions": {"transformer_engine_torch": "2.2.0"}}, r"2\.2\.0 found, the experiments are for 2\.20\.2"),
        ({"memory_free_bytes": 2**30}, "1.0 GiB of device memory free"),
        ({"import_error": "OSError: libcudnn.so.9"}, "does not import: OSError: libcudnn"),
    ],
)
def test_an_unfit_host_is_refused_before_anything_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    says: str,
) -> None:
    monkeypatch.setattr(launch, "probe", lambda: HOST | change)
    code = launch.main(["--kind", "layers", "--model", "llama3_8b", "--runs", str(tmp_path / "runs")])
    assert code == EXIT_USAGE
    message = capsys.readouterr().err
    assert len(message.splitlines()) == 1
    assert re.search(says, message)
    assert not (tmp_path / "runs").exists()


def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: dict[str, Any], *extra: str) -> tuple[int, Path]:
    """Run the launcher with an invented host and a measurement that only records that it was called."""

    def run_one(which: Any, folder: Any, baseline: dict[str, Any], gpu_uuid: str) -> None:
        with folder:
            if which.precision == "fp8_delayed" and "--fail" in extra:
                raise RuntimeError("no memory left")
            folder.finish("completed")

    monkeypatch.setattr(launch, "probe", lambda: host)
    monkeypatch.setattr(launch, "run_one", run_one)
    runs, session = tmp_path / "runs", tmp_path / "session.json"
    arguments = ["--kind", "layers", "--model", "llama3-8b", "--runs", str(runs), "--session-file", str(session)]
    return launch.main([*arguments, *(a for a in extra if a != "--fail")]), session


def test_precisions_interleave_and_refusals_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, session = launched(tmp_path, monkeypatch, HOST, "--repeats", "2")
    assert code == EXIT_OK
    listed = json.loads(session.read_text())["runs"]
    folders = find_runs(tmp_path / "runs")
    assert sorted(listed) == [path.relative_to(tmp_path / "runs").as_posix() for path in folders]
    assert all(is_complete(path) for path in folders)
    records = [json.loads((path / "run.json").read_text()) for path in folders]
    ran = sorted((r for r in records if r["outcome"]["status"] == "completed"), key=lambda r: r["session"]["order"])
    order = [r["requested_precision"] for r in ran]
    assert order == ["bf16", "fp8_delayed", "fp8_current", "fp8_block"] * 2
    refused = {r["requested_precision"]: r["outcome"] for r in records if r["outcome"]["status"] == "unsupported"}
    assert set(refused) == {"mxfp8", "nvfp4"}
    assert refused["mxfp8"]["exit_code"] == EXIT_UNSUPPORTED


def test_block_scaling_on_old_cuda_is_unsupported_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = launched(tmp_path, monkeypatch, HOST | {"cuda": "12.8"}, "--precision", "fp8_block")
    assert code == EXIT_UNSUPPORTED
    (path,) = find_runs(tmp_path / "runs")
    outcome = json.loads((path / "run.json").read_text())["outcome"]
    assert outcome["status"] == "unsupported"
    assert "CUDA 12.9" in outcome["reason"]


def test_emulated_runs_are_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blackwell = HOST | {"compute_capability": [10, 0], "gpu_name": "NVIDIA B200"}
    launched(tmp_path, monkeypatch, blackwell, "--repeats", "1")
    kinds = {}
    for path in find_runs(tmp_path / "runs"):
        record = json.loads((path / "run.json").read_text())
        kinds[record["requested_precision"]] = record["kind"]
    assert kinds.pop("fp8_block") == "emulated"
    assert set(kinds.values()) == {"measured"}


def test_one_failed_run_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, session = launched(tmp_path, monkeypatch, HOST, "--repeats", "1", "--fail")
    assert code == EXIT_FAILED
    statuses = [json.loads((p / "run.json").read_text())["outcome"]["status"] for p in find_runs(tmp_path / "runs")]
    assert sorted(statuses) == ["completed"] * 3 + ["failed"] + ["unsupported"] * 2
    assert session.is_file()


def test_a_library_that_does_not_load_is_a_sealed_failure(tmp_path: Path) -> None:
    """The core environment has no torch: run_one must record that like any failure (seen on a GPU host once)."""
    if importlib.util.find_spec("transformer_engine"):
        pytest.skip("Transformer Engine is installed here: its import cannot fail")
    which = experiment("layers", "llama3_8b", "bf16")
    folder = launch.RunFolder(tmp_path, "te_layers", which.name, "r", {})
    with pytest.raises(ImportError):
        launch.run_one(which, folder, {}, "GPU-0")
    assert is_complete(folder.path)
    assert json.loads((folder.path / "run.json").read_text())["outcome"]["status"] == "failed"


if __name__ == "__main__":
    GOLDEN.write_text(golden_text())
