"""All formats, and which of them a log is."""

from __future__ import annotations

from analysis.logs.format import Format, said
from analysis.logs.json_lines import DLLOGGER, METRICS
from analysis.logs.maxtext import MAXTEXT
from analysis.logs.megatron import MEGATRON
from analysis.logs.mlperf import MLPERF
from analysis.logs.nemo import NEMO
from analysis.logs.torchtitan import TORCHTITAN

# In the order in which they are tried: MLPerf's lines stand inside other frameworks' output.
FORMATS: dict[str, Format] = {
    known.name: known for known in (MLPERF, NEMO, DLLOGGER, MEGATRON, MAXTEXT, TORCHTITAN, METRICS)
}


def detect(text: bytes) -> Format | None:
    """The format of which `text` has a line that only it prints, or None."""
    return next((known for known in FORMATS.values() if known.sure.search(text)), None)


def first_unmatched(text: bytes) -> tuple[int, str]:
    """Number (from 1) and text of the first line that is not blank, for saying why no format fits."""
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            return number, said(line)
    return 0, ""
