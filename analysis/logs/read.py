"""Reads a log: blocks of lines in, runs out. A file may hold several runs, restarts, and the output of many ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.logs.columns import Column
from analysis.logs.format import Event, Format
from analysis.logs.formats import detect, first_unmatched
from analysis.logs.layout import Parsed, Rows, values_of
from analysis.logs.log_run import LogRun
from analysis.logs.run import Reason
from analysis.logs.scanner import Scanner
from analysis.logs.source import LONGEST_LINE, Block, Source
from analysis.logs.timeline import Timeline

# Text kept while no line tells the format; lines before it are skipped (and said) when there is more.
MOST_HEADER = 24 << 20
_MOST_TURNS = 10_000  # of order within one run; beyond it, the file is no log in order


class UnknownFormat(ValueError):
    """No line of the input is one that a known framework prints; the message names the first line that did not fit."""


def read_log(
    source: Source, wanted: Format | None = None, progress: Callable[[int], None] | None = None
) -> list[LogRun]:
    """All runs of one input, in the order in which they begin. Raises UnknownFormat, RunError."""
    held: list[Block] = []
    size, skipped, before = 0, 0, 0
    reader = LogReader(source.name, wanted) if wanted else None
    first: tuple[int, str] = (0, "")
    for block in source.blocks():
        if progress:
            progress(source.stored_bytes)
        if reader is None:
            held.append(block)
            size += block.size
            text = block.padded[: block.size]
            if not first[0]:
                first = first_unmatched(text)
                first = (first[0] + before, first[1]) if first[0] else first
            before += text.count(b"\n")
            found = detect(text)
            if found is None:
                while size > MOST_HEADER:
                    gone = held.pop(0)
                    size -= gone.size
                    skipped += gone.padded.count(b"\n")
                continue
            reader = LogReader(source.name, found)
            reader.next_line += skipped
            for early in held[:-1]:
                reader.feed(early)
            held = []
        reader.feed(block)
    if reader is None:
        what = "the input is empty" if not first[1] else f"line {first[0]} is {first[1][:100]!r}"
        if source.reasons:
            what = f"{source.reasons[0].message}; {what}"
        raise UnknownFormat(f"{source.name}: no line of a known format; {what}")
    runs = reader.finish()
    for run in runs:
        run.sha256 = source.sha256
        run.reasons += source.reasons
        if skipped:
            run.reasons.append(Reason("header_skipped", f"more than {MOST_HEADER} bytes before the first step"))
    return runs


class LogReader:
    """Feeds one format's blocks; `finish` gives the runs."""

    def __init__(self, path: str, known: Format) -> None:
        self.path, self.format = path, known
        self.scanner = Scanner(len(Column), known.parse)
        self.next_line = 1
        self.runs = [LogRun(path, known)]
        self._pending: tuple[bytes, int] | None = None
        self._turns = 0
        self._restarting: set[int] = set()  # ranks that a launcher restarted, and that printed no step since
        # a configuration printed after steps is that of the run, or attempt, that begins: held until it does
        self._held: list[tuple[str, str, int]] = []
        self._header_seen = False
        # the printed time is rounded: (seconds, relative) by format
        self._tolerance = {"maxtext": (6e-4, 0.01), "nemo": (0.0, 0.1), "megatron": (6e-5, 0.01)}.get(
            known.name, (0.0, 0.01)
        )

    @property
    def run(self) -> LogRun:
        """The run that the current line belongs to."""
        return self.runs[-1]

    def feed(self, block: Block) -> None:
        """One block of whole lines."""
        first_line, text = self.next_line, block.padded
        rows, events, bounds = self.scanner.scan(text, first_line)
        self.next_line += bounds.size - 1
        if block.too_long is not None:
            at = first_line + block.too_long
            self.run.reasons.append(Reason("line_too_long", f"a line longer than {LONGEST_LINE} bytes", (at,)))
        if block.cut and rows.line.size and not self.format.closed_lines:
            self.run.reasons.append(
                Reason("line_cut", "the last line has no end: its last number may be cut", (int(rows.line[-1]),))
            )
            self.run.torn.append(int(rows.line[-1]))
            rows = _part(rows, slice(0, 0))
        at = 0
        for index in events:
            line = first_line + index
            said = text[bounds[index] : bounds[index + 1] - 1]
            for event in self.format.events(said):
                if not _independent(event):
                    until = int(np.searchsorted(rows.line, line))
                    if until > at:
                        self._steps(_part(rows, slice(at, until)))
                        at = until
                self._event(event, line, said)
        if at < rows.line.size:
            self._steps(_part(rows, slice(at, None)))

    def finish(self) -> list[LogRun]:
        """All runs; no more lines will come."""
        self._torn_pending()
        if self._header_seen:
            self._new_run()
        self._release()
        for number_of_run, run in enumerate(self.runs, 1):
            run.part, run.parts = number_of_run, len(self.runs)
            for timeline in (*run.timelines.values(), run.loose):
                timeline.close()
        return self.runs

    def _steps(self, rows: Rows) -> None:
        self._torn_pending()
        step = rows.values[Column.STEP]
        loose = np.isnan(step)
        if loose.any():
            self._loose(_part(rows, loose))
            if loose.all():
                return
            rows = _part(rows, ~loose)
        if not rows.present[Column.RANK : Column.LOCAL_RANK + 1].any():
            self._rank(-1, rows)
            return
        rank = np.nan_to_num(rows.values[Column.RANK], nan=-1) * 4096 + np.nan_to_num(rows.values[Column.LOCAL_RANK])
        if rank[0] == rank[-1] and (rank == rank[0]).all():
            self._rank(int(rank[0]), rows)
            return
        # several ranks in one block: each keeps its own order; a new run begins for all of them
        for key in dict.fromkeys(rank.tolist()):
            self._rank(int(key), _part(rows, rank == key))

    def _rank(self, key: int, rows: Rows) -> None:
        """Rows of one rank, cut where the step does not increase."""
        step = rows.values[Column.STEP]
        turns = np.flatnonzero(step[1:] <= step[:-1]) + 1
        for part in np.split(np.arange(step.size), turns) if turns.size else [slice(None)]:
            self._ascending(key, _part(rows, part))

    def _ascending(self, key: int, rows: Rows) -> None:
        first, line = float(rows.values[Column.STEP, 0]), int(rows.line[0])
        timeline = self.run.timelines.setdefault(key, Timeline())
        if timeline.attempts and key not in self._restarting and self._is_new_run(timeline, rows):
            marked = self._header_seen or self._held or self.run.failed or self._complete(timeline)
            before = self.run
            self._new_run()
            if not marked:
                reason = Reason("runs_unmarked", "steps begin anew, and nothing says that a run does", (line,))
                before.reasons.append(reason)
                self.run.reasons.append(reason)
            timeline = self.run.timelines.setdefault(key, Timeline())
        elif timeline.attempts and first == timeline.last_step and key not in self._restarting:
            self._turns += 1
            timeline.same_step.see(np.array([True]), np.array([first]), rows.line[:1])
            rows = _part(rows, slice(1, None))
            if not rows.line.size:
                return
        elif timeline.attempts and (first <= timeline.last_step or key in self._restarting):
            self._turns += 1
            if self._turns > _MOST_TURNS:
                self.run.reasons.append(Reason("steps_disordered", "steps go back too often for a log", (line,)))
                return
            timeline.restart_at(first, line)
        self._restarting.discard(key)
        self._header_seen = False
        self._release()
        timeline.add(rows, self._tolerance, self.format.name == "nemo", self.run.number("batch_samples"))

    def _is_new_run(self, timeline: Timeline, rows: Rows) -> bool:
        """Whether a step that goes back begins another run: a new total, or the first step again without a restart."""
        first = float(rows.values[Column.STEP, 0])
        total = float(rows.values[Column.TOTAL, 0])
        if self.format.name == "megatron" and timeline.totals and total not in timeline.totals:
            return True
        if self._header_seen and self._complete(timeline):
            return True
        if first > timeline.last_step:
            return False
        return first <= timeline.attempts[0][0] and timeline.rows > 0 and first < timeline.last_step

    def _complete(self, timeline: Timeline) -> bool:
        """Whether the run came to its end before this line."""
        total = self.run.number("total_steps") or (next(iter(timeline.totals)) if len(timeline.totals) == 1 else None)
        reached = total is not None and timeline.last_step + (self.format.first_step == 0) >= total
        return bool(self.run.ended or self.run.stopped) or reached

    def _new_run(self) -> None:
        if len(self.runs) < 10_000:
            self.runs.append(LogRun(self.path, self.format))
        self._restarting, self._header_seen = set(), False
        self._release()

    def _release(self) -> None:
        """Held facts become those of the current run."""
        for key, value, line in self._held:
            self.run.note_fact(key, value, line)
        self._held = []

    def _loose(self, rows: Rows) -> None:
        """Rows without a step number (Megatron-Bridge's own line): counted, in case nothing else is."""
        loose = self.run.loose
        rows.values[Column.STEP] = np.arange(loose.rows + 1, loose.rows + 1 + rows.line.size)
        rows.present[Column.STEP] = True
        loose.add(rows, (6e-3, 0.01), False, None)

    def _event(self, event: Event, line: int, text: bytes) -> None:
        run = self.run
        if event.kind == "join":
            self._join(str(event.value), line, text)
        elif event.kind == "header" and (run.timelines or run.ended):
            self._header()
        elif event.kind == "fact" and event.key.startswith("mark "):
            self._mark(event, line)
        elif event.kind == "fact" and (run.timelines or run.ended):
            if len(self._held) < 10_000:
                self._held.append((event.key, str(event.value), line))
        elif event.kind == "fact":
            run.note_fact(event.key, str(event.value), line)
        elif event.kind == "eval" and isinstance(event.value, tuple) and len(run.evals) < 100_000:
            run.evals.append((*event.value, line))
        elif event.kind == "end":
            run.ended = (*run.ended[:9], line)
        elif event.kind == "restart":
            run.restarts.append(line)
            self._restarting = set(run.timelines)
        elif event.kind in ("stopped", "failed"):
            found = run.stopped if event.kind == "stopped" else run.failed
            if len(found) < 1000:
                found.append((str(event.value), line))
        elif event.kind == "torn" and len(run.torn) < 1000:
            run.torn.append(line)
            if isinstance(event.value, float):
                run.timeline.loss_absent.see(np.array([True]), np.array([event.value]), np.array([line]))

    def _header(self) -> None:
        """The banner of a starting job, after steps: another run, unless a launcher said that it restarts this one."""
        if self.run.restarts and not self.run.ended:
            self._restarting = set(self.run.timelines)
        self._header_seen = True

    def _mark(self, event: Event, line: int) -> None:
        name = event.key.removeprefix("mark ")
        if name == "run_start" and any(mark == "run_start" for mark, _, _ in self.run.marks):
            self._new_run()
        if len(self.run.marks) < 200_000 and isinstance(event.value, tuple):
            time, samples = event.value
            self.run.marks.append((name, time, line))
            self.run.samples_marked = max(self.run.samples_marked, samples)

    def _join(self, what: str, line: int, text: bytes) -> None:
        """A step line that a terminal wrapped: parts are put together until they are a step."""
        if what == "start":
            self._torn_pending()
            self._pending = (text, line)
        elif self._pending is not None and line - self._pending[1] <= 8:
            whole = self._pending[0].rstrip() + b" " + text.strip()
            self._pending = (whole, self._pending[1])
        else:
            return
        parsed = self.format.parse(self._pending[0])
        if parsed is not None and parsed.spots:
            rows = _single(self._pending[0], parsed, self._pending[1])
            self._pending = None
            self._steps(rows)

    def _torn_pending(self) -> None:
        if self._pending is not None:
            self.run.torn.append(self._pending[1])
            self._pending = None


def _independent(event: Event) -> bool:
    """Whether an event means the same before and after the steps around it: they need not be taken in first."""
    return event.kind in ("eval", "failed") or (
        event.kind == "fact" and event.key in ("mark eval_start", "mark eval_stop", "mark tracked_stats")
    )


def _part(rows: Rows, which: Any) -> Rows:
    return Rows(rows.values[:, which], rows.present[:, which], rows.line[which])


def _single(line: bytes, parsed: Parsed, at: int) -> Rows:
    values = np.full((len(Column), 1), np.nan)
    present = np.zeros((len(Column), 1), dtype=bool)
    for column, value in values_of(line, parsed).items():
        values[column, 0], present[column, 0] = value, True
    return Rows(values, present, np.array([at], dtype=np.int64))
