"""`fewbits compare` and `fewbits windows`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.compare import Comparison, compare, paired, run_times_s
from analysis.compare_logs import compare_logs, loss_matched, precisions
from analysis.judge import Judged, judge
from analysis.judge_log import JudgedLog, judge_logs
from analysis.logs import read_run
from analysis.shown import gather_shown, printable, shown_name
from analysis.windows import by_window
from recipes.runs import EXIT_FAILED, RunError


def _side(path: Path, known: str) -> tuple[list[Judged], list[JudgedLog]]:
    found = gather_shown([path], known)
    if found.unusable:
        raise RunError(found.unusable[0])
    return [judge(read_run(folder)) for folder in found.folders], judge_logs(found.logs)


def compare_runs(
    base: Annotated[Path, typer.Argument(help="the baseline: a log, a run folder, or a folder of either")],
    other: Annotated[Path, typer.Argument(help="what to compare with it")],
    known: Annotated[str, typer.Option("--format", help="format of the logs, where it cannot be told")] = "auto",
    min_speedup: Annotated[
        float | None, typer.Option(min=0, help="fail when the speedup is below this: 0.95 lets OTHER be 5 % slower")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on standard output")] = False,
) -> None:
    """Speedup of OTHER over BASE with its 95 % interval, whether they are like for like, and what differs.

    Only VALID runs count. Run folders of the same session and repeat are paired; where there are none, all are taken,
    and the session is among what differs. Logs also give the loss-matched speedup: the ratio of the times at which each
    first reaches the baseline's last smoothed loss. Exit code 0: like for like; 1: not, or slower than --min-speedup
    allows; 2: nothing to compare.
    """
    left, right = _side(base, known), _side(other, known)
    if bool(left[0]) != bool(right[0]):
        raise RunError("a run folder and a log cannot be compared: give two of the same kind")
    found, matched = _folders(base, left[0], other, right[0]) if left[0] else _logs(base, left[1], other, right[1])
    speedup = found.speedup
    if as_json:
        plain = {
            "speedup": {"value": speedup.value, "ci95": [speedup.low, speedup.high], "n": speedup.n},
            "like_for_like": found.like_for_like,
            "differences": [{"field": d.field, "base": d.base, "other": d.other} for d in found.differences],
            "loss_matched_speedup": matched["value"] if matched else None,
            "loss_matched": matched,
        }
        typer.echo(json.dumps(plain, indent=2, allow_nan=False))
    else:
        typer.echo(f"{speedup.value:.3f}x [{speedup.low:.3f}, {speedup.high:.3f}], n = {speedup.n}")
        if matched:
            value = f"{matched['value']:.3f}x" if matched["value"] else "not reached"
            typer.echo(f"at equal loss ({matched['loss']:.4g}): {value}; {matched['precision']}")
        typer.echo("like for like" if found.like_for_like else "not like for like:")
        for difference in found.differences:
            typer.echo(printable(f"  {difference.field}: {difference.base} against {difference.other}"))
    fast = min_speedup is None or speedup.value >= min_speedup
    if not fast:
        typer.echo(f"slower than allowed: {speedup.value:.3f}x, at least {min_speedup:g}x is wanted", err=True)
    raise typer.Exit(0 if found.like_for_like and fast else EXIT_FAILED)


def _folders(
    base: Path, left: list[Judged], other: Path, right: list[Judged]
) -> tuple[Comparison, dict[str, Any] | None]:
    pairs = paired(left, right)
    first, second = pairs if pairs[0] else ([j for j in left if j.valid], [j for j in right if j.valid])
    _both(base, first, other, second)
    return compare(first, second, [run_times_s(j.run) for j in first], [run_times_s(j.run) for j in second]), None


def _logs(
    base: Path, left: list[JudgedLog], other: Path, right: list[JudgedLog]
) -> tuple[Comparison, dict[str, Any] | None]:
    first, second = [j for j in left if j.valid], [j for j in right if j.valid]
    _both(base, first, other, second)
    try:
        found = compare_logs(first, second)
    except ValueError as error:
        raise RunError(f"{base} and {other}: nothing to compare ({error})") from error
    matched = loss_matched(first[0], second[0]) if len(first) == len(second) == 1 else None
    if matched is None:
        return found, None
    return found, {
        "value": matched.value,
        "loss": matched.loss,
        "base_s": matched.base_s,
        "other_s": matched.other_s,
        "precision": f"{precisions(second[0])} against {precisions(first[0])}",
    }


def _both(base: Path, first: list[Any], other: Path, second: list[Any]) -> None:
    if not first or not second:
        empty = base if not first else other
        raise RunError(f"{empty}: no VALID run; `fewbits verify {empty}` says why")


def windows(
    path: Annotated[Path, typer.Argument(help="a log, or a folder of logs")],
    known: Annotated[str, typer.Option("--format", help="format of the log, where it cannot be told")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="one JSON list on standard output, an object a run")] = False,
) -> None:
    """The step time that each averaging window in use would report, for one and the same log.

    The table is shown for any run with step times; its verdict stands above it. Exit code 0: VALID; 1: not all are.
    """
    found = gather_shown([path], known)
    if not found.logs:
        raise RunError(found.unusable[0] if found.unusable else f"{path}: no log; windows are for logs")
    judged = judge_logs(found.logs)
    plain = []
    for item in judged:
        table = item.run.timeline.table()
        rows = [
            {"window": window.name, "used_by": window.used_by, "step_time_s": value, "n": count}
            for window, value, count in by_window(table["step"], table["time_s"])
        ]
        plain.append({"path": item.run.path, "run": item.run.part, "verdict": item.verdict, "windows": rows})
        if not as_json:
            typer.echo(printable(f"{item.verdict}  {shown_name(item.run)}"))
            for row in rows:
                value = f"{row['step_time_s']:10.4f} s" if row["step_time_s"] is not None else "         -  "
                typer.echo(f"  {row['window']:<26} {value}  n = {row['n']:<6} {row['used_by']}")
    if as_json:
        typer.echo(json.dumps(plain, indent=2, allow_nan=False))
    raise typer.Exit(0 if all(item.valid for item in judged) else EXIT_FAILED)
