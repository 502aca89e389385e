"""The doctor asks what the launchers ask, on hosts that are told and not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipes import machine, tiers
from recipes.doctor import SETTINGS, diagnose, examine, text, with_sites
from recipes.maxtext.experiment_file import load_experiments as maxtext_rows
from recipes.maxtext.experiments import all_experiments as maxtext_experiments
from recipes.nemo.experiments import all_experiments as nemo_experiments
from recipes.runs import EXIT_OK, EXIT_UNSUPPORTED, RunError
from recipes.settings import Settings
from recipes.te_layers.experiments import load_experiments as te_rows
from recipes.tiers import Environment, probed

TE = te_rows().transformer_engine
H200 = {
    "gpus": 1,
    "gpu_name": "NVIDIA H200",
    "compute_capability": [9, 0],
    "cuda": "13.0",
    "memory_total_bytes": 150 * 2**30,
    "memory_free_bytes": 139 * 2**30,
    "versions": {
        "torch": "2.11.0",
        **dict.fromkeys(("transformer_engine", "transformer_engine_cu13", "transformer_engine_torch"), TE),
        "transformer_engine_jax": TE,
        "nemo-toolkit": "2.3.0",
        "megatron-core": "0.12.0",
        "maxtext": maxtext_rows().maxtext,
    },
}


def program(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a program, in `folder`, which is all of PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def tier(found: dict[str, Any], stack: str, name: str) -> dict[str, Any]:
    (one,) = (one for one in found["tiers"] if (one["stack"], one["name"]) == (stack, name))
    return one


def names(refused: dict[str, list[str]]) -> set[str]:
    return {name for group in refused.values() for name in group}


@pytest.fixture
def one_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every interpreter sees one H200 and all packages of NeMo 25.04, MaxText and Transformer Engine."""
    monkeypatch.setattr(tiers, "probed", lambda environment: H200)


@pytest.mark.usefixtures("one_h200")
def test_an_h200_runs_what_the_gate_lets_through() -> None:
    found = examine(Settings())
    nemo = tier(found, "nemo 25.04", "one_gpu")
    mine = [one for one in nemo_experiments().values() if one.tier == "one_gpu" and one.release == "25.04"]
    assert set(nemo["runs"]) == {one.name for one in mine if one.precision in ("bf16", "fp8_delayed", "fp8_current")}
    assert names(nemo["refused"]) == {one.name for one in mine} - set(nemo["runs"])
    newer = tier(found, "nemo 25.07", "one_gpu")
    assert newer["runs"] == []
    assert all("nemo-toolkit 2.3.0 found" in why for why in newer["refused"])
    maxtext = tier(found, "maxtext", "one_gpu")
    refused = names(maxtext["refused"])
    native = {one.name for one in maxtext_experiments().values() if one.tier == "one_gpu" and not one.emulated}
    assert {name for name in native if "mxfp8" in name or "nvfp4" in name} == refused
    assert {name for name in maxtext["runs"] if name.endswith("nvfp4-emulated")}
    assert not tier(found, "maxtext", "one_host")["runs"]
    layers = tier(found, "te_layers", "one_gpu")
    assert {name.split("-")[-1] for name in names(layers["refused"])} == {"mxfp8", "nvfp4"}
    assert {name.split("-")[-1] for name in layers["runs"]} == {"bf16", "fp8_delayed", "fp8_current", "fp8_block"}
    said = "\n".join(text(found))
    assert "nemo 25.04, one gpu: " in said
    assert "would be refused (" in said


def test_without_a_gpu_and_environments_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tiers, "CHECKOUT", tmp_path)
    probed.cache_clear()
    assert diagnose(SETTINGS, [], [], as_json=False) == EXIT_UNSUPPORTED
    said = capsys.readouterr().out
    assert "no nvidia-smi: no NVIDIA driver is installed here" in said
    assert "`snakemake nemo_environment` builds it" in said
    assert "te_layers, one gpu: nothing runs here: no python3 here" in said
    assert "maxtext, cluster: nothing runs here: no sbatch here" in said


def test_a_driver_that_the_stack_cannot_use_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", "echo 'NVIDIA H200, 9.0, 470.1, 143771, 143000, [N/A]'", monkeypatch)
    monkeypatch.setattr(tiers, "probed", lambda environment: {"gpus": 0, "versions": {}})
    found = examine(Settings(), ["te_layers"])
    assert "python3 sees no GPU, the driver 1: its torch or JAX" in found["tiers"][0]["lacking"]
    (line,) = (line for line in text(found) if line.startswith("GPU 0"))
    assert "driver 470.1, 139.6 of 140.4 GiB free, power limit ? W" in line


def test_a_driver_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(
        tmp_path,
        "nvidia-smi",
        "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
        monkeypatch,
    )
    assert machine.gpus() == ([], "nvidia-smi: Failed to initialize NVML: Driver/library version mismatch")


def test_a_login_node_says_which_setting_or_image_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "sbatch", "exit 1", monkeypatch)
    place = {"account": "a", "partition": "p", "home": str(tmp_path)}
    unset = examine(Settings.model_validate({"slurm": place}), ["maxtext"])
    assert "slurm.hardware not set" in tier(unset, "maxtext", "cluster")["lacking"]
    place["hardware"] = ["gb200"]  # type: ignore[assignment]
    unresolved = examine(Settings.model_validate({"slurm": place}), ["maxtext"])
    assert "fewbits images resolve maxtext" in tier(unresolved, "maxtext", "cluster")["lacking"]
    given = Settings.model_validate({"slurm": {**place, "maxtext_image": "/images/maxtext.sqsh"}})
    assert "llama31_405b-gb200-nvfp4" in tier(examine(given, ["maxtext"]), "maxtext", "cluster")["runs"]


def test_the_stacks_own_interpreter_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    here = probed(Environment("python3"))
    assert here["versions"]["numpy"]
    assert diagnose(SETTINGS, [], ["te_layers"], as_json=True) in (EXIT_OK, EXIT_UNSUPPORTED)
    assert set(json.loads(capsys.readouterr().out)) == {"machine", "tiers"}
    with pytest.raises(RunError, match=r"/nowhere: no such folder; unpack the bundle there"):
        probed(Environment("python3", ("/nowhere",)))


def test_sites_are_named() -> None:
    settings = with_sites(Settings(), ["nemo=/a", "nemo_25_07=/b"])
    assert (settings.nemo.site, settings.nemo.site_25_07, settings.maxtext.site) == ("/a", "/b", "")
    with pytest.raises(RunError, match="must be NAME=FOLDER"):
        with_sites(Settings(), ["nemo"])


def test_memory_and_disk_are_read() -> None:
    total, free = machine.memory()
    assert 0 < free <= total
    assert machine.disk_free_bytes(Path("/no/such/folder")) > 0
