"""Step times and evaluation losses out of public MLPerf Training logs: numbers with the repository, commit and hash.

    python -m analysis.mlperf --logs build/mlperf --fetch --check

The logs are other people's and are not kept here. `--fetch` downloads what is missing (a network is needed), every
file's hash is checked, and `--check` compares the derived numbers with the committed ones instead of writing them. A
log that is not VALID gives a row with its verdict and no numbers.
Exit codes: 0 written or equal, 1 numbers differ, 2 a file is missing, cannot be fetched, or has another hash.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from analysis.expected import Expected
from analysis.judge_log import JudgedLog, judge_logs
from analysis.log_numbers import as_record
from analysis.logs.formats import FORMATS
from analysis.logs.read import read_log
from analysis.logs.source import Source
from analysis.rounding import rounded
from analysis.verdicts import VERDICT_OF
from recipes.catalog import CatalogError
from recipes.catalog.reading import Entry, read_yaml
from recipes.runs import EXIT_FAILED, EXIT_OK, EXIT_USAGE, RunError, sha256_of, write_atomically

SOURCES = Path("results/published/mlperf_sources.yaml")
RUNS, EVALS = "mlperf_runs.csv", "mlperf_evals.csv"
RAW_HOST = "https://raw.githubusercontent.com"
ORIGIN = ("repository", "path", "commit", "sha256")
RUN_COLUMNS = (
    *("id", "round", "submitter", "benchmark", *ORIGIN, "hardware", "gpus", "precision", "precision_from", "evidence"),
    *("verdict", "reason", "global_batch_samples", "sequence", "records", "step_time_s", "step_time_low_s"),
    *("step_time_high_s", "n", "tokens_per_s_per_gpu", "run_s", "evaluations", "last_eval_loss", "samples"),
)
EVAL_COLUMNS = ("id", *ORIGIN, "samples", "time_s", "eval_loss")


class Log(Entry):
    """One public log: where it is, its hash, and what the submission says of the system and the precision."""

    id: str
    repository: str = Field(pattern=r"^mlcommons/training_results_v\d\.\d$")
    path: str
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    hardware: str
    gpus: int = Field(gt=0)
    system_file: str
    precision: str
    precision_from: Literal["log", "configuration", "readme"]
    evidence: str


class Logs(Entry):
    """`mlperf_sources.yaml`."""

    logs: tuple[Log, ...]


def fetch(log: Log, folder: Path) -> None:
    """Download one log to its place under `folder`. Raises RunError without a network."""
    url = f"{RAW_HOST}/{log.repository}/{log.commit}/{urllib.request.quote(log.path)}"  # type: ignore[attr-defined]
    target = folder / log.repository / log.path
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - https, from a committed list
            content = answer.read(64 << 20)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise RunError(
            f"{log.id}: {url} cannot be fetched ({error}); the committed numbers stay as they are"
        ) from error
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(".partial")
    aside.write_bytes(content)
    aside.rename(target)


def judge_all(logs: tuple[Log, ...], folder: Path) -> list[tuple[Log, JudgedLog]]:
    """Every log, read and judged, also against the others. Raises RunError for a file that is absent or another one."""
    found = []
    for log in logs:
        path = folder / log.repository / log.path
        if not path.is_file():
            raise RunError(f"{log.id}: {path} is not there; add --fetch, or put the file there")
        if sha256_of(path) != log.sha256:
            raise RunError(f"{log.id}: {path} has another hash than the one that the numbers come from")
        (run,) = read_log(Source(path), FORMATS["mlperf"])
        found.append((log, run))
    judged = []
    for index, item in enumerate(judge_logs([run for _, run in found])):
        log, run = found[index]
        told = judge_logs([run], Expected(gpus=log.gpus, precision=log.precision, hardware=log.hardware))[0]
        twin = [reason for reason in item.reasons if reason.code == "duplicate_values"]
        verdict = "INCONSISTENT" if twin and told.valid else told.verdict
        judged.append((log, JudgedLog(run, verdict, (*told.reasons, *twin), told.expected)))
    return judged


def run_row(log: Log, judged: JudgedLog, folder: Path) -> dict[str, Any]:
    """One row of mlperf_runs.csv; without numbers where the log is not VALID."""
    run, record = judged.run, as_record(judged)
    marks = {name: time for name, time, _ in run.marks if name in ("run_start", "run_stop")}
    faults = [reason for reason in judged.reasons if VERDICT_OF[reason.code] != "VALID"]
    row: dict[str, Any] = {
        **log.model_dump(include={"id", *ORIGIN, "hardware", "gpus", "precision", "precision_from", "evidence"}),
        "round": log.repository[-4:],
        "submitter": log.path.split("/")[0],
        "benchmark": run.fact("model"),
        "verdict": judged.verdict,
        "reason": "; ".join(f"{reason.code}: {reason.message.replace(f'{folder}/', '')}" for reason in faults),
    }
    if not judged.valid:
        return row
    times = record["step_time_s"]
    return row | {
        "global_batch_samples": run.number("batch_samples"),
        "sequence": run.number("sequence"),
        "records": record["steps"]["count"],
        "step_time_s": times["median"],
        "step_time_low_s": times["ci95"][0] if times["ci95"] else None,
        "step_time_high_s": times["ci95"][1] if times["ci95"] else None,
        "n": times["n"],
        "tokens_per_s_per_gpu": record["tokens_per_s_per_gpu"],
        "run_s": marks["run_stop"] - marks["run_start"],
        "evaluations": len(run.evals),
        "last_eval_loss": run.evals[-1][0] if run.evals else None,
        "samples": run.samples_marked or None,
    }


def eval_rows(log: Log, judged: JudgedLog) -> list[dict[str, Any]]:
    """Rows of mlperf_evals.csv: samples seen, seconds since run_start, loss; none where the log is not VALID."""
    if not judged.valid:
        return []
    start = next(time for name, time, _ in judged.run.marks if name == "run_start")
    origin = log.model_dump(include={"id", *ORIGIN})
    return [
        {**origin, "samples": samples or None, "time_s": time - start, "eval_loss": loss}
        for loss, time, samples, _ in judged.run.evals
    ]


def as_csv(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Rows as CSV text; numbers in five significant digits, times and samples as they are."""
    exact = ("samples", "time_s", "run_s", "global_batch_samples", "sequence", "eval_loss", "last_eval_loss")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name), name in exact) for name in columns])
    return file.getvalue()


def _cell(value: Any, exact: bool) -> Any:
    if isinstance(value, float):
        value = round(value, 6) if exact else rounded(value)
        return int(value) if value is not None and value.is_integer() else value
    return value


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.mlperf", description=__doc__)
    parser.add_argument("--logs", type=Path, default=Path("build/mlperf"), help="<repository>/<path> lie under it")
    parser.add_argument("--fetch", action="store_true", help="download what is missing")
    parser.add_argument("--check", action="store_true", help="compare with the committed numbers, write nothing")
    parser.add_argument("--out", type=Path, default=Path("results/published"))
    args = parser.parse_args(arguments)
    try:
        logs = read_yaml(SOURCES, Logs).logs
        if args.fetch:
            for log in logs:
                if not (args.logs / log.repository / log.path).is_file():
                    fetch(log, args.logs)
        judged = judge_all(logs, args.logs)
    except (RunError, CatalogError) as error:
        print(f"mlperf: {error}", file=sys.stderr)
        return EXIT_USAGE
    texts = {
        RUNS: as_csv([run_row(*pair, args.logs) for pair in judged], RUN_COLUMNS),
        EVALS: as_csv([row for pair in judged for row in eval_rows(*pair)], EVAL_COLUMNS),
    }
    for name, text in texts.items():
        path = args.out / name
        if args.check and path.read_text(encoding="utf-8") != text:
            print(
                f"mlperf: {path} is not what the logs give; run without --check to see the difference", file=sys.stderr
            )
            return EXIT_FAILED
        if not args.check:
            write_atomically(path, text)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
