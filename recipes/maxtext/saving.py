"""MaxText's checkpoints in a run folder: where they come from and go to, and which batch a run goes on with."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from recipes.maxtext.arguments import CHECKPOINTS
from recipes.runs import RunError


class _FromHere(logging.Filter):
    """Paths below this folder as seen from it: a log is published, and folders are this machine's."""

    def __init__(self) -> None:
        super().__init__()
        self._here = f"{Path.cwd()}/"

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the message; keeps every record."""
        message = record.getMessage()
        if self._here in message:
            record.msg, record.args = message.replace(self._here, ""), ()
        return True


def take_checkpoint(checkpoint: Path) -> None:
    """Put a checkpoint where MaxText looks for one to go on from. Raises RunError when it is none."""
    if not checkpoint.name.isdigit() or not checkpoint.is_dir():
        raise RunError(f"{checkpoint.name}: no checkpoint of MaxText: --resume takes a folder that its last step names")
    shutil.copytree(checkpoint, Path(CHECKPOINTS) / checkpoint.name)


def tidy(checkpoints: Path) -> None:
    """Drop what nobody asked for: the checkpoint after the very first step, and one that was being written."""
    saved = [path for path in checkpoints.glob("*") if path.name.isdigit()]
    for path in checkpoints.glob("*"):
        if path not in saved or (path.name == "0" and len(saved) > 1):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def prepare() -> str:
    """Make MaxText save where its relative configuration says, and go on with the batch that follows.

    Returns the name of the fault that is mended: MaxText names a checkpoint by the last step it holds, and its
    olmo_grain pipeline takes that for the number of steps done, so that a resumed run sees one batch twice.
    """
    from maxtext.common import checkpointing
    from maxtext.input_pipeline import olmo_grain_data_processing as pipeline

    create, last_step = checkpointing.create_orbax_checkpoint_manager, pipeline._detect_resumed_step

    def create_here(checkpoint_dir: str, *args: Any, **named: Any) -> Any:
        # Orbax takes absolute paths only
        return create(str(Path(checkpoint_dir).absolute()) if checkpoint_dir else "", *args, **named)

    def steps_done(config: Any) -> int:
        found = any(path.name.isdigit() for path in Path(CHECKPOINTS).glob("*"))
        return last_step(config) + 1 if found else 0

    checkpointing.create_orbax_checkpoint_manager = create_here
    pipeline._detect_resumed_step = steps_done
    for handler in logging.getLogger().handlers:
        handler.addFilter(_FromHere())
    return "resumed_batch"
