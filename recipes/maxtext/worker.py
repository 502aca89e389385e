"""One process of a run: trains the experiment that run.json describes with MaxText's own trainer.

In the run folder: python -m recipes.maxtext.worker   (started by recipes.maxtext.launch)
"""

from __future__ import annotations

import json
import logging
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recipes.maxtext.arguments import TOKENS, arguments, command_line
from recipes.maxtext.experiments import Experiment
from recipes.maxtext.tokens import VOCABULARY, write_tokens
from recipes.runs import EXIT_FAILED, EXIT_OK, RUN_JSON, RunError, write_atomically

RECIPE = "recipe.txt"  # MaxText's configuration as it resolved it, a line a key


def resolved(config: Any) -> str:
    """Every key of MaxText's resolved configuration, sorted."""
    return "".join(f"{key} = {value!r}\n" for key, value in sorted(config.get_keys().items()))


def train(which: Experiment) -> None:
    """Set up emulation where it is asked for, then call MaxText's own `initialize` and `run`, recorded."""
    mended: list[str] = []
    if which.emulated:
        from recipes.maxtext.emulation import emulate

        mended = emulate()
    package = find_spec("maxtext")
    if package is None or not package.submodule_search_locations:
        raise RunError("maxtext is not installed; install envs/maxtext")
    place = Path(next(iter(package.submodule_search_locations)))
    if which.dimensions.vocabulary < VOCABULARY:
        raise RunError(f"a vocabulary of {which.dimensions.vocabulary} does not hold the {VOCABULARY} bytes")
    data = write_tokens(place, Path(TOKENS), which.dimensions.sequence)

    from absl import logging as absl_logging

    absl_logging.use_absl_handler()
    absl_logging.set_verbosity(absl_logging.INFO)
    logging.getLogger().setLevel(logging.INFO)
    from maxtext.trainers.pre_train import train as trainer

    from recipes.maxtext.recorder import RunRecorder

    values = arguments(which)
    config, recorder = trainer.initialize(["maxtext", str(place / "configs/base.yml"), *command_line(values)])
    write_atomically(Path(RECIPE), resolved(config))
    with RunRecorder(Path(), which, {"data": data, "mended": mended}):
        trainer.run(config, recorder)


def main() -> int:
    """Entry point; returns the exit code."""
    which = Experiment.model_validate(json.loads(Path(RUN_JSON).read_text(encoding="utf-8"))["configuration"])
    try:
        train(which)
    except RunError as error:
        print(f"RunError: {error}", file=sys.stderr, flush=True)
        return EXIT_FAILED
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
