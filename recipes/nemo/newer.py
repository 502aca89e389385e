"""NeMo 25.04 with a Transformer Engine newer than its container's, and without Apex: names that have moved.

megatron-core 0.12 falls back to slower torch code without a word where it does not find these names, and would then
measure something else than the recipe. Every function here calls Transformer Engine's or torch's own kernel. In NeMo's
container, where nothing has moved and Apex is there, nothing is changed.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import types
from typing import Any

import torch


def before_import() -> list[str]:
    """Put the names where megatron-core 0.12 looks for them; returns what was put, for the run's record."""
    put = []
    attention: Any = importlib.import_module("transformer_engine.pytorch.attention")
    if not hasattr(attention, "FusedRoPEFunc"):
        rope: Any = importlib.import_module("transformer_engine.pytorch.attention.rope")
        attention.FusedRoPEFunc = _rope(rope.FusedRoPEFunc)
        put.append("transformer_engine.pytorch.attention.FusedRoPEFunc")
    if not hasattr(attention, "_SplitAlongDim"):
        utils: Any = importlib.import_module("transformer_engine.pytorch.attention.dot_product_attention.utils")
        if hasattr(utils, "SplitAlongDim"):
            attention._SplitAlongDim = utils.SplitAlongDim
            put.append("transformer_engine.pytorch.attention._SplitAlongDim")
    if importlib.util.find_spec("fused_weight_gradient_mlp_cuda") is None:
        sys.modules["fused_weight_gradient_mlp_cuda"] = _weight_gradients()
        put.append("fused_weight_gradient_mlp_cuda")
    return put


def after_import() -> None:
    """What checkpoints need: newer torch asks megatron-core's writer for a format, and mock data forgets its place.

    NeMo's MockDataModule alone keeps no count of samples in a checkpoint: a resumed run would see the first ones again.
    """
    from nemo.collections.llm.gpt.data.mock import MockDataModule
    from nemo.collections.llm.gpt.data.pre_training import PreTrainingDataModule

    if "state_dict" not in vars(MockDataModule):
        MockDataModule.state_dict = PreTrainingDataModule.state_dict
        MockDataModule.load_state_dict = PreTrainingDataModule.load_state_dict
        plain = MockDataModule._create_dataloader

        def from_here(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.init_global_step = self.data_sampler.init_global_step = self.trainer.global_step
            return plain(self, *args, **kwargs)

        MockDataModule._create_dataloader = from_here
    import megatron.core.dist_checkpointing.strategies.filesystem_async as writer
    from torch.distributed.checkpoint import filesystem

    if "serialization_format" in inspect.signature(filesystem._write_item).parameters:
        form: Any = importlib.import_module("torch.distributed.checkpoint.filesystem").SerializationFormat
        writer._write_item = functools.partial(filesystem._write_item, serialization_format=form.TORCH_SAVE)


def _rope(newer: Any) -> Any:
    """Newer Transformer Engine takes start positions before the format."""

    class FusedRoPEFunc:
        @staticmethod
        def apply(
            t: torch.Tensor,
            freqs: torch.Tensor,
            tensor_format: str = "sbhd",
            cu_seqlens: torch.Tensor | None = None,
            cp_size: int = 1,
            cp_rank: int = 0,
        ) -> torch.Tensor:
            rotated: torch.Tensor = newer.apply(t, freqs, None, tensor_format, False, cu_seqlens, cp_size, cp_rank)
            return rotated

    return FusedRoPEFunc


def _weight_gradients() -> types.ModuleType:
    """Apex's `fused_weight_gradient_mlp_cuda`: a weight gradient GEMM that adds into the gradient buffer."""
    module: Any = types.ModuleType("fused_weight_gradient_mlp_cuda")

    def same_dtype(inputs: torch.Tensor, gradients: torch.Tensor, main_gradient: torch.Tensor) -> None:
        inputs, gradients = inputs.flatten(0, -2), gradients.flatten(0, -2)
        main_gradient.addmm_(gradients.t(), inputs)

    def into_float32(inputs: torch.Tensor, gradients: torch.Tensor, main_gradient: torch.Tensor) -> None:
        gemm: Any = importlib.import_module("transformer_engine.pytorch.cpp_extensions").general_gemm
        inputs, gradients = inputs.flatten(0, -2), gradients.flatten(0, -2)
        gemm(inputs, gradients, out_dtype=torch.float32, layout="NT", out=main_gradient, accumulate=True, grad=True)

    module.wgrad_gemm_accum_fp16 = same_dtype
    module.wgrad_gemm_accum_fp32 = into_float32
    return module  # type: ignore[no-any-return]
