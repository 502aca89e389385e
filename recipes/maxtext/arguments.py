"""From an experiment to MaxText's own configuration, as `key=value`; what is not said is MaxText's base.yml."""

from __future__ import annotations

from recipes.maxtext.experiment_file import Setting
from recipes.maxtext.experiments import Experiment
from recipes.maxtext.tokens import INDEX

OUTPUT = "maxtext"  # MaxText's folder inside the run folder; gone when the run is sealed
STEPS_FILE = f"{OUTPUT}/metrics.jsonl"  # MaxText's own metrics_file
TOKENS = f"{OUTPUT}/tokens"
CHECKPOINTS = f"{OUTPUT}/run/checkpoints"  # where MaxText puts them: output folder, run_name


def _data(which: Experiment) -> dict[str, Setting]:
    if which.synthetic:
        return {"dataset_type": "synthetic"}
    return {
        "enable_data_shuffling": True,
        "data_shuffle_seed": which.seed,
        "dataset_type": "olmo_grain",
        "olmo_index_path": f"{TOKENS}/{INDEX}",
        "olmo_apply_ngram_filter": False,
        "grain_worker_count": 0,
    }


def _sharding(which: Experiment) -> dict[str, Setting]:
    if not which.gpus_per_node:
        return {"ici_fsdp_parallelism": which.layout.fsdp}
    # over all of NVLink, then over the network: which nodes share NVLink is known when they have started
    return {"ici_fsdp_parallelism": -1, "dcn_fsdp_parallelism": -1, "dcn_data_parallelism": 1}


def _checkpoints(which: Experiment, every: int, resume: bool) -> dict[str, Setting]:
    if not every and not resume:
        return {"enable_checkpointing": False}
    return {  # MaxText resumes only where checkpoints are on
        "enable_checkpointing": True,
        "checkpoint_period": every or which.steps + 1,
        "save_checkpoint_on_completion": bool(every),
        "async_checkpointing": False,
    }


def arguments(which: Experiment, checkpoint_every: int = 0, resume: bool = False) -> dict[str, Setting]:
    """MaxText's configuration of an experiment; its token stream lies in `TOKENS` (recipes.maxtext.tokens).

    `checkpoint_every` K: MaxText saves after its steps 0, K, 2K and so on (0-based), and after the last; 0: never.
    `resume`: it goes on from what lies in `CHECKPOINTS`.
    """
    size = which.dimensions
    # the model's further constants, RoPE's base for one, are MaxText's own; its dimensions are said here
    named: dict[str, Setting] = {"model_name": which.model_name, "override_model_config": True}
    return {
        **(named if which.model_name else {}),
        "run_name": "run",
        "base_output_directory": OUTPUT,
        "metrics_file": STEPS_FILE,
        "enable_tensorboard": False,
        "enable_goodput_recording": False,
        "monitor_goodput": False,
        "hardware": "gpu_multiprocess" if which.gpus_per_node else "cpu" if which.tier == "cpu" else "gpu",
        "skip_jax_distributed_system": not which.gpus_per_node,
        "steps": which.steps,
        "init_weights_seed": which.seed,
        **_data(which),
        "decoder_block": "llama2",  # MaxText's Llama 3 is this block too (configs/models/llama3-8b.yml)
        "base_num_decoder_layers": size.layers,
        "base_emb_dim": size.hidden,
        "base_mlp_dim": size.ffn,
        "base_num_query_heads": size.heads,
        "base_num_kv_heads": size.kv_groups,
        "head_dim": size.head_dim,
        "vocab_size": size.vocabulary,
        "max_target_length": size.sequence,
        "per_device_batch_size": which.layout.device_batch_samples,
        **_sharding(which),
        "quantization": which.quantization,
        **_checkpoints(which, checkpoint_every, resume),
        "opt_type": "adamw",
        "tokenizer_path": "bytes",
        "jax_cache_dir": "",  # by default compiled steps of earlier runs are taken from the user's home folder
        **which.settings,
    }


def command_line(values: dict[str, Setting]) -> list[str]:
    """The configuration as MaxText's command line takes it."""
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in values.items()]
