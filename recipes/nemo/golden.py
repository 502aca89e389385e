"""Golden files: the resolved recipe and the sbatch script of every experiment of NeMo 25.04, so that a change shows.

    python -m recipes.nemo.golden            # write them
    python -m recipes.nemo.golden --check    # exit 1 when one differs
    python -m recipes.nemo.golden --list     # every experiment with its dry-run status

A model's H100 BF16 experiment stands in full; of every other one, the lines that it has and has not. Experiments of
release 25.07 need NeMo 2.4 and are listed as not resolved here. Needs envs/nemo.
"""

from __future__ import annotations

import argparse
import difflib
import inspect
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path

from nemo.lightning import Trainer

from recipes.nemo.cluster import sbatch_text
from recipes.nemo.experiments import MAIN_RELEASE, Experiment, all_experiments, refused
from recipes.nemo.flat import flat
from recipes.nemo.recipe import recipe
from recipes.runs import write_atomically

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "recipes" / "nemo_golden"


def _differing(base: str, text: str) -> str:
    lines = difflib.unified_diff(base.splitlines(), text.splitlines(), lineterm="", n=0)
    return "".join(f"{line}\n" for line in lines if not line.startswith(("---", "+++", "@@")))


# the FLOPs callback holds the model's and the data's settings a second time
_AGAIN = re.compile(r"^trainer\.callbacks\[\d+\]\.(?:model|data)_config\b.*\n", re.MULTILINE)


def _recipe_text(which: Experiment) -> str:
    return _AGAIN.sub("", flat(recipe(which, "DIRECTORY")))


def _together(experiments: list[Experiment], render: Callable[[Experiment], str]) -> str:
    base = render(experiments[0])
    parts = [f"== {experiments[0].name}\n{base}"]
    parts += [f"== {one.name}\n{_differing(base, render(one))}" for one in experiments[1:]]
    return "\n".join(parts)


def defaults_are_shown() -> bool:
    """Whether this Python can read the Trainer's signature through NeMo's wrapper (3.11.2 cannot, 3.11.7 can)."""
    return "accelerator" in inspect.signature(Trainer).parameters


def texts() -> dict[str, str]:
    """Content of every golden file by name."""
    found = {}
    usable = [one for one in all_experiments().values() if one.release == MAIN_RELEASE and not refused(one)]
    for model in dict.fromkeys(one.model for one in usable):
        mine = [one for one in usable if one.model == model]
        found[f"{model}.recipe.txt"] = _together(mine, _recipe_text)
        jobs = [one for one in mine if one.tier == "cluster"]
        found[f"{model}.sbatch.txt"] = _together(jobs, sbatch_text)
    return found


def status(which: Experiment) -> str:
    """What a dry run of an experiment gives, in one line."""
    why = refused(which)
    if why:
        return f"refused: {why}"
    if which.release != MAIN_RELEASE:
        return f"not resolved here: needs NeMo of release {which.release}"
    lines = flat(recipe(which, "DIRECTORY")).count("\n")
    job = f", sbatch of {which.nodes} nodes" if which.tier == "cluster" and sbatch_text(which) else ""
    return f"builds ({lines} settings){job}"


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m recipes.nemo.golden", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true", dest="listing")
    args = parser.parse_args()
    if args.listing:
        for which in all_experiments().values():
            print(f"{which.name:52} {which.layout.gpus:5} GPUs  {status(which)}", flush=True)
        return 0
    wrong = 0
    shown = defaults_are_shown()
    if not shown:
        print(
            f"Python {platform.python_version()} shows no defaults of NeMo's Trainer (3.11.7 does): recipes are not"
            " compared, sbatch scripts are",
            file=sys.stderr,
        )
    for name, text in texts().items():
        path = GOLDEN / name
        if not shown and name.endswith(".recipe.txt"):
            continue
        if args.check:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                wrong += 1
                print(
                    f"{path.relative_to(GOLDEN.parents[2])} differs; run `python -m recipes.nemo.golden` in"
                    " envs/nemo and look at the change",
                    file=sys.stderr,
                )
        else:
            write_atomically(path, text)
            print(path)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
