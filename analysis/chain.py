"""The chain of evidence: from a number in an exhibit to its runs, their files and hashes, the lock and the commit.

Upwards, `explain` walks it for one cell; downwards, `pointer_faults` holds every published file to the DVC pointer that
git keeps, through DVC's list of the folder (`<md5>.dir`): a file and its manifest changed together are found too.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.judge import judge
from analysis.logs import read_run
from analysis.published import PublishedRow, read_published
from recipes.catalog import CatalogError, lookup
from recipes.runs import MANIFEST, find_runs, sha256_of
from results.pointers import pointed, pointer_of

if TYPE_CHECKING:  # polars is imported where a table is read: it would be a fifth of every command's start
    import polars as pl

RAW = Path("results/raw")
_RUN = re.compile(r"[\w.-]+/[\w.-]+/[\w.-]+")  # stack, experiment, run id
EXHIBITS = Path("results/exhibits")
PUBLISHED = Path("results/published/published.csv")
LONGEST_LISTED = 60  # characters of a cell in a list of rows
STORES = (Path("results/reference/files/md5"), Path(".dvc/cache/files/md5"))


@dataclass(frozen=True)
class Link:
    """One source of a number: a line of text, and lines below it."""

    head: str
    lines: tuple[str, ...] = ()


def read_exhibit(name: str, folder: Path = EXHIBITS) -> pl.DataFrame:
    """An exhibit's table. Raises CatalogError with the names there are."""
    import polars as pl

    known = {path.stem: path for path in sorted(folder.glob("*.csv"))}
    return pl.read_csv(lookup("exhibit", name, known), infer_schema_length=None)


def telling_columns(frame: pl.DataFrame) -> list[str]:
    """Columns that tell an exhibit's rows apart in a list: short texts that vary, label and speedup."""
    import polars as pl

    short = []
    for name, kind in frame.schema.items():
        longest = frame[name].str.len_chars().max() if kind == pl.String else None
        if isinstance(longest, int) and longest <= LONGEST_LISTED and frame[name].n_unique() > 1:
            short.append(name)
    also = [name for name in ("sequence", "log_steps", "label", "speedup") if name in frame.columns]
    return list(dict.fromkeys([*short, *also])) or frame.columns[:4]


def choose_row(frame: pl.DataFrame, row: str) -> dict[str, Any]:
    """A row by its number (from 1) or by `column=value,column=value`.

    Raises CatalogError when that is no row, or more than one (with the numbers of those that fit).
    """
    import polars as pl

    numbered = frame.with_row_index("row", offset=1)
    if row.isdigit():
        chosen = numbered.filter(pl.col("row") == int(row))
    else:
        chosen = numbered
        for part in row.split(","):
            column, _, value = part.partition("=")
            if column not in frame.columns:
                raise CatalogError(f"{part!r}: no column {column!r}; columns: {', '.join(frame.columns)}")
            chosen = chosen.filter(pl.col(column).cast(pl.String) == value)
    if chosen.height != 1:
        fitting = ", ".join(map(str, chosen["row"].to_list()[:12]))
        what = f"{chosen.height} rows fit ({fitting})" if chosen.height else f"no row fits, of {frame.height}"
        raise CatalogError(f"{row!r}: {what}; give a row number or more of `column=value,...`")
    return chosen.row(0, named=True)


def sources(row: dict[str, Any], raw: Path = RAW, published: Path = PUBLISHED) -> list[Link]:
    """Where a row's numbers come from: run by run with hashes, or the publication."""
    said = str(row.get("source") or "")
    if not said:
        return [Link(f"no number here: {row.get('reason') or 'the table names no source'}")]
    facts = {fact.id: fact for fact in read_published(published)}
    if said.split()[0] in facts:
        return [_published_link(facts[word]) for word in said.split() if word in facts]
    if Path(said).is_file() or not all(_RUN.fullmatch(name) for name in said.split()):
        return [_outside_link(said, row)]
    return [_run_link(raw / name) for name in said.split()]


def _published_link(fact: PublishedRow) -> Link:
    how = "read verbatim" if fact.verbatim == "yes" else "derived"
    head = f"published: {fact.id} {fact.recipe} {fact.value:g} {fact.unit}, {how}"
    return Link(head, (fact.source_url_or_repo_path, fact.notes))


def _outside_link(said: str, row: dict[str, Any]) -> Link:
    """A source that is no run: a file of this repository, or another repository's file."""
    lines = [str(row[name]) for name in ("evidence", "detail") if row.get(name)]
    if Path(said).is_file():
        lines.append(f"sha256 {sha256_of(Path(said))}")
    elif row.get("sha256"):
        lines.append(f"sha256 {row['sha256']}; `snakemake mlperf_logs` fetches the log and derives the number again")
    return Link(f"{row.get('label') or 'no number'}: {said}", tuple(lines))


def _run_link(folder: Path) -> Link:
    run = read_run(folder)
    judged = judge(run)
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return Link(f"{run.name}: {judged.verdict}; its files are not here (`dvc pull` fetches them)")
    commit = str(run.get("git", "commit"))[:12] + (" (dirty)" if run.get("git", "dirty") else "")
    locks = run.get("environment", "lock_sha256")
    image = run.get("environment", "image")
    hashes = {
        "manifest sha256": str(sha256_of(manifest))[:12],
        # a stack of several locks, or a container
        "lock sha256": " + ".join(str(lock)[:12] for lock in (locks if isinstance(locks, list) else [locks])),
        "image": str(image or ""),
        "pointer md5": str(pointed(pointer_of(folder.parent)).get("md5"))[:12],
    }
    shown = ", ".join(f"{name} {value}" for name, value in hashes.items() if value)
    what = f"{run.get('hardware', 'gpu_name')}, modules hold {run.get('effective_precision')}"
    return Link(f"{run.name}: {judged.verdict}; {what}", (f"{shown}, commit {commit}",))


def pointer_faults(raw: Path = RAW, stores: tuple[Path, ...] = STORES) -> list[str]:
    """Everything in which published folders are not what their pointers say; one line each."""
    faults = []
    for pointer in sorted(raw.rglob("*.dvc")):
        experiment = pointer.with_suffix("")
        md5 = pointed(pointer).get("md5")
        listing = _listing(md5, stores)
        if listing is None:
            faults.append(f"{pointer}: the list of its files ({md5}) is in no store, or is not what the pointer says")
            continue
        here = {path.relative_to(experiment).as_posix() for path in experiment.rglob("*") if path.is_file()}
        for name in sorted(here - listing.keys()):
            faults.append(f"{experiment}/{name}: not published")
        for name, expected in sorted(listing.items()):
            if name not in here:
                faults.append(f"{experiment}/{name}: published, but not here")
            elif _md5(experiment / name) != expected:
                faults.append(f"{experiment}/{name}: not what was published")
    unpublished = {folder.parent for folder in find_runs(raw) if not pointer_of(folder.parent).is_file()}
    return faults + [f"{experiment}: no pointer: never published" for experiment in sorted(unpublished)]


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _listing(md5: str | None, stores: tuple[Path, ...]) -> dict[str, str] | None:
    """DVC's list of a folder (relative path -> md5), from the first store that has it unharmed."""
    for store in stores:
        path = store / str(md5)[:2] / str(md5)[2:]
        if md5 and path.is_file() and f"{_md5(path)}.dir" == md5:
            return {entry["relpath"]: entry["md5"] for entry in json.loads(path.read_text(encoding="utf-8"))}
    return None
