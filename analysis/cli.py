"""Commands of the analysis' room: `fewbits verify`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from analysis.chain import RAW, choose_row, pointer_faults, read_exhibit, sources
from analysis.compare import compare, paired, run_times_s
from analysis.judge import Judged, judge
from analysis.lint import lint
from analysis.logs import read_run
from analysis.published import read_published
from recipes.runs import EXIT_FAILED, MANIFEST, RUN_JSON, RunError, find_runs


def register(app: typer.Typer) -> None:
    """Add this room's commands to the front door."""
    app.command("verify")(verify)
    app.command("compare")(compare_runs)
    app.command("explain")(explain)
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
    paths: Annotated[list[Path] | None, typer.Argument(help="run folders, or folders that hold some")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="every published run, and every file against its DVC pointer")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON list on standard output")] = False,
) -> None:
    """A verdict for every run, with every reason. Exit code 0: all VALID; 1: some are not; 2: nothing to read.

    With --all, runs that the gate refused are no fault: the exit code is 0 when every run is VALID or UNSUPPORTED and
    every published file is what its pointer says.
    """
    if everything:
        raise typer.Exit(_verify_all())
    if not paths:
        raise RunError("nothing to verify: give folders, or --all")
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


def _verify_all() -> int:
    faults = pointer_faults()
    judged = [judge(read_run(folder)) for folder in find_runs(RAW)]
    counts = Counter(item.verdict for item in judged)
    bad = [item for item in judged if item.verdict not in ("VALID", "UNSUPPORTED")]
    for line in [*faults, *(f"{item.verdict} {item.run.path}: {item.reasons[0].message}" for item in bad)]:
        typer.echo(_printable(line))
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    typer.echo(f"{len(judged)} runs ({said}); {len(faults)} files or pointers that do not fit")
    return EXIT_FAILED if faults or bad else 0


def compare_runs(
    base: Annotated[
        Path, typer.Argument(help="run folders of the baseline, e.g. results/raw/te_layers/layers-...-bf16")
    ],
    other: Annotated[Path, typer.Argument(help="run folders to compare with it")],
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Speedup of OTHER over BASE with its 95 % interval, whether they are like for like, and what differs.

    Only VALID runs count. Runs of the same session and repeat are paired; where there are none, all are taken, and the
    session is among what differs. Exit code 0: like for like; 1: not; 2: nothing to compare.
    """
    left, right = ([judge(read_run(folder)) for folder in run_folders(path)] for path in (base, other))
    pairs = paired(left, right)
    first, second = pairs if pairs[0] else ([j for j in left if j.valid], [j for j in right if j.valid])
    if not first or not second:
        empty = base if not first else other
        raise RunError(f"{empty}: no VALID run; `fewbits verify {empty}` says why")
    found = compare(first, second, [run_times_s(j.run) for j in first], [run_times_s(j.run) for j in second])
    speedup = found.speedup
    if as_json:
        differences = [{"field": d.field, "base": d.base, "other": d.other} for d in found.differences]
        numbers = {"value": speedup.value, "ci95": [speedup.low, speedup.high], "n": speedup.n}
        plain = {"speedup": numbers, "like_for_like": found.like_for_like, "differences": differences}
        typer.echo(json.dumps(plain, indent=2))
    else:
        typer.echo(f"{speedup.value:.3f}x [{speedup.low:.3f}, {speedup.high:.3f}], n = {speedup.n}")
        typer.echo("like for like" if found.like_for_like else "not like for like:")
        for difference in found.differences:
            typer.echo(_printable(f"  {difference.field}: {difference.base} against {difference.other}"))
    raise typer.Exit(0 if found.like_for_like else EXIT_FAILED)


def explain(
    exhibit: Annotated[str, typer.Argument(help="e.g. layer_speedup")],
    row: Annotated[str | None, typer.Argument(help="row number, or model=llama3_8b,precision=fp8_current,...")] = None,
    column: Annotated[str | None, typer.Argument(help="e.g. speedup")] = None,
) -> None:
    """Where a number comes from: the runs behind it with their hashes, or the publication. Without ROW: the rows."""
    frame = read_exhibit(exhibit)
    console = Console(soft_wrap=True)
    if row is None:
        shown = [name for name in ("model", "precision", "part", "scope", "label", "speedup") if name in frame.columns]
        for number, values in enumerate(frame.select(shown or frame.columns[:4]).iter_rows(named=True), 1):
            words = "  ".join(_printable(str(value)) for value in values.values() if value is not None)
            console.print(Text(f"{number:4}  {words}"))
        return
    chosen = choose_row(frame, row)
    if column and column not in frame.columns:
        raise RunError(f"{exhibit} has no column {column!r}; columns: {', '.join(frame.columns)}")
    what = f"{column} = {chosen[column]}" if column else ", ".join(f"{k} {v}" for k, v in list(chosen.items())[1:6])
    console.print(Text(_printable(f"{exhibit} row {chosen['row']}: {what} ({chosen.get('label') or 'no number'})")))
    for link in sources(chosen):
        console.print(Text(f"  {_printable(link.head)}"))
        for line in link.lines:
            console.print(Text(f"      {_printable(line)}"))


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
