"""Commands of the analysis' room."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from analysis.chain import RAW, choose_row, pointer_faults, read_exhibit, sources, telling_columns
from analysis.cli_compare import compare_runs, windows
from analysis.expected import Expected
from analysis.judge import judge
from analysis.judge_log import judge_logs
from analysis.lint import lint
from analysis.log_numbers import as_record
from analysis.logs import read_run
from analysis.logs.formats import FORMATS
from analysis.published import read_published
from analysis.shown import folder_record, folder_summary, gather_shown, print_verdict, printable, shown_name, summary
from recipes.runs import EXIT_FAILED, EXIT_USAGE, RunError, find_runs


def register(app: typer.Typer) -> None:
    """Add this room's commands to the front door."""
    app.command("verify")(verify)
    app.command("compare")(compare_runs)
    app.command("windows")(windows)
    app.command("explain")(explain)
    app.command("lint-published")(lint_published)


def verify(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="logs (plain, .gz, .zst, .xz), run folders, folders of either, or -")
    ] = None,
    known: Annotated[str, typer.Option("--format", help=f"auto, or {', '.join(FORMATS)}")] = "auto",
    expect_steps: Annotated[int | None, typer.Option(min=1, help="how many steps the run should have")] = None,
    gbs: Annotated[int | None, typer.Option(min=1, help="global batch size, samples")] = None,
    seq: Annotated[int | None, typer.Option(min=1, help="sequence length, tokens")] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of the whole job")] = None,
    precision: Annotated[str | None, typer.Option(help="what the run is said to be; else read from its path")] = None,
    hardware: Annotated[
        str | None, typer.Option(help="GPU it is said to run on, e.g. GB200; else from its path")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="every published run, and every file against its DVC pointer")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON list on standard output, an object a run")] = False,
) -> None:
    """A verdict for every run, with every reason and the lines that show it.

    Exit code 0: all VALID; 1: some are not; 2: an input cannot be read, or is no log of a known format.

    A file may hold several runs, restarts and many ranks; a folder may hold one file a rank, or a log and the log that
    resumed it. With --all, runs that the gate refused are no fault, nor are those that failed or were stopped and say
    so: the exit code is 0 when nothing else is wrong with any, and every published file is what its pointer says.
    """
    if everything:
        raise typer.Exit(_verify_all())
    if not paths:
        raise RunError("nothing to verify: give logs or folders, or --all")
    expected = Expected(expect_steps, gbs, seq, gpus, precision, hardware)
    found = gather_shown(paths, known)
    folders = [judge(read_run(folder)) for folder in found.folders]
    logs = judge_logs(found.logs, expected)
    if as_json:
        typer.echo(json.dumps([*map(folder_record, folders), *map(as_record, logs)], indent=2, allow_nan=False))
    else:
        console = Console(soft_wrap=True)
        for item in folders:
            print_verdict(console, item.verdict, str(item.run.path), folder_summary(item), item.reasons)
        for log in logs:
            print_verdict(console, log.verdict, shown_name(log.run), summary(log), log.reasons)
    if found.skipped and not as_json:
        typer.echo(
            f"{len(found.skipped)} files are no log of a known format, e.g. {printable(found.skipped[0])}", err=True
        )
    for line in found.unusable:
        typer.echo(printable(f"fewbits: {line}"), err=True)
    if found.unusable:
        raise typer.Exit(EXIT_USAGE)
    raise typer.Exit(0 if all(item.valid for item in folders) and all(log.valid for log in logs) else EXIT_FAILED)


def _verify_all() -> int:
    faults = pointer_faults()
    judged = [judge(read_run(folder)) for folder in find_runs(RAW)]
    counts = Counter(item.verdict for item in judged)
    bad = [item for item in judged if not item.valid and not item.says_itself]
    for line in [*faults, *(f"{item.verdict} {item.run.path}: {item.reasons[0].message}" for item in bad)]:
        typer.echo(printable(line))
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    typer.echo(f"{len(judged)} runs ({said}); {len(faults)} files or pointers that do not fit")
    return EXIT_FAILED if faults or bad else 0


def explain(
    exhibit: Annotated[str, typer.Argument(help="e.g. layer_speedup")],
    row: Annotated[str | None, typer.Argument(help="row number, or model=llama3_8b,precision=fp8_current,...")] = None,
    column: Annotated[str | None, typer.Argument(help="e.g. speedup")] = None,
) -> None:
    """Where a number comes from: the runs behind it with their hashes, or the publication. Without ROW: the rows."""
    frame = read_exhibit(exhibit)
    console = Console(soft_wrap=True)
    if row is None:
        for number, values in enumerate(frame.select(telling_columns(frame)).iter_rows(named=True), 1):
            words = "  ".join(printable(str(value)) for value in values.values() if value is not None)
            console.print(Text(f"{number:4}  {words}"))
        return
    chosen = choose_row(frame, row)
    if column and column not in frame.columns:
        raise RunError(f"{exhibit} has no column {column!r}; columns: {', '.join(frame.columns)}")
    what = f"{column} = {chosen[column]}" if column else ", ".join(f"{k} {v}" for k, v in list(chosen.items())[1:6])
    console.print(Text(printable(f"{exhibit} row {chosen['row']}: {what} ({chosen.get('label') or 'no number'})")))
    for link in sources(chosen):
        console.print(Text(f"  {printable(link.head)}"))
        for line in link.lines:
            console.print(Text(f"      {printable(line)}"))


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
            console.print(Text(printable(f"{finding.check:<9} {ids}: {finding.detail}")))
            if finding.explanation:
                console.print(Text(f"          fits: {finding.explanation}"))
    raise typer.Exit(EXIT_FAILED if findings else 0)
