"""From an experiment to NeMo's own recipe: `pretrain_recipe`, our overrides, the precision plugin. Imports NeMo.

The overrides are those of NVIDIA's performance scripts (NVIDIA/NeMo v2.3.0 scripts/performance/utils.py
`set_primary_perf_configs` and llm/pretrain_*.py). All 60 cluster experiments of 25.04 were compared with what those
scripts build; what differs: Llama's tokenizer is a NullTokenizer of its vocabulary (theirs is gated, and mock data
never reads text), gradient accumulation fusion is said instead of left to what is installed, fewer validation and test
samples are prepared (none is used), and nothing resumes by itself.
"""

from __future__ import annotations

from typing import Any

import fiddle
import nemo_run
from fiddle._src.experimental import dataclasses as fiddle_dataclasses
from nemo.collections import llm
from nemo.collections.llm.recipes.precision import mixed_precision
from nemo.collections.llm.recipes.tp_overlap_configs import userbuffers
from nemo.collections.nlp.modules.common.tokenizer_utils import get_nmt_tokenizer
from nemo.lightning.pytorch.callbacks.flops_callback import FLOPsMeasurementCallback
from nemo.lightning.pytorch.callbacks.megatron_comm_overlap import MegatronCommOverlapCallback

from recipes.catalog import load_models
from recipes.nemo.experiments import Experiment
from recipes.runs import RunError

# Our precision -> the plugin's function, by NeMo's name (the same in 2.3 and 2.4; the last since 2.4).
PLUGINS = {
    "bf16": "bf16_mixed",
    "fp8_delayed": "bf16_with_fp8_mixed",
    "fp8_current": "bf16_with_fp8_current_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "fp8_block": "bf16_with_fp8_subchannel_scaling_mixed",
}
# Tensor-parallel overlap: model and GPU -> NeMo's userbuffers table; {} is bf16 or fp8. Absent: NeMo's own default.
_BLACKWELL = ("b200", "gb200")
USERBUFFERS = {
    ("llama3_70b", "h100_sxm"): "userbuffers_{}_h100_h8192_tp4_mbs1_seqlen8192",
    ("llama31_405b", "h100_sxm"): "userbuffers_{}_h100_h16384_tp8_cp2_mbs1_seqlen8192",
    **{("llama3_70b", gpu): "userbuffers_{}_b200_h8192_tp2_mbs1_seqlen8192" for gpu in _BLACKWELL},
    **{("llama31_405b", gpu): "userbuffers_{}_b200_h16384_tp4_cp2_mbs1_seqlen8192" for gpu in _BLACKWELL},
    **{("nemotron4_15b", gpu): "userbuffers_bf16_b200_h6144_tp2_mbs1_seqlen4096" for gpu in _BLACKWELL},
    **{("nemotron4_340b", gpu): "userbuffers_{}_b200_h18432_tp8_mbs1_seqlen4096" for gpu in _BLACKWELL},
}


def plugin(which: Experiment) -> Any:
    """The precision plugin of an experiment. Raises RunError where this NeMo has none for the precision."""
    make = getattr(mixed_precision, PLUGINS[which.precision], None)
    if make is None:
        raise RunError(f"this NeMo has no plugin {PLUGINS[which.precision]} ({which.precision}); use release 25.07")
    made = make()
    made.grad_reduce_in_fp32 = False
    if which.precision == "fp8_current" and not which.first_last_layers_bf16:
        made.first_last_layers_bf16 = False
    if which.layout.fsdp and which.precision != "bf16":
        made.fp8_param_gather = False
    return made


def recipe(which: Experiment, directory: str, checkpoint_every: int = 0) -> Any:
    """The resolved recipe, a `nemo_run.Partial`; `directory` is where NeMo may write.

    `checkpoint_every` steps a checkpoint is kept; 0: none, as in NVIDIA's performance scripts.
    """
    layout = which.layout
    made = getattr(llm, which.model).pretrain_recipe(
        name=which.name,
        dir=directory,
        num_nodes=which.nodes,
        num_gpus_per_node=min(which.gpus_per_node, layout.gpus),
        performance_mode=True,
    )
    _set_trainer(made, which)
    _set_parallelism(made, which)
    _set_data(made, which)
    _set_model(made, which)
    made.trainer.plugins = plugin(which)
    _set_logging(made, which, checkpoint_every)
    return made


def _overlap(made: Any) -> Any:
    return next(
        callback for callback in made.trainer.callbacks if fiddle.get_callable(callback) is MegatronCommOverlapCallback
    )


def _set_trainer(made: Any, which: Experiment) -> None:
    trainer = made.trainer
    trainer.max_steps = trainer.val_check_interval = which.steps
    trainer.limit_val_batches = 0
    trainer.log_every_n_steps = 1


def _set_parallelism(made: Any, which: Experiment) -> None:
    layout, strategy = which.layout, made.trainer.strategy
    strategy.tensor_model_parallel_size = layout.tensor_parallel
    strategy.pipeline_model_parallel_size = layout.pipeline_parallel
    strategy.context_parallel_size = layout.context_parallel
    strategy.virtual_pipeline_model_parallel_size = None if layout.virtual_pipeline == 1 else layout.virtual_pipeline
    strategy.expert_model_parallel_size = 1
    strategy.sequence_parallel = layout.tensor_parallel > 1
    strategy.use_te_rng_tracker = layout.cuda_graphs and not layout.fsdp
    overlap = _overlap(made)
    overlap.overlap_param_gather_with_optimizer_step = (
        layout.data_parallel > 1 and layout.pipeline_parallel > 1 and layout.virtual_pipeline > 1
    )
    if which.without_userbuffers:
        overlap.tp_comm_overlap = False
    table = USERBUFFERS.get((which.model, which.hardware))
    if table:
        config = getattr(userbuffers, table.format("bf16" if which.precision == "bf16" else "fp8"))
        # plain dataclasses do not serialise
        overlap.tp_comm_overlap_cfg = fiddle.cast(
            nemo_run.Config, fiddle_dataclasses.convert_dataclasses_to_configs(config)
        )
    if layout.fsdp:
        made.model.config.init_model_with_meta_device = True
        strategy.fsdp = "megatron"
        strategy.ddp.data_parallel_sharding_strategy = "optim_grads_params"
        strategy.ddp.average_in_collective = False
        strategy.ddp.keep_fp8_transpose_cache_when_using_custom_fsdp = False
        if getattr(overlap, "defer_embedding_wgrad_compute", None):
            overlap.defer_embedding_wgrad_compute = False
            if layout.tensor_parallel > 1:
                overlap.tp_comm_overlap = False


def _set_data(made: Any, which: Experiment) -> None:
    data = made.data
    data.micro_batch_size = which.layout.micro_batch_samples
    data.global_batch_size = which.layout.global_batch_samples
    data.seq_length = which.dimensions.sequence
    data.num_train_samples = which.steps * which.layout.global_batch_samples
    data.num_val_samples = data.num_test_samples = 8
    # NullTokenizer counts one token more than it is given. NVIDIA's scripts give Nemotron 256000, which is its
    # vocabulary; Llama's 128256 needs one less.
    extra = 1 if which.dimensions.family == "llama" else 0
    data.tokenizer = nemo_run.Config(
        get_nmt_tokenizer,
        library="null",
        model_name="NullTokenizer",
        vocab_size=which.dimensions.vocabulary - extra,
    )


def _set_model(made: Any, which: Experiment) -> None:
    config, layout = made.model.config, which.layout
    config.cross_entropy_fusion_impl = "te"
    config.enable_cuda_graph = layout.cuda_graphs and not layout.fsdp
    # what NeMo's container has on (Apex is there) except under FSDP; said, because the default depends on the machine
    config.gradient_accumulation_fusion = not layout.fsdp
    if layout.recomputed_layers:
        config.recompute_granularity = "full"
        config.recompute_method = "block"
        config.recompute_num_layers = layout.recomputed_layers
    full, mine = load_models()[which.model], which.dimensions
    fields = {
        "layers": "num_layers",
        "hidden": "hidden_size",
        "ffn": "ffn_hidden_size",
        "heads": "num_attention_heads",
        "kv_groups": "num_query_groups",
        "sequence": "seq_length",
    }
    for ours, theirs in fields.items():
        if getattr(mine, ours) != getattr(full, ours):
            setattr(config, theirs, getattr(mine, ours))
    if mine.head_dim != full.head_dim:
        config.kv_channels = mine.head_dim


def _set_logging(made: Any, which: Experiment, checkpoint_every: int) -> None:
    made.log.tensorboard = None
    made.trainer.logger = False
    if which.tier == "cluster":
        made.trainer.callbacks.append(
            nemo_run.Config(
                FLOPsMeasurementCallback,
                model_config=made.model.config,
                data_config=made.data,
                model_name="llama3" if which.dimensions.family == "llama" else "nemotron",
            )
        )
    made.trainer.enable_checkpointing = bool(checkpoint_every)
    if checkpoint_every:
        made.log.ckpt.every_n_train_steps = checkpoint_every
        made.log.ckpt.train_time_interval = None
        made.log.ckpt.save_top_k = -1
        made.log.ckpt.save_last = False  # would be a second copy
        made.log.ckpt.monitor = None
        made.log.ckpt.filename = "{step}"
    else:
        made.log.ckpt = None
        made.resume = None
