"""Commands of the analysis' room: `fewbits verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from analysis.judge import Judged, judge
from analysis.lint import lint
from analysis.logs import read_run
from analysis.published import read_published
from recipes.runs import EXIT_FAILED, MANIFEST, RUN_JSON, RunError


def register(app: typer.Typer) -> None:
    """Add this room's commands to the front door."""
    app.command("verify")(verify)
    app.command("lint-published")(lint_published)


def run_folders(path: Path) -> list[Path]:
    """Run folders at or under `path`. Raises RunError when there are none."""
    if not path.is_dir():
        raise RunError(f"{path}: not a folder; give a run folder or one that holds run folders")
    found = {file.parent for name in (RUN_JSON, MANIFEST) for file in path.rglob(name)}
    if not found:
        raise RunError(f"{path}: no run folder (none holds {RUN_JSON})")
    return sorted(found)


def verify(
    paths: Annotated[list[Path], typer.Argument(help="run folders, or folders that hold some")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON list on standard output")] = False,
) -> None:
    """A verdict for every run, with every reason. Exit code 0: all VALID; 1: some are not; 2: nothing to read."""
    judged = [judge(read_run(folder)) for path in paths for folder in run_folders(path)]
    if as_json:
        typer.echo(json.dumps([_as_dict(item) for item in judged], indent=2))
    else:
        console = Console(soft_wrap=True)
        for item in judged:
            # Text, not markup: names and messages come from files of unknown origin
            console.print(Text(f"{item.verdict:<13}"), Text(_printable(str(item.run.path))))
            for reason in item.reasons:
                console.print(Text(f"              {reason.code}: {_printable(reason.message)}"))
    raise typer.Exit(0 if all(item.valid for item in judged) else EXIT_FAILED)


def lint_published(
    path: Annotated[Path, typer.Argument(help="a CSV of published numbers")] = Path("results/published/published.csv"),
    as_json: Annotated[bool, typer.Option("--json", help="one JSON list on standard output")] = False,
) -> None:
    """Inconsistencies inside published tables. Exit code 0: none; 1: some were found; 2: unusable input."""
    findings = lint(read_published(path))
    if as_json:
        plain = [
            {"check": f.check, "rows": [row.id for row in f.rows], "detail": f.detail, "explanation": f.explanation}
            for f in findings
        ]
        typer.echo(json.dumps(plain, indent=2))
    else:
        console = Console(soft_wrap=True)
        for finding in findings:
            ids = " ".join(row.id for row in finding.rows)
            console.print(Text(_printable(f"{finding.check:<9} {ids}: {finding.detail}")))
            if finding.explanation:
                console.print(Text(f"          fits: {finding.explanation}"))
    raise typer.Exit(EXIT_FAILED if findings else 0)


def _as_dict(item: Judged) -> dict[str, object]:
    reasons = [{"code": r.code, "message": r.message, "lines": list(r.lines)} for r in item.reasons]
    return {"path": str(item.run.path), "verdict": item.verdict, "reasons": reasons}


def _printable(text: str) -> str:
    """Text with control characters escaped, so that a log cannot drive the terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
