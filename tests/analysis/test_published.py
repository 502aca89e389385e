"""Published facts: a source on every row, and a wrong row is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.published import read_published
from recipes.catalog import CatalogError

PUBLISHED = Path("results/published/published.csv")


def test_every_row_has_a_source_and_a_number() -> None:
    rows = read_published(PUBLISHED)
    assert len(rows) > 30
    assert all(row.source_url_or_repo_path and row.value > 0 for row in rows)
    assert all(row.notes.startswith("derived") for row in rows if row.verbatim == "no")


def test_rows_are_those_of_the_collection(shared: Path) -> None:
    """Carried over unchanged from the collection they were taken from."""
    collection = {
        row.split(",", 1)[0]: row for row in (shared / "published" / "published.csv").read_text().splitlines()
    }
    for line in PUBLISHED.read_text().splitlines():
        assert collection[line.split(",", 1)[0]] == line


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (",1.30,x,yes", ",fast,x,yes", r"line 2: value"),
        (",1.30,x,yes", ",-1,x,yes", r"line 2: value"),
        (",1.30,x,yes", ",nan,x,yes", r"line 2: value"),
        (",1.30,x,yes", ",1.30,x,perhaps", r"line 2: verbatim"),
        ("P0002,", "P0001,", r"line 3: id P0001 is used twice"),
        ("P0002,", "nonsense,", r"line 3: id"),
        ("source_url_or_repo_path", "where", "source_url_or_repo_path"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = PUBLISHED.read_text()
    assert old in text
    path = tmp_path / "published.csv"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CatalogError, match=says):
        read_published(path)
