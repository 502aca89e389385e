"""What the user gives to `verify`, `compare` and `windows`: run folders, logs, folders of logs, standard input.

Files that several ranks of one job wrote are one run; a log that goes on where another stopped is joined to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from analysis.log_steps import declared_total, starts_whole
from analysis.logs.format import Format
from analysis.logs.log_run import LogRun
from analysis.logs.read import UnknownFormat, read_log
from analysis.logs.source import Source
from recipes.runs import MANIFEST, RUN_JSON, RunError

# One file a rank: rank_3.log, node0.out, 3.log, 3/stdout.log (torchrun --log-dir)
_RANK_FILE = re.compile(
    r"(?:rank|node|worker|proc|process|task|host|local|gpu|stdout|stderr)[-_.]?(\d+)"
    r"|(?:^|/)(\d+)/std(?:out|err)|(?:^|/)(\d+)\.(?:log|txt|out)$"
)
Progress = Callable[[int], None]


@dataclass
class Inputs:
    """Run folders (with a manifest or run.json), runs read from logs, and what could not be read, one line each."""

    folders: list[Path] = field(default_factory=list)
    logs: list[LogRun] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def gather(paths: Iterable[Path], wanted: Format | None = None, progress: Progress | None = None) -> Inputs:
    """Everything under `paths`; `-` is standard input. Raises RunError for a path that does not exist."""
    found = Inputs()
    for path in paths:
        if str(path) == "-":
            _read(found, Source(None), wanted, progress)
        elif path.is_dir():
            _folder(found, path, wanted, progress)
        elif path.exists():
            _read(found, Source(path), wanted, progress)
        else:
            raise RunError(f"{path}: no such file or folder")
    found.logs = _joined(found.logs)
    return found


def _read(found: Inputs, source: Source, wanted: Format | None, progress: Progress | None) -> None:
    try:
        found.logs += read_log(source, wanted, progress)
    except UnknownFormat as error:
        found.unusable.append(str(error))


def _folder(found: Inputs, folder: Path, wanted: Format | None, progress: Progress | None) -> None:
    """A run folder, one that holds some, or a folder of logs: files that are no log are skipped, and said."""

    def refused(error: OSError) -> None:
        raise RunError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions") from error

    runs: list[Path] = []
    files: list[Path] = []
    for here, folders, names in os.walk(folder, onerror=refused):
        folders.sort()
        if RUN_JSON in names or MANIFEST in names:
            runs.append(Path(here))
            folders.clear()
            continue
        files += [Path(here) / name for name in sorted(names) if not name.startswith(".")]
    found.folders += runs
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(_rank_group(path.relative_to(folder)), []).append(path)
    known = 0
    for name, members in groups.items():
        known += _group(found, members, bool(name) and "#" in name, wanted, progress)
    if not runs and not known:
        raise RunError(f"{folder}: no run folder and no log of a known format in {len(files)} files")


def _rank_group(path: Path) -> str:
    """Files with the same group are ranks of one job; a file that names no rank is its own."""
    text = path.as_posix()
    match = _RANK_FILE.search("/".join(path.parts[-2:]))
    if not match:
        return text
    return _RANK_FILE.sub(lambda m: re.sub(r"\d+", "#", m[0]), text)


def _group(found: Inputs, members: list[Path], ranks: bool, wanted: Format | None, progress: Progress | None) -> int:
    """Read the files of one group; returns how many were logs."""
    runs: list[LogRun] = []
    for path in members:
        try:
            runs += read_log(Source(path), wanted, progress)
        except UnknownFormat:
            found.skipped.append(str(path))
        except RunError as error:
            found.unusable.append(str(error))
    if ranks and len(runs) > 1 and all(run.parts == 1 for run in runs):
        runs = [_as_ranks(runs)]
    found.logs += runs
    return len(runs)


def _as_ranks(runs: list[LogRun]) -> LogRun:
    """One run from the files of its ranks: the first that prints steps, and the others' steps beside it."""
    first = next((run for run in runs if run.timelines), runs[0])
    for rank, run in enumerate(runs):
        if run is first:
            continue
        for timeline in run.timelines.values():
            first.timelines[(rank + 1) * 4096] = timeline
        first.failed += run.failed
        first.stopped += run.stopped
        first.ended += run.ended
        for name, values in run.facts.items():
            for value, line in values.items():
                first.note_fact(name, value, line)
    return first


def _joined(runs: list[LogRun]) -> list[LogRun]:
    """Runs that begin where another one of the same job stopped, put behind it."""
    left = list(runs)
    for child in sorted(runs, key=lambda run: run.timeline.attempts[0][0] if run.timeline.attempts else 0.0):
        if not child.timelines or starts_whole(child, declared_total(child)):
            continue
        parents = [run for run in left if run is not child and _continues(run, child)]
        if len(parents) != 1:
            continue
        parent = parents[0]
        parent.timeline.join(child.timeline)
        parent.path, parent.parents = child.path, (*parent.parents, parent.path)
        parent.ended, parent.stopped, parent.failed = child.ended, child.stopped, child.failed
        parent.torn, parent.sha256 = parent.torn + child.torn, child.sha256
        parent.reasons = parent.reasons + child.reasons
        for name, values in child.facts.items():
            for value, line in values.items():
                parent.note_fact(name, value, line)
        left = [run for run in left if run is not child]
    return left


def _continues(parent: LogRun, child: LogRun) -> bool:
    """Whether `child` resumes `parent`: the same total, batch and format, and no step between them is missing."""
    one, two = parent.timeline, child.timeline
    if not parent.timelines or parent.format is not child.format:
        return False
    apart = max(one.usual_apart(), two.usual_apart())
    begin = two.attempts[0][0]
    return (
        one.attempts[0][0] < begin <= one.last_step + apart
        and one.last_step < two.last_step
        and one.totals == two.totals
        and parent.fact("total_steps") in (child.fact("total_steps"), None)
        and (one.batch_sizes == two.batch_sizes)
    )
