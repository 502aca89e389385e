"""The rules of the house: one direction of imports, short files that say why they exist, nothing out of step."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from analysis import documents
from recipes import schemas
from tests.conftest import CHECKOUT

ROOMS = ("recipes", "envs", "containers", "results", "analysis")
SOURCES = [*sorted(path for room in ROOMS for path in (CHECKOUT / room).rglob("*.py")), CHECKOUT / "fewbits.py"]
# Who may import what of ours, by the longest prefix that fits. Later rooms know earlier ones, never the reverse.
MAY_IMPORT = {
    "recipes.catalog": ("recipes.catalog",),
    "recipes": ("recipes",),
    "envs": ("envs", "recipes.catalog", "recipes.runs"),
    "containers": (
        "containers",
        "envs.locks",
        "recipes.catalog",
        "recipes.images",
        "recipes.launching",
        "recipes.runs",
    ),
    "results": ("results", "recipes.runs", "recipes.checkpoints"),
    "analysis.logs": ("analysis.logs", "recipes.catalog", "recipes.runs", "recipes.power"),
    "analysis": ("analysis", "recipes.catalog", "recipes.codec", "recipes.runs", "results.pointers"),
    "fewbits": ("recipes", "envs", "containers", "analysis"),
}
FRAMEWORKS = r"torch|transformer_engine|lightning|nemo|nemo_run|fiddle|megatron|jax|maxtext"
KNOW_A_FRAMEWORK = {
    "recipes.host",
    "recipes.effective",
    "recipes.collectives.worker",
    *(
        f"recipes.maxtext.{name}"
        for name in ("blockwise", "emulation", "host", "recorder", "rehearse", "saving", "worker")
    ),
    *(f"recipes.te_layers.{name}" for name in ("layers", "gemms", "engine")),
    *(f"recipes.nemo.{name}" for name in ("recipe", "flat", "recorder", "cpu", "newer", "worker", "cluster", "golden")),
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(CHECKOUT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] in (*ROOMS, "fewbits", "tests")}


def fits(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_run_one_way(path: Path) -> None:
    module = module_of(path)
    room = max((prefix for prefix in MAY_IMPORT if fits(module, (prefix,))), key=len)
    assert not {name for name in imports_of(path) if not fits(name, MAY_IMPORT[room])}


def test_no_import_circles() -> None:
    graph = {module_of(path): imports_of(path) for path in SOURCES}

    def reach(module: str, seen: tuple[str, ...]) -> None:
        assert module not in seen, f"circle: {' -> '.join((*seen, module))}"
        for name in graph.get(module, ()):
            # a package's __init__ names its own modules; that is no circle
            if name != module and not module.startswith(name + "."):
                reach(name, (*seen, module))

    for module in graph:
        reach(module, ())


def test_analysis_never_imports_a_launcher() -> None:
    for path in (CHECKOUT / "analysis").rglob("*.py"):
        assert not any(
            name.endswith(".launch")
            or name.startswith(("recipes.te_layers", "recipes.nemo", "recipes.collectives", "recipes.maxtext"))
            for name in imports_of(path)
        )


def test_only_the_stacks_own_modules_know_a_framework() -> None:
    for path in SOURCES:
        if re.search(rf"^\s*(import|from) ({FRAMEWORKS})\b", path.read_text(), re.MULTILINE):
            assert module_of(path) in KNOW_A_FRAMEWORK


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_files_are_short_and_say_why_they_exist(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))
    assert len(path.read_text().splitlines()) <= 400


def test_half_of_the_files_are_under_150_lines() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in SOURCES)
    assert lengths[len(lengths) // 2] < 150


def test_every_rule_has_log_benchmark_and_message() -> None:
    files = [CHECKOUT / "Snakefile", *(path for room in ROOMS for path in (CHECKOUT / room).rglob("*.smk"))]
    blocks = ["rule " + block for path in files for block in path.read_text().split("\nrule ")[1:]]
    assert len(blocks) >= 7
    for block in blocks:
        assert "\n    log:" in block, block.splitlines()[0]
        assert "\n    message:" in block, block.splitlines()[0]
        assert "\n    shell:" not in block or "\n    benchmark:" in block, block.splitlines()[0]


def test_generated_files_are_in_step() -> None:
    assert schemas.stale() == []
    for path in documents.DOCUMENTS:
        text = (CHECKOUT / path).read_text()
        assert documents.filled(text) == text


def test_no_path_of_a_developers_machine_is_committed() -> None:
    listed = subprocess.run(["git", "-C", CHECKOUT, "ls-files"], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        if name.startswith("results/reference/") or name == "tests/test_house.py":
            continue
        text = (CHECKOUT / name).read_text(encoding="utf-8", errors="ignore") if (CHECKOUT / name).is_file() else ""
        for part in (f"/{folder}/" for folder in ("home", "root", "work")):
            assert part not in text, name
