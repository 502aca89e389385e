"""MaxText beyond one process: what is sent to Slurm, what a rehearsal finds, checkpoints (slow, with MaxText)."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from recipes.maxtext.arguments import arguments
from recipes.maxtext.environment import check_host
from recipes.maxtext.experiments import all_experiments, experiment, refused
from recipes.maxtext.proof import collectives
from recipes.maxtext.rehearse import configuration, verdict, warnings
from recipes.maxtext.saving import take_checkpoint, tidy
from recipes.maxtext.submit import main as submit
from recipes.maxtext.submit import script
from recipes.runs import RunError, find_runs
from tests.conftest import CHECKOUT

PYTHON = CHECKOUT / "build/envs/maxtext/bin/python"
needs_maxtext = pytest.mark.skipif(not PYTHON.exists(), reason="MaxText's environment is not built")
PLACE = ["--account", "a", "--partition", "p"]


def test_published_settings_are_the_clusters() -> None:
    small, large = experiment("llama3_8b-gb300-nvfp4"), experiment("llama31_405b-gb200-nvfp4")
    assert (small.layout.gpus, small.nodes, small.layout.device_batch_samples) == (4, 1, 4)
    assert (large.layout.gpus, large.nodes, large.layout.device_batch_samples) == (128, 32, 1)
    assert {one.dimensions.sequence for one in (small, large)} == {8192}
    # NVFP4 stands over FP8 as published, FP8 over Transformer Engine's BF16
    assert (large.baseline, experiment(str(large.baseline)).baseline) == (
        "llama31_405b-gb200-fp8_delayed",
        "llama31_405b-gb200-te_no_quant",
    )
    assert arguments(large)["dataset_type"] == "synthetic"
    # Blackwell has every format: nothing of the cluster is refused
    assert [one.name for one in all_experiments().values() if one.tier == "cluster" and refused(one)] == []


def place(home: Path, *more: str) -> list[str]:
    return [*PLACE, "--home", str(home), *more]


@pytest.mark.parametrize(
    ("name", "more", "code", "hint"),
    [
        ("llama31_405b-gb200-nvfp4", [], 2, "fewbits images resolve maxtext --tag TAG"),
        ("llama31_405b-gb200-nvfp4", ["--image", "ghcr.io/nvidia/jax:maxtext"], 2, "name it by digest"),
        ("llama31_405b-gb200-nvfp4", ["--image", "/nowhere.sqsh"], 2, "import it first"),
        ("llama31_405b-gb200-nvfp4", ["--image", "jax@sha256:00", "--gpus-per-node", "8"], 2, "nodes of 4 GPUs"),
        ("llama31_405b-gb200-nvfp4", ["--image", "jax@sha256:00", "--mount", "data"], 2, "must be /absolute/source"),
        ("llama3_8b-h200-bf16", ["--image", "jax@sha256:00"], 2, "run it here"),
        ("llama31_405b-gb200-nvfp5", ["--image", "jax@sha256:00"], 2, "did you mean nvfp4"),
        ("llama31_405b-gb200-nvfp4", ["--image", "jax@sha256:00", "--dry-run"], 0, "written to"),
    ],
)
def test_what_would_fail_in_the_queue_is_refused_before(
    name: str, more: list[str], code: int, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit([name, *place(tmp_path / "home", *more)]) == code
    assert hint in capsys.readouterr().err
    assert len(list(tmp_path.rglob("job.sh"))) == (1 if code == 0 else 0)


def test_the_job_is_a_task_a_gpu_in_the_container(tmp_path: Path) -> None:
    args = argparse.Namespace(
        home=tmp_path, account="a", partition="p", image="jax@sha256:00", mount=["/data:/data"], gres="gpu:4"
    )
    args = argparse.Namespace(**vars(args), time_limit="", steps=20, checkpoint_every=0)
    lines = script(experiment("llama31_405b-gb200-nvfp4"), args, "S", "c0ffee").splitlines()
    wanted = {"--nodes=32", "--ntasks-per-node=4", "--time=00:45:00", "--segment=16", "--gres=gpu:4", "--exclusive"}
    assert wanted <= {line.removeprefix("#SBATCH ") for line in lines}
    assert "export FEWBITS_COMMIT=c0ffee FEWBITS_IMAGE=jax@sha256:00" in lines
    assert f"--container-mounts {tmp_path}:{tmp_path},/data:/data" in lines[-2]
    assert "recipes.maxtext.task llama31_405b-gb200-nvfp4" in lines[-1]
    assert lines[-1].endswith("--steps 20")
    subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, check=True)


def test_a_job_with_other_tasks_than_the_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "64")
    host = {"gpus": 4, "gpu_name": "NVIDIA GB200", "compute_capability": [10, 0], "versions": {"maxtext": "0.2.5"}}
    with pytest.raises(RunError, match="128 ranks, Slurm started 64 tasks"):
        check_host(experiment("llama31_405b-gb200-bf16"), host, slurm=True)
    monkeypatch.setenv("SLURM_NTASKS", "128")
    check_host(experiment("llama31_405b-gb200-bf16"), host, slurm=True)
    with pytest.raises(RunError, match="is for gb200, this is NVIDIA B200"):
        check_host(experiment("llama31_405b-gb200-bf16"), {**host, "gpu_name": "NVIDIA B200"}, slurm=True)


HLO = """
  %all-gather.1 = bf16[4096,1024]{1,0} all-gather(bf16[1024,1024]{1,0} %p), channel_id=1
  %ag = (f32[8]{0}, f32[32]{0}) all-gather-start(f32[8]{0} %x), channel_id=2
  %reduce-scatter.3 = f8e4m3fn[16]{0} reduce-scatter(f8e4m3fn[64]{0} %y), dimensions={0}
  %add = f32[8]{0} add(f32[8]{0} %all-gather.1, f32[8]{0} %b)
"""


def test_collectives_are_counted_with_the_bytes_of_their_results() -> None:
    assert collectives(HLO) == {
        "all-gather": {"count": 2, "bytes": 4096 * 1024 * 2 + 8 * 4 + 32 * 4},
        "reduce-scatter": {"count": 1, "bytes": 16},
    }


FOUND: dict[str, Any] = {
    "devices": 128,
    "precision": "bf16",
    "bytes_a_device": {"arguments": 38e9, "temporary": 93e9},
    "collectives": {"all-gather": {"count": 16, "bytes": 1}},
}


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({}, None),
        ({"devices": 64}, "128 devices were asked for, JAX had 64"),
        ({"precision": "fp8_current"}, "bf16 was asked for, the lowered step is fp8_current"),
        ({"collectives": {}}, "the devices would train apart"),
        ({"bytes_a_device": {"arguments": 400e9, "temporary": 0}}, "weights and optimizer take 400.0 GB a device"),
    ],
)
def test_a_rehearsal_names_what_is_wrong(changes: dict[str, Any], hint: str | None) -> None:
    which = experiment("llama31_405b-gb200-te_no_quant")
    wrong = verdict(which, {**FOUND, **changes})
    assert wrong == [] if hint is None else hint in wrong[0]


def test_a_rehearsal_doubts_what_may_not_fit() -> None:
    which = experiment("llama31_405b-gb200-te_no_quant")
    assert warnings(which, FOUND) == []
    (line,) = warnings(which, {**FOUND, "bytes_a_device": {"arguments": 38e9, "temporary": 418e9}})
    assert "may not fit" in line
    assert "recompute more" in line
    (line,) = warnings(experiment("llama31_405b-gb200-nvfp4"), FOUND)
    assert "rehearse te_no_quant for memory" in line


def test_a_rehearsal_changes_only_what_it_says() -> None:
    which = experiment("llama31_405b-gb200-nvfp4")
    before, after = arguments(which), configuration(which)
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {
        "hardware",
        "scan_layers",
        "skip_jax_distributed_system",
        "ici_fsdp_parallelism",
        "dcn_fsdp_parallelism",
    }


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("run", "7"):
        with pytest.raises(RunError, match="--resume takes a folder that its last step names"):
            take_checkpoint(tmp_path / name)


def test_only_what_was_asked_for_is_kept(tmp_path: Path) -> None:
    for name in ("0", "20", "40", "60.orbax-checkpoint-tmp"):
        (tmp_path / name / "items").mkdir(parents=True)
    tidy(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"20", "40"}
    # the only one there is stays
    (tmp_path / "other/0/items").mkdir(parents=True)
    tidy(tmp_path / "other")
    assert (tmp_path / "other/0").is_dir()
    tidy(tmp_path / "nothing")


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [str(PYTHON), "-m", "recipes.maxtext.launch", *words]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)


def losses(runs: Path) -> dict[int, float]:
    (folder,) = find_runs(runs)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows}


@pytest.mark.slow
@needs_maxtext
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Straight through; stopped by SIGTERM and resumed: the joined values are equal bit for bit."""
    options = ["llama3_8b-cpu-bf16", "--steps", "80"]  # the learning rate is of the whole length
    assert launched(*options, "--runs", str(tmp_path / "straight")).returncode == 0
    command = [str(PYTHON), "-m", "recipes.maxtext.launch", *options, "--checkpoint-every", "10"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    process = subprocess.Popen([*command, "--runs", str(tmp_path / "first")], cwd=CHECKOUT, env=environment)
    while process.poll() is None:
        if any(len((run / "metrics.jsonl").read_text().splitlines()) > 25 for run in find_runs(tmp_path / "first")):
            process.terminate()
            break
        time.sleep(0.02)
    assert process.wait(timeout=60) == 128 + 15
    saved = [path for path in (tmp_path / "first/checkpoints").glob("maxtext/*/*/*") if path.name.isdigit()]
    last = max(saved, key=lambda path: int(path.name))
    done = launched(*options, "--resume", str(last), "--runs", str(tmp_path / "second"))
    assert done.returncode == 0, done.stderr
    first, second = losses(tmp_path / "first"), losses(tmp_path / "second")
    assert 20 <= int(last.name) <= max(first) < 79
    joined = {step: loss for step, loss in first.items() if step <= int(last.name)} | second
    assert min(second) == int(last.name) + 1
    assert [joined[step] for step in range(80)] == list(losses(tmp_path / "straight").values())
    (folder,) = find_runs(tmp_path / "second")
    record = json.loads((folder / "run.json").read_text())
    assert record["maxtext"]["resumed_at_step"] == min(second)
    assert record["session"]["resumed_from"].endswith(f"/{last.name}")
    assert str(tmp_path) not in (folder / "log.txt").read_text()


@pytest.mark.slow
@needs_maxtext
def test_an_earlier_runs_values_are_never_added_to(tmp_path: Path) -> None:
    which = experiment("llama3_8b-cpu-bf16").model_copy(update={"steps": 2})
    (tmp_path / "run.json").write_text(json.dumps({"configuration": which.model_dump(mode="json")}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE"}
    command = [str(PYTHON), "-m", "recipes.maxtext.worker"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "metrics.jsonl holds an earlier run's values; a run needs a folder of its own" in done.stderr
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 0}\n'


@pytest.mark.slow
@needs_maxtext
def test_a_whole_model_compiles_for_its_virtual_devices() -> None:
    done = launched("llama31_405b-gb200-te_no_quant", "--rehearse")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert (found["devices"], found["precision"], found["wrong"]) == (128, "bf16", [])
    # FP32 weights and two moments, over 128 devices
    assert found["bytes_a_device"]["arguments"] == pytest.approx(405.85e9 * 12 / 128, rel=0.02)
    assert found["collectives"]["all-gather"]["count"] > 0
