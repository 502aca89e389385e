"""The front door: one command line, wired from the rooms' commands. Nothing else happens here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import analysis.cli
import containers.cli
import envs.cli
import recipes.cli
from envs.bundle import BundleError
from envs.fatbin import FatbinError
from envs.locks import LockError
from recipes.catalog import CatalogError
from recipes.runs import EXIT_USAGE, RunError

app = typer.Typer(no_args_is_help=True, add_completion=False)
recipes.cli.register(app)
envs.cli.register(app)
containers.cli.register(app)
analysis.cli.register(app)


_debug = False


@app.callback()
def options(debug: Annotated[bool, typer.Option(help="show the traceback of an error")] = False) -> None:
    """FP8, MXFP8 and NVFP4 training: recipes and evidence."""
    global _debug  # the one setting of the whole process
    _debug = debug


def main() -> None:
    """Entry point of `fewbits`: our own errors are one line on stderr and exit code 2."""
    try:
        app(prog_name="fewbits")
    except (BundleError, CatalogError, FatbinError, LockError, RunError, OSError) as error:
        if _debug:
            raise
        print(f"fewbits: {error}", file=sys.stderr)
        sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
