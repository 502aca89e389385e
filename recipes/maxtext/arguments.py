"""From an experiment to MaxText's own configuration, as `key=value`; what is not said is MaxText's base.yml."""

from __future__ import annotations

from recipes.maxtext.experiments import Experiment, Setting
from recipes.maxtext.tokens import INDEX

OUTPUT = "maxtext"  # MaxText's folder inside the run folder; gone when the run is sealed
STEPS_FILE = f"{OUTPUT}/metrics.jsonl"  # MaxText's own metrics_file
TOKENS = f"{OUTPUT}/tokens"


def arguments(which: Experiment) -> dict[str, Setting]:
    """MaxText's configuration of an experiment; its token stream lies in `TOKENS` (recipes.maxtext.tokens)."""
    size = which.dimensions
    return {
        "run_name": "run",
        "base_output_directory": OUTPUT,
        "metrics_file": STEPS_FILE,
        "enable_tensorboard": False,
        "enable_goodput_recording": False,
        "monitor_goodput": False,
        "hardware": "cpu" if which.hardware == "cpu" else "gpu",
        "skip_jax_distributed_system": which.layout.gpus == 1,
        "steps": which.steps,
        "init_weights_seed": which.seed,
        "data_shuffle_seed": which.seed,
        "enable_data_shuffling": True,
        "dataset_type": "olmo_grain",
        "olmo_index_path": f"{TOKENS}/{INDEX}",
        "olmo_apply_ngram_filter": False,
        "grain_worker_count": 0,
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
        "ici_fsdp_parallelism": which.layout.fsdp,
        "quantization": which.quantization,
        "enable_checkpointing": False,
        "opt_type": "adamw",
        "tokenizer_path": "bytes",
        "jax_cache_dir": "",  # by default compiled steps of earlier runs are taken from the user's home folder
        **which.settings,
    }


def command_line(values: dict[str, Setting]) -> list[str]:
    """The configuration as MaxText's command line takes it."""
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in values.items()]
