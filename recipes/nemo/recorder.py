"""A Lightning callback that leaves the evidence of a run: every step at full precision, and what was really built."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch

from recipes.effective import attention_backend, effective_precision
from recipes.launching import rank
from recipes.nemo.occupancy import occupancy
from recipes.runs import FACTS, METRICS, RunError, plain, to_json, write_atomically


class RunRecorder(lightning.Callback):  # type: ignore[misc]
    """Writes metrics.jsonl into a run folder, and facts.json for whoever seals it.

    One object a step: `step` (0-based, as NeMo prints it), `loss` and `grad_norm` as NeMo logs them, `lr`,
    `step_time_s` (wall time from the end of the last step, device synchronised; the first from the start of training),
    `consumed_samples`, `memory_peak_bytes` (allocated so far, this rank), `time_unix_s`.

    After the first step the precision of the built Transformer Engine modules is read: anything but `precision` (with
    the first and last layer in BF16 where asked for) raises RunError. So does a loss that is not finite, after it was
    written. Without Transformer Engine every module is torch's own, so that only `bf16` can be found.
    """

    def __init__(self, folder: str, precision: str, bf16_layers: list[int], profile_step: int = -1) -> None:
        self.folder, self.precision, self.bf16_layers = Path(folder), precision, bf16_layers
        self.profile_step = profile_step
        self._file: Any = None
        self._last = 0.0
        self._profiler: Any = None
        self.facts: dict[str, Any] = {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Open metrics.jsonl on the first rank, and start the clock."""
        if trainer.is_global_zero:
            self._file = (self.folder / METRICS).open("a", encoding="utf-8", newline="\n")
        self.facts["resumed_at_step"] = trainer.global_step
        self._synchronise()
        self._last = time.perf_counter()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Start the profiler before the step that is to be profiled."""
        if trainer.is_global_zero and trainer.global_step == self.profile_step:
            kinds = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                kinds.append(torch.profiler.ProfilerActivity.CUDA)
            self._profiler = torch.profiler.profile(activities=kinds)
            self._profiler.__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write one step, then look at what was built."""
        self._synchronise()
        now = time.perf_counter()
        step = trainer.global_step - 1
        values = trainer.callback_metrics
        loss = float(values["reduced_train_loss"])
        if self._file is not None:
            row = {
                "step": step,
                "loss": loss,
                "grad_norm": float(values["grad_norm"]) if "grad_norm" in values else None,
                "lr": float(values["lr"]) if "lr" in values else None,
                "step_time_s": now - self._last,
                "consumed_samples": _consumed_samples(trainer),
                "memory_peak_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
                "time_unix_s": time.time(),
            }
            if self._profiler is not None:
                row["profiled"] = True
            self._file.write(json.dumps({key: plain(value) for key, value in row.items()}, allow_nan=False) + "\n")
            self._file.flush()
        if self._profiler is not None:
            self._write_profile()
        if "modules" not in self.facts:
            self._look(trainer)
        if not math.isfinite(loss):
            raise RunError(f"the loss is {loss} at step {step}: the run has diverged")
        self._synchronise()
        self._last = time.perf_counter() if self._profiled(step) else now

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Close the file and leave the facts."""
        self.facts["steps_done"] = trainer.global_step
        self.close()

    def close(self) -> None:
        """Write facts.json (first rank only) and close metrics.jsonl; called again after a failure."""
        if torch.cuda.is_available():
            self.facts["memory_peak_bytes"] = torch.cuda.max_memory_allocated()
            self.facts["memory_reserved_peak_bytes"] = torch.cuda.max_memory_reserved()
        if rank() == 0:
            write_atomically(self.folder / FACTS, to_json(self.facts))
        if self._file is not None:
            self._file.close()
            self._file = None

    def _profiled(self, step: int) -> bool:
        return step == self.profile_step

    @staticmethod
    def _synchronise() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def _look(self, trainer: Any) -> None:
        """Read the precision of the built modules, layer by layer. Raises RunError when it is not the requested one."""
        found: dict[int, Any] = {}
        quantizers: dict[str, int] = {}
        for chunk in trainer.model:
            for module in chunk.modules():
                if hasattr(module, "layer_number") and hasattr(module, "mlp") and hasattr(module, "self_attention"):
                    seen = effective_precision(module.modules())
                    found[module.layer_number - 1] = seen["precision"]
                    for name, count in seen["quantizers"].items():
                        quantizers[name] = quantizers.get(name, 0) + count
        self.facts["modules"] = {str(layer): found[layer] for layer in sorted(found)}
        self.facts["quantizers"] = dict(sorted(quantizers.items()))
        wrong = {
            layer: precision
            for layer, precision in found.items()
            if precision != ("bf16" if layer in self.bf16_layers else self.precision)
        }
        if not found or wrong:
            raise RunError(f"{self.precision} was asked for, the built layers hold {wrong or 'nothing'}")
        self.facts["effective_precision"] = self.precision
        self.facts["attention_backend"] = attention_backend() if torch.cuda.is_available() else "unfused (torch, CPU)"

    def _write_profile(self) -> None:
        """kernels.csv: one line a kernel of the profiled step with calls and device time, longest first.

        How they fill the step goes into the facts.
        """
        self._profiler.__exit__(None, None, None)
        kernels = [
            (event.name(), event.start_ns(), event.end_ns())
            for event in self._profiler.profiler.kineto_results.events()
            if str(event.device_type()).endswith("CUDA") and not event.is_user_annotation()
        ]
        self.facts["profiled_step"] = occupancy(kernels)
        rows = sorted(self._profiler.key_averages(), key=lambda event: -event.self_device_time_total)
        lines = ["name,calls,device_time_us"]
        for event in rows:
            if event.self_device_time_total > 0 and str(event.device_type).endswith("CUDA"):
                name = event.key.replace('"', "'")
                lines.append(f'"{name}",{event.count},{event.self_device_time_total:.1f}')
        write_atomically(self.folder / "kernels.csv", "\n".join(lines) + "\n")
        self._profiler = None


def _consumed_samples(trainer: Any) -> int:
    """Samples seen so far, as NeMo's own sampler counts them."""
    data = trainer.datamodule
    since = trainer.global_step - getattr(data, "init_global_step", 0)
    return int(data.data_sampler.compute_consumed_samples(since))
