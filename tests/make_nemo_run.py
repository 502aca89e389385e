"""Writes NeMo run folders as the launcher would, with invented times: for tests only, never under results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recipes.nemo.experiments import experiment
from recipes.runs import RunFolder

KERNELS = """name,calls,device_time_us
"nvjet_sm90_qqtst_a",256,2000000.0
"nvjet_sm90_tst_b",32,1000000.0
"cast_transpose_kernel",256,300000.0
"cudnn_generated_sdpa_flash_fprop",256,1100000.0
"cross_entropy_forward_kernel",32,80000.0
"Optimizer.step#FusedAdam.step",1,20000.0
"void multi_tensor_apply_kernel<Adam>",1,20000.0
"triton_poi_fused_silu",256,400000.0
"""
KERNELS_BF16 = (
    KERNELS.replace("nvjet_sm90_qqtst_a", "nvjet_sm90_tst_a")
    .replace("2000000.0", "4000000.0")
    .replace('"cast_transpose_kernel",256,300000.0\n', "")
)


def make_nemo_run(
    root: Path,
    name: str,
    *,
    step_time_s: float = 5.0,
    loss: float = 11.97,
    run_id: str = "20260101T000000Z-0000-r1",
    kernels: str = "",
    **record: Any,
) -> Path:
    """A sealed, complete run of the experiment; `record` replaces entries of run.json. Returns the folder."""
    which = experiment(name)
    hardware = {"gpus": 0} if which.tier == "cpu" else {"gpus": 1, "gpu_name": "NVIDIA H200", "gpu_uuid": "GPU-0"}
    content = {
        "configuration": which.model_dump(mode="json"),
        "release": which.release,
        "requested_precision": which.precision,
        "effective_precision": which.precision,
        "hardware": hardware,
        "versions": {"nemo-toolkit": "2.3.0"},
        "environment": {"lock_sha256": "0", "variables": {}},
        "git": {"commit": "0" * 40, "dirty": False},
        "session": {"id": run_id, "repeat": 1},
        "seed": which.seed,
        "data": "invented",
        "nemo": {"resumed_at_step": 0, "attention_backend": "fused 1"},
        **record,
    }
    batch, clock = which.layout.global_batch_samples, 1767225600.0
    with RunFolder(root, "nemo", name, run_id, content) as folder:
        for step in range(which.steps):
            time_s = step_time_s * (2.0 if step < 2 else 1.0 + 0.001 * (step % 3))
            clock += time_s
            value = loss - 0.001 * step
            folder.metric(
                step=step,
                loss=value,
                grad_norm=1.5,
                lr=1e-6 * (step + 1),
                step_time_s=time_s,
                consumed_samples=(step + 1) * batch,
                memory_peak_bytes=None if which.tier == "cpu" else 60 << 30,
                time_unix_s=clock,
            )
            folder.log(
                f"Training epoch 0, iteration {step}/{which.steps - 1} | lr: {1e-6 * (step + 1):.4g} |"
                f" global_batch_size: {batch} | global_step: {step} | reduced_train_loss: {value:.4g} |"
                f" train_step_timing in s: {time_s:.4g} | consumed_samples: {(step + 1) * batch}"
            )
        folder.log(f"`Trainer.fit` stopped: `max_steps={which.steps}` reached.")
        if kernels:
            (folder.path / "kernels.csv").write_text(kernels)
        folder.finish("completed")
    return folder.path
