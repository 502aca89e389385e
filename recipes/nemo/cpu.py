"""NeMo on a machine without a GPU: the names of CUDA that it calls unconditionally, mapped to the CPU.

For plumbing runs only (tier `cpu`, BF16): nothing here computes differently from torch on CPU, and no FP8 can come out
of it. `before_import()` first, then import NeMo, then `after_import()`. What each line works around was found by
running NeMo 2.3.0 with megatron-core 0.12.0.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")
_mode: TorchFunctionMode | None = None


def _names_cuda(device: Any) -> bool:
    if isinstance(device, str):
        return device.startswith("cuda")
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


class _ToCpu(TorchFunctionMode):
    """Optimizer and schedules say device="cuda" literally."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs and _names_cuda(kwargs["device"]):
            kwargs["device"] = _CPU
        return func(*args, **kwargs)


class _Nothing:
    """A stream or an event: every method does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def before_import() -> None:
    """Map torch.cuda to the CPU. One object an attribute: torch refuses one function under two of its names."""
    global _mode
    cuda: Any = torch.cuda
    cuda.current_device = lambda: _CPU
    cuda.set_device = lambda *args, **kwargs: None
    cuda.synchronize = lambda *args, **kwargs: None
    cuda.get_device_capability = lambda device=None: (9, 0)  # only a callback's choice of warnings hangs on it
    cuda.manual_seed = lambda seed: torch.default_generator.manual_seed(int(seed))
    cuda.manual_seed_all = lambda seed: None  # torch.manual_seed calls it
    cuda.get_rng_state = lambda device="cuda": torch.get_rng_state()
    cuda.set_rng_state = lambda state, device="cuda": torch.set_rng_state(state)
    cuda.Stream = type("Stream", (_Nothing,), {})
    cuda.Event = type("Event", (_Nothing,), {})
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.current_stream = lambda *args: _Nothing()
    cuda.default_stream = lambda *args: _Nothing()
    import megatron.core.tensor_parallel.random as random

    random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)
    torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign,assignment,misc]
    torch.nn.Module.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign,assignment,misc]
    plain_type: Any = torch.Tensor.type

    def type_as_cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        # the optimizer compares with the string torch.cuda.FloatTensor
        said = plain_type(self, *args, **kwargs)
        return said.replace("torch.", "torch.cuda.", 1) if isinstance(said, str) and "cuda" not in said else said

    torch.Tensor.type = type_as_cuda  # type: ignore[method-assign,assignment]
    _mode = _ToCpu()
    _mode.__enter__()


def after_import() -> None:
    """Seed megatron-core's generator, and step around faults that only show on CPU."""
    import megatron.core.fp8_utils as fp8
    import megatron.core.optimizer.distrib_optimizer as optimizer
    import megatron.core.tensor_parallel as tensor_parallel
    import nemo.collections.llm.gpt.data.mock as mock
    import nemo.lightning.io.pl as checkpoints
    import nemo.lightning.megatron_init as init
    import nemo.lightning.pytorch.callbacks.progress_printer as printer

    plain_seed, plain_shards, plain_mock = (
        init._set_random_seed,
        fp8._quantize_param_shard_impl,
        mock._MockGPTDataset.__init__,
    )

    def seed(value: int) -> None:
        plain_seed(value)
        tensor_parallel.model_parallel_cuda_manual_seed(value)

    def shards(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        # megatron-core 0.12.0 asks for Transformer Engine even when no parameter is FP8
        return plain_shards(parameters, *args, **kwargs) if parameters else None

    plain_state = optimizer.DistributedOptimizer.state_dict

    def state(self: Any) -> Any:
        # without Transformer Engine, loading a checkpoint asks torch's Adam for its step before its first one
        if self.optimizer.state:
            return plain_state(self)
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                self.optimizer.state[parameter] = {"step": torch.tensor(0.0)}
        said = plain_state(self)
        self.optimizer.state.clear()  # loading allocates what is not there
        return said

    plain_load = optimizer.DistributedOptimizer._set_main_param_and_optimizer_states

    def load(self: Any, parameter: Any, tensors: Any) -> None:
        # torch's Adam keeps its step beside the moments; the checkpoint keeps it once, and megatron-core hands all
        # parameters the same tensor, which each of them would then count up
        group, order = self.model_param_group_index_map[parameter]
        kept = self.optimizer.state[self.optimizer.param_groups[group]["params"][order]]
        kept["step"] = kept["step"].clone()
        plain_load(self, parameter, {"step": kept["step"].clone(), **tensors})

    def mock_dataset(self: Any, tokenizer: Any, name: str, samples: int, length: int, mask: bool = False) -> None:
        # NeMo 2.3 passes the mask flag as the seed; without the mask, attention on CPU has none
        plain_mock(self, tokenizer, name, samples, length, 42, mask)

    # rank 0 alone gathers (empty) timers from all: nothing to NCCL, a hang on gloo
    printer.ProgressPrinter.log_megatron_timers = lambda self, timers: ""
    optimizer.DistributedOptimizer.state_dict = state
    optimizer.DistributedOptimizer._set_main_param_and_optimizer_states = load
    checkpoints._fix_tensors_device = lambda checkpoint: checkpoint  # moves what was loaded to the GPU
    init._set_random_seed = seed
    fp8._quantize_param_shard_impl = shards
    mock._MockGPTDataset.__init__ = mock_dataset


def adapt(made: Any) -> None:
    """Switch off in a recipe what needs CUDA or Transformer Engine. `made` is `recipes.nemo.recipe.recipe`'s result."""
    config, trainer, strategy = made.model.config, made.trainer, made.trainer.strategy
    config.use_cpu_initialization = True
    config.cross_entropy_fusion_impl = "native"
    for name in (
        "apply_rope_fusion",
        "bias_activation_fusion",
        "bias_dropout_fusion",
        "masked_softmax_fusion",
        "gradient_accumulation_fusion",
        "cross_entropy_loss_fusion",
        "persist_layer_norm",
        "layernorm_zero_centered_gamma",
        "enable_cuda_graph",
    ):
        setattr(config, name, False)
    strategy.sequence_parallel = False
    strategy.process_group_backend = "gloo"
    strategy.ckpt_async_save = False
    strategy.use_te_rng_tracker = False
    trainer.accelerator = "cpu"
    made.data.num_workers = 0
    made.data.pin_memory = False
    for callback in trainer.callbacks:
        if hasattr(callback, "defer_embedding_wgrad_compute"):
            callback.defer_embedding_wgrad_compute = False
        if hasattr(callback, "tp_comm_overlap"):
            callback.tp_comm_overlap = False
