"""Invented logs of every format, as lists of lines: what tests break and benchmarks multiply. Nothing was measured."""

from __future__ import annotations

import datetime
import json
import math
import random
from collections.abc import Callable

START = datetime.datetime(2026, 3, 27, 17, 0, 0)


def loss_at(step: int, rng: random.Random) -> float:
    """A loss that falls from 11 and jitters."""
    return 2.0 + 9.0 * math.exp(-step / 40) + 0.02 * rng.random()


def megatron(steps: int = 30, seed: int = 1, batch: int = 80, precision: str = "bf16", first: int = 1) -> list[str]:
    """Megatron-LM core 0.10: argument dump, iteration lines, the end."""
    rng, clock = random.Random(seed), START
    fp8 = {"bf16": "None", "fp8_delayed": "hybrid", "fp8_current": "hybrid", "mxfp8": "e4m3"}[precision]
    recipe = {"fp8_current": "tensorwise", "mxfp8": "mxfp8"}.get(precision, "delayed")
    values = {
        "bf16": "True",
        "fp8": fp8,
        "fp8_recipe": recipe,
        "global_batch_size": batch,
        "seq_length": 2048,
        "train_iters": steps,
        "world_size": 8,
        "lr": "0.0003",
        "min_lr": "0.00015",
        "lr_decay_style": "linear",
        "lr_warmup_iters": 0,
        "seed": 1234,
    }
    lines = ["------------------------ arguments ------------------------"]
    lines += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in values.items()]
    for step in range(first, steps + 1):
        seconds = 3.1 + 0.02 * rng.random()
        clock += datetime.timedelta(seconds=seconds)
        lines.append(
            f" [{clock:%Y-%m-%d %H:%M:%S}.{clock.microsecond:06d}] iteration {step:8d}/{steps:8d} "
            f"| consumed samples: {step * batch:12d} | elapsed time per iteration (ms): {seconds * 1000:.1f} "
            f"| throughput per GPU (TFLOP/s/GPU): {1090 / seconds:.1f} "
            f"| learning rate: {3e-4 * (1 - step / (2 * steps)):.6E} | global batch size: {batch:5d} "
            f"| lm loss: {loss_at(step, rng):.6E} | loss scale: 1.0 | grad norm: {0.5 + rng.random():.3f} "
            f"| number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |"
        )
    return [*lines, "[after training is done] datetime: 2026-03-27 18:00:00 "]


def bridge(steps: int = 30, seed: int = 1) -> list[str]:
    """Megatron-Bridge: its own line before each iteration line."""
    lines = []
    for line in megatron(steps, seed):
        if " iteration " in line:
            lines.append("Step Time : 3.11s GPU utilization: 350.1MODEL_TFLOP/s/GPU")
        lines.append(line)
    return lines


def nemo(steps: int = 30, seed: int = 1, batch: int = 128, first: int = 0) -> list[str]:
    """NeMo 2: progress lines in 4 significant digits."""
    rng = random.Random(seed)
    lines = ["All distributed processes registered. Starting with 8 processes", "  fp8: null", "  bf16: true"]
    for step in range(first, steps):
        seconds = 6.0 + 0.05 * rng.random()
        lines.append(
            f"Training epoch 0, iteration {step}/{steps - 1} | lr: {3e-4 * (1 - step / (2 * steps)):.4} "
            f"| global_batch_size: {batch} | global_step: {step} | reduced_train_loss: {loss_at(step, rng):.4} "
            f"| train_step_timing in s: {seconds:.4} | TFLOPS_per_GPU: {7500 / seconds:.4} "
            f"| consumed_samples: {(step + 1) * batch}"
        )
    return [*lines, f"`Trainer.fit` stopped: `max_steps={steps}` reached."]


def maxtext(steps: int = 30, seed: int = 1, quantization: str = "", first: int = 0) -> list[str]:
    """MaxText 2025: configuration, step lines with three decimals, no end marker."""
    rng = random.Random(seed)
    lines = [
        f"Config param quantization: {quantization}",
        "Config param dtype: bfloat16",
        "Config param max_target_length: 8192",
        f"Config param steps: {steps}",
    ]
    for step in range(first, steps):
        seconds = round(3.0 + 0.05 * rng.random(), 3)
        lines.append(
            f"completed step: {step}, seconds: {seconds:.3f}, TFLOP/s/device: {1033.2 / seconds:.3f}, "
            f"Tokens/s/device: {16384 / seconds:.3f}, total_weights: 196608, loss: {loss_at(step, rng):.3f}"
        )
    return lines


def torchtitan(steps: int = 30, seed: int = 1, every: int = 1, colours: bool = False) -> list[str]:
    """torchtitan 2025: metrics with rank prefix and time stamp."""
    rng, clock = random.Random(seed), START
    stamp = "[rank0]:[titan] {:%Y-%m-%d %H:%M:%S},{:03d} - root - INFO - "
    lines = [
        stamp.format(clock, 0) + "Training starts at step 1, with local batch size 1, global batch size 8, "
        f"sequence length 8192, total steps {steps} (warmup 5)"
    ]
    for step in range(1, steps + 1):
        seconds = 1.2 + 0.01 * rng.random()
        clock += datetime.timedelta(seconds=seconds)
        if step > 1 and step % every:
            continue
        text = (
            f"step: {step:2d}  loss: {loss_at(step, rng):7.4f}  grad_norm: {1 + rng.random():7.4f}  "
            f"memory: 30.99GiB(32.62%)  tps: {round(8192 / seconds):,}  tflops: {470 / seconds:.2f}  mfu: 41.19%"
        )
        if colours:
            text = text.replace("  loss", "  \x1b[32mloss").replace("  tps", "  \x1b[34mtps") + "\x1b[39m"
        lines.append(stamp.format(clock, clock.microsecond // 1000) + text)
    return [*lines, stamp.format(clock, 0) + "Training completed"]


def mllog(steps: int = 32, seed: int = 1, batch: int = 16) -> list[str]:
    """MLPerf v5.1: marks, a record a step, an evaluation every eighth step."""
    rng, now = random.Random(seed), 1_759_832_940_000.0

    def say(key: str, value: object, event: str = "POINT_IN_TIME", **metadata: object) -> str:
        record = {
            "namespace": "",
            "time_ms": round(now),
            "event_type": event,
            "key": key,
            "value": value,
            "metadata": {"file": "/workspace/callbacks.py", "lineno": 1, **metadata},
        }
        return ":::MLLOG " + json.dumps(record)

    lines = [
        say("submission_benchmark", "llama31_8b"),
        say("submission_platform", "1xNVIDIA H100"),
        say("global_batch_size", batch),
        say("max_sequence_length", 8192),
        say("seed", seed),
        say("run_start", None, "INTERVAL_START"),
    ]
    for step in range(steps):
        seconds = 0.35 + 0.01 * rng.random()
        now += 1000 * seconds
        value = {"train_step_time": seconds, "reduced_train_loss": loss_at(step, rng)}
        samples = (step + 1) * batch
        lines.append(say("tracked_stats", value, step=float(step), samples_count=float(samples)))
        if step % 8 == 7:
            lines.append(say("eval_start", None, "INTERVAL_START", samples_count=samples))
            now += 500
            lines.append(say("eval_accuracy", loss_at(step, rng), samples_count=samples))
            lines.append(say("eval_stop", None, "INTERVAL_END", samples_count=samples))
    return [*lines, say("run_stop", None, "INTERVAL_END", status="success")]


def dllogger(steps: int = 30, seed: int = 1) -> list[str]:
    """NeMo 1: DLLogger records."""
    rng, now = random.Random(seed), 1_727_486_493.0
    data: dict[str, object] = {"cfg/fp8": True, "cfg/global_batch_size": 64, "trainer/max_steps": steps}
    lines = ["DLLL " + json.dumps({"timestamp": str(now), "type": "LOG", "step": "PARAMETER", "data": data})]
    for step in range(steps):
        seconds = 25.0 + rng.random()
        now += seconds
        data = {
            "reduced_train_loss": loss_at(step, rng),
            "global_step": float(step),
            "consumed_samples": 64.0 * (step + 1),
            "grad_norm": 1 + rng.random(),
            "train_step_timing in s": seconds,
        }
        lines.append("DLLL " + json.dumps({"timestamp": f"{now:.6f}", "type": "LOG", "step": step, "data": data}))
    return lines


# Formats whose logs say how long they should be: a cut is then seen without being told.
WRITERS: dict[str, Callable[..., list[str]]] = {
    "megatron": megatron,
    "bridge": bridge,
    "nemo": nemo,
    "maxtext": maxtext,
    "torchtitan": torchtitan,
    "mlperf": mllog,
    "dllogger": dllogger,
}


def text(lines: list[str]) -> bytes:
    """Lines as a file's bytes."""
    return ("\n".join(lines) + "\n").encode()


def is_step(line: str) -> bool:
    """Whether a line states a step."""
    marks = (" iteration ", "Training epoch", "completed step", "  loss: ", '"reduced_train_loss"', "mloss: ")
    return any(mark in line for mark in marks)


def step_lines(lines: list[str]) -> list[int]:
    """Indices of the step lines."""
    return [index for index, line in enumerate(lines) if is_step(line)]
