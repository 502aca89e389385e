"""Writes NeMo run folders as the launcher would, with invented times: for tests only, never under results/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recipes.nemo.experiments import experiment
from recipes.runs import RunFolder
from tests.training_run import content, steps

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
    facts = {"resumed_at_step": 0, "attention_backend": "fused 1"}
    said = content(which, run_id, {"versions": {"nemo-toolkit": "2.3.0"}, "nemo": facts, **record})
    batch = which.layout.global_batch_samples
    losses = [loss - 0.001 * step for step in range(which.steps)]
    with RunFolder(root, "nemo", name, run_id, said) as folder:
        for step, value, time_s in steps(folder, which, losses, batch, step_time_s, 60):
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
