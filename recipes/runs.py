"""The run folder: what a run must leave behind, the same for every stack, and the only place its paths are spelled.

    runs/<stack>/<experiment>/<run_id>/
        run.json         what was run, on what, with what outcome
        log.txt          the program's own output, untouched
        metrics.jsonl    per-step values at full precision
        power.csv        NVML samples, where there is a GPU
        MANIFEST.sha256  a hash of every file above, written last

A folder without MANIFEST.sha256 is a run that did not end: INCOMPLETE, to be redone, never a number.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

SCHEMA_VERSION = 1
MANIFEST = "MANIFEST.sha256"
RUN_JSON, LOG, METRICS, POWER = "run.json", "log.txt", "metrics.jsonl", "power.csv"
FACTS = "facts.json"  # what the first rank leaves for whoever seals the run; gone when it is sealed

# Exit codes of every launcher, and so of the rules that call them.
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_UNSUPPORTED = 0, 1, 2, 3

_MANIFEST_LINE = re.compile(
    r"([0-9a-f]{64})  ([A-Za-z0-9.][A-Za-z0-9._=/-]*)"
)  # `step=19/weights/.metadata` is a name that NeMo gives
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RunError(RuntimeError):
    """A run cannot start or go on; the message is one line that says what to do."""


def run_pattern(root: str = "runs") -> str:
    """The path pattern of run folders, for Snakemake and readers alike."""
    return f"{root}/{{stack}}/{{experiment}}/{{run_id}}"


def checked_name(kind: str, name: str) -> str:
    """`name` if it can be part of a path and of a command line as it stands; RunError otherwise."""
    if not _NAME.fullmatch(name):
        raise RunError(f"{kind} {name!r}: only letters, digits, '.', '_' and '-' are allowed")
    return name


def new_session_id() -> str:
    """A name for one launch: UTC time and four random hex digits, so that two hosts never collide."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def utc_now() -> str:
    """The time as ISO 8601 with microseconds, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, text: str) -> None:
    """Write aside, flush to disk, then rename: `path` is either the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def to_json(value: Any) -> str:
    """JSON text as this project writes it; NaN and infinity are refused rather than written as invalid JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def git_state(checkout: Path) -> dict[str, Any]:
    """Commit and whether tracked files differ from it; both null without git or outside a checkout.

    A host that gets the files without the repository is told in FEWBITS_COMMIT: `<commit>`, or `<commit>+dirty`.
    """
    try:
        commit, changes = (
            subprocess.run(
                ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True, timeout=30
            ).stdout.strip()
            for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        told = os.environ.get("FEWBITS_COMMIT")
        return (
            {"commit": told.removesuffix("+dirty"), "dirty": "+" in told} if told else {"commit": None, "dirty": None}
        )
    return {"commit": commit, "dirty": bool(changes)}


class RunFolder:
    """One run being written. Use as a context manager: leaving it seals the folder, whatever the outcome was.

    An exception inside is recorded as outcome `failed` with its message, sealed, and raised again; only a killed
    process leaves a folder without a manifest. Attributes `path` (the folder) and `record` (run.json's content).
    """

    def __init__(self, root: Path, stack: str, experiment: str, run_id: str, record: dict[str, Any]) -> None:
        for kind, name in (("stack", stack), ("experiment", experiment), ("run id", run_id)):
            checked_name(kind, name)
        self.path = Path(run_pattern(str(root)).format(stack=stack, experiment=experiment, run_id=run_id))
        try:
            self.path.mkdir(parents=True)
        except FileExistsError as error:
            raise RunError(f"{self.path}: exists already; a run never writes into another's folder") from error
        self.record: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "stack": stack,
            "experiment": experiment,
            "run_id": run_id,
            "kind": "measured",
            "host": {"python": platform.python_version(), "machine": platform.machine(), "system": platform.platform()},
            "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
            "start": utc_now(),
            "end": None,
            "outcome": {"status": "running", "reason": None, "exit_code": None},
            **record,
        }
        self._metrics = (self.path / METRICS).open("w", encoding="utf-8", newline="\n")
        self._log = (self.path / LOG).open("w", encoding="utf-8", newline="\n")
        self._write_record()

    def _write_record(self) -> None:
        write_atomically(self.path / RUN_JSON, to_json(self.record))

    def log(self, line: str) -> None:
        """Append a line to log.txt."""
        self._log.write(line + "\n")
        self._log.flush()

    def log_file_descriptor(self) -> int:
        """File descriptor of log.txt, so that a framework's own output can be sent there."""
        return self._log.fileno()

    def metric(self, **values: Any) -> None:
        """Append one object to metrics.jsonl. NaN and infinity are kept, as the strings 'NaN', 'Infinity'."""
        self._metrics.write(json.dumps({key: plain(value) for key, value in values.items()}, allow_nan=False) + "\n")

    def finish(self, status: str, reason: str | None = None, exit_code: int = EXIT_OK) -> None:
        """State the outcome: `completed`, `failed` or `unsupported`, with a reason for the last two."""
        self.record["outcome"] = {"status": status, "reason": reason, "exit_code": exit_code}

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            first_line = (str(error).splitlines() or [""])[0][:500]
            self.finish("failed", f"{type(error).__name__}: {first_line}", EXIT_FAILED)
            self.log(f"failed: {type(error).__name__}: {error}")
        self.record["end"] = utc_now()
        self._metrics.close()
        self._log.close()
        self._write_record()
        write_atomically(self.path / MANIFEST, manifest_text(self.path))


def plain(value: Any) -> Any:
    """A value as metrics.jsonl holds it: NaN and infinity, which JSON cannot say, as text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def manifest_text(folder: Path) -> str:
    """`sha256sum`-style lines for every file of a run folder except the manifest, sorted by name."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return "".join(f"{sha256_of(folder / name)}  {name}\n" for name in names if name != MANIFEST)


def manifest_faults(folder: Path, required: tuple[str, ...] = (RUN_JSON, LOG, METRICS)) -> list[tuple[str, str]]:
    """Everything in which a folder is not what its manifest recorded, as (code, message); empty when intact.

    `required` names must be listed: those of a run folder, unless another kind of folder is asked about. Codes:
    manifest_missing, manifest_unreadable, file_missing, file_changed, file_not_in_manifest.
    """
    try:
        lines = (folder / MANIFEST).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return [("manifest_missing", f"no {MANIFEST}: the run did not end")]
    except (OSError, ValueError) as error:
        return [("manifest_unreadable", f"{MANIFEST} cannot be read: {type(error).__name__}")]
    faults: list[tuple[str, str]] = []
    listed: set[str] = set()
    for number, line in enumerate(lines, 1):
        match = _MANIFEST_LINE.fullmatch(line)
        if not match or ".." in match[2].split("/"):
            faults.append(("manifest_unreadable", f"{MANIFEST} line {number}: not a hash and a name"))
            continue
        digest, name = match.groups()
        listed.add(name)
        if not (folder / name).is_file():
            faults.append(("file_missing", f"{name} is in {MANIFEST} but not in the folder"))
        elif sha256_of(folder / name) != digest:
            faults.append(("file_changed", f"{name} is not what was recorded: its hash differs from {MANIFEST}"))
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    for name in sorted(present - listed - {MANIFEST}):
        faults.append(("file_not_in_manifest", f"{name} is in the folder but not in {MANIFEST}"))
    for name in required:
        if name not in listed:
            faults.append(("manifest_unreadable", f"{MANIFEST} does not list {name}"))
    return faults


def is_complete(folder: Path) -> bool:
    """Whether a run folder was sealed."""
    return (folder / MANIFEST).is_file()


def find_runs(root: Path, experiments: str = "*") -> list[Path]:
    """Run folders under `root` whose experiment fits a shell-style pattern, sorted; sealed or not.

    A folder counts once it has run.json or a manifest: one that has lost run.json is a faulty run, not no run.
    """
    pattern = run_pattern(".").format(stack="*", experiment=experiments, run_id="*")
    return sorted({path.parent for name in (RUN_JSON, MANIFEST) for path in root.glob(f"{pattern}/{name}")})
