"""One rank of a run: builds the recipe that run.json describes and trains it. Started by `recipes.nemo.launch`.

In the run folder: python -m recipes.nemo.worker [--checkpoint-every K] [--resume CHECKPOINT] [--profile-step N]
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recipes.launching import rank, without_folders
from recipes.nemo.experiments import Experiment
from recipes.runs import EXIT_FAILED, EXIT_OK, RUN_JSON, write_atomically

RECIPE = "recipe.txt"


def build(which: Experiment, args: argparse.Namespace) -> tuple[Any, Any]:
    """The recipe as it will run, and its recorder."""
    import nemo_run
    from nemo import lightning as nemo_lightning

    from recipes.nemo.recipe import recipe
    from recipes.nemo.recorder import RunRecorder

    # NeMo resumes only where checkpoints are on
    every = args.checkpoint_every or (which.steps + 1 if args.resume else 0)
    made = recipe(which, "nemo", every)
    if which.tier == "cpu":
        from recipes.nemo.cpu import adapt

        adapt(made)
    else:
        made.data.num_workers = 0 if which.tier != "cluster" else made.data.num_workers
        made.trainer.strategy.ckpt_async_save = False
    if every:
        made.log.explicit_log_dir = "nemo"
        made.resume = nemo_run.Config(nemo_lightning.AutoResume, resume_if_exists=False)
    if args.resume:
        made.resume = nemo_run.Config(nemo_lightning.AutoResume, resume_from_path=str(args.resume))
    last = which.dimensions.layers - 1
    recorder = RunRecorder(".", which.precision, [0, last] if which.first_last_layers_bf16 else [], args.profile_step)
    return made, recorder


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m recipes.nemo.worker")
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--profile-step", type=int, default=-1)
    args = parser.parse_args(arguments)
    record = json.loads(Path(RUN_JSON).read_text(encoding="utf-8"))
    which = Experiment.model_validate(record["configuration"])
    from recipes.nemo import cpu, newer, weight_cast

    put_back: list[str] = []
    if which.tier == "cpu":
        cpu.before_import()
    else:
        put_back = newer.before_import()
        if which.rowwise_weight_cast:
            put_back += weight_cast.cast_weights_rowwise()
    import nemo_run

    from recipes.nemo.flat import flat

    made, recorder = build(which, args)
    recorder.facts["names_put_back"] = put_back
    newer.after_import()
    if which.tier == "cpu":
        cpu.after_import()
    if rank() == 0:
        write_atomically(Path(RECIPE), flat(made))
    # after the text: the recorder is ours, not part of the recipe
    made.trainer.callbacks.append(recorder)
    try:
        nemo_run.run(made, direct=True)
    except Exception:
        print(without_folders(traceback.format_exc()), file=sys.stderr, flush=True)
        recorder.close()
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
