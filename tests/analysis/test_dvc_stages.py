"""dvc.yaml: a stage depends on all the code it runs, never trains, and owns no path that Snakemake owns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from analysis.exhibits import EXHIBITS

CHECKOUT = Path(__file__).resolve().parents[2]
STAGES: dict[str, Any] = yaml.safe_load((CHECKOUT / "dvc.yaml").read_text())["stages"]


def outs(stage: dict[str, Any]) -> dict[str, Any]:
    return {path: options for entry in stage["outs"] for path, options in entry.items()}


def test_one_stage_an_exhibit_in_order() -> None:
    assert tuple(STAGES) == EXHIBITS


@pytest.mark.parametrize("name", EXHIBITS)
def test_outputs_are_the_exhibits_and_stay_in_git(name: str) -> None:
    assert outs(STAGES[name]) == {
        f"results/exhibits/{name}.{suffix}": {"cache": False} for suffix in ("csv", "svg", "json")
    }


@pytest.mark.parametrize("name", EXHIBITS)
def test_a_stage_depends_on_every_module_it_imports(name: str) -> None:
    script = (
        "import sys, importlib; importlib.import_module('analysis.exhibits.__main__');"
        f"importlib.import_module('analysis.exhibits.{name}');"
        "print('\\n'.join(str(m.__file__) for m in list(sys.modules.values()) if getattr(m, '__file__', None)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    loaded = {Path(line) for line in done.stdout.splitlines()}
    ours = {p.relative_to(CHECKOUT).as_posix() for p in loaded if p.is_relative_to(CHECKOUT) and ".venv" not in p.parts}
    # packages' own __init__ hold a docstring or a list of names
    ours = {path for path in ours if not path.endswith("__init__.py")}
    deps = STAGES[name]["deps"]
    missing = {path for path in ours if not any(path == dep or path.startswith(f"{dep}/") for dep in deps)}
    assert not missing
    unused = {dep for dep in deps if dep.endswith(".py") and dep not in ours}
    assert not unused


@pytest.mark.parametrize("name", EXHIBITS)
def test_a_stage_never_trains(name: str) -> None:
    stage = STAGES[name]
    assert stage["cmd"].endswith(f"python -m analysis.exhibits {name}")
    assert all(
        dep.startswith(
            (
                "analysis/",
                "results/",
                "recipes/catalog",
                "recipes/nemo/recommended.csv",
                "recipes/runs.py",
                "recipes/power.py",
            )
        )
        for dep in stage["deps"]
    )


def test_no_path_is_an_output_of_both() -> None:
    """Snakemake's outputs all lie under build/; DVC's never do."""
    text = "\n".join(
        path.read_text() for path in [CHECKOUT / "Snakefile", *CHECKOUT.rglob("*.smk")] if ".venv" not in path.parts
    )
    blocks = re.findall(r"^    output:\n((?:        .*\n)+)", text, re.MULTILINE)
    paths = re.findall(r'"([^"]+)"', "".join(blocks))
    assert len(paths) >= 3
    assert all(path.startswith("build/") for path in paths)
    assert all(not path.startswith("build/") for stage in STAGES.values() for path in outs(stage))
