"""One process of a run: trains the experiment that run.json describes with MaxText's own trainer.

In the run folder: python -m recipes.maxtext.worker [--checkpoint-every K] [--resume CHECKPOINT]   (started by
recipes.maxtext.launch)
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import traceback
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recipes.launching import rank, without_folders
from recipes.maxtext.arguments import TOKENS, arguments, command_line
from recipes.maxtext.experiments import Experiment
from recipes.maxtext.saving import prepare, take_checkpoint
from recipes.maxtext.tokens import VOCABULARY, write_tokens
from recipes.runs import EXIT_FAILED, EXIT_OK, RUN_JSON, RunError, write_atomically

RECIPE = "recipe.txt"  # MaxText's configuration as it resolved it, a line a key


def resolved(config: Any) -> str:
    """Every key of MaxText's resolved configuration, sorted."""
    return "".join(f"{key} = {value!r}\n" for key, value in sorted(config.get_keys().items()))


def place_of_maxtext() -> Path:
    """The folder of the installed package. Raises RunError when there is none."""
    package = find_spec("maxtext")
    if package is None or not package.submodule_search_locations:
        raise RunError("maxtext is not installed; install envs/maxtext")
    return Path(next(iter(package.submodule_search_locations)))


def data_of(which: Experiment) -> str:
    """Write the token stream of an experiment that reads one; returns what run.json says of the data.

    Raises RunError.
    """
    if which.synthetic:
        return "MaxText's synthetic data: one random batch for ever, packed as max_segments_per_seq says"
    if which.dimensions.vocabulary < VOCABULARY:
        raise RunError(f"a vocabulary of {which.dimensions.vocabulary} does not hold the {VOCABULARY} bytes")
    return write_tokens(place_of_maxtext(), Path(TOKENS), which.dimensions.sequence)


def check_devices(which: Experiment) -> None:
    """Raises RunError when JAX has other devices, over all processes, than the experiment shards over."""
    import jax

    if jax.device_count() != which.layout.gpus:
        raise RunError(
            f"JAX has {jax.device_count()} devices in {jax.process_count()} processes, {which.name} is for"
            f" {which.layout.gpus} (FSDP {which.layout.fsdp})"
        )


def train(which: Experiment, args: argparse.Namespace) -> None:
    """Set up emulation where it is asked for, then call MaxText's own `initialize` and `run`, recorded."""
    mended: list[str] = []
    if which.emulated:
        from recipes.maxtext.emulation import emulate

        mended = emulate()
    data = data_of(which)
    if args.resume and rank() == 0:  # the others look for it once all processes have met
        take_checkpoint(args.resume)

    from absl import logging as absl_logging

    absl_logging.use_absl_handler()
    absl_logging.set_verbosity(absl_logging.INFO)
    logging.getLogger().setLevel(logging.INFO)
    from maxtext.trainers.pre_train import train as trainer

    from recipes.maxtext.recorder import RunRecorder

    values = arguments(which, args.checkpoint_every, bool(args.resume))
    if args.checkpoint_every or args.resume:
        mended.append(prepare())
    base = str(place_of_maxtext() / "configs/base.yml")
    config, recorder = trainer.initialize(["maxtext", base, *command_line(values)])
    check_devices(which)
    with RunRecorder(Path(), which, {"data": data, "mended": mended}) as first:
        if first:
            write_atomically(Path(RECIPE), resolved(config))
        trainer.run(config, recorder)


def said(error: BaseException) -> str:
    """An exception in one line, with the one it came of: MaxText's own contexts raise again, and say nothing."""
    first = error
    while first.__cause__ or first.__context__:
        first = first.__cause__ or first.__context__ or first
    lines = [f"{type(one).__name__}: {one}".split("\n")[0] for one in dict.fromkeys((error, first))]
    return "; it came of ".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m recipes.maxtext.worker")
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args(arguments)
    which = Experiment.model_validate(json.loads(Path(RUN_JSON).read_text(encoding="utf-8"))["configuration"])
    try:
        train(which, args)
    except RunError as error:
        print(f"RunError: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    except Exception as error:
        print(without_folders(traceback.format_exc()), file=sys.stderr)
        print(without_folders(said(error)), file=sys.stderr, flush=True)
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
