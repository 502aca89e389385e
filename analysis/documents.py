"""Numbers in documents: blocks of README.md and docs are filled from exhibits, so that nobody types a number.

    python -m analysis.documents            # fill the blocks
    python -m analysis.documents --check    # exit 1 when a block is stale
    python -m analysis.documents --summary  # the claims and where to look, for the end of reproduce_all

A block is everything between `<!-- exhibit: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from analysis.exhibits.trained import bar_name
from recipes.catalog import load_models, load_precisions
from recipes.runs import write_atomically

EXHIBITS = Path("results/exhibits")
DOCUMENTS = (Path("README.md"), Path("docs/maxtext.md"))
_BLOCK = re.compile(r"(<!-- exhibit: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _read(name: str) -> pl.DataFrame:
    return pl.read_csv(EXHIBITS / f"{name}.csv", infer_schema_length=None)


def _caption(name: str) -> str:
    return str(json.loads((EXHIBITS / f"{name}.json").read_text(encoding="utf-8"))["caption"])


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _speed(row: dict[str, Any]) -> str:
    return f"{row['speedup']:.2f}x [{row['speedup_low']:.2f}, {row['speedup_high']:.2f}]"


def _or_reason(
    row: dict[str, Any] | None, column: str, say: Callable[[dict[str, Any]], str], reason: str | None
) -> str:
    return say(row) if row and row[column] is not None else f"none: {reason or 'not run here'}"


def layer_speedup() -> str:
    """The measured layer speedups, one row a model, with the published end-to-end figure beside them."""
    frame = _read("layer_speedup")
    shown = ["fp8_delayed", "fp8_current", "fp8_block"]
    rows = []
    layers = frame.filter(pl.col("scope") == "layer")
    reasons = {(row["model"], row["precision"]): row["reason"] for row in layers.iter_rows(named=True)}
    places = layers.select("hardware", "model").unique(maintain_order=True)
    places = places.filter(pl.col("hardware").is_not_null() | pl.col("hardware").is_null().all().over("model"))
    for hardware, model in places.iter_rows():
        own = layers.filter(pl.col("model") == model, pl.col("hardware").eq_missing(hardware))
        cells = {row["precision"]: row for row in own.iter_rows(named=True)}
        published = frame.filter(
            pl.col("model") == model, pl.col("label") == "published", pl.col("precision") == "fp8_current"
        )["speedup"]
        rows.append(
            [
                load_models()[model].name,
                hardware or "none",
                _or_reason(
                    cells.get("bf16"),
                    "layer_time_ms",
                    lambda row: f"{row['layer_time_ms']:.1f} ms",
                    reasons[model, "bf16"],
                ),
                *(_or_reason(cells.get(p), "speedup", _speed, reasons[model, p]) for p in shown),
                f"{published[0]:.2f}x" if len(published) else "not found",
            ]
        )
    names = [f"{load_precisions()[p].name} (measured)" for p in shown]
    header = ["width of", "on", "BF16, a layer (measured)", *names, "current scaling, end to end (published, H100)"]
    return f"{_markdown(header, rows)}\n{_caption('layer_speedup')}\n"


def claims() -> str:
    """The ledger, one row a claim."""
    rows = [[row["sentence"], f"**{row['verdict']}**", row["finding"]] for row in _read("claims").iter_rows(named=True)]
    return _markdown(["claim (in our words)", "verdict", "found"], rows)


def mlperf_precision() -> str:
    """NVFP4 entries that have an FP8 entry to be set against."""
    frame = _read("mlperf_precision").filter(pl.col("rate_over_fp8").is_not_null())
    rows = [
        [
            f"{row['benchmark']}, {row['gpus']} x {row['hardware']}, batch {row['global_batch_samples']}",
            f"{row['submitter']} {row['round']}",
            row["compared_with"],
            *(f"{row[name]:.2f}x" for name in ("rate_over_fp8", "samples_over_fp8", "time_over_fp8")),
        ]
        for row in frame.iter_rows(named=True)
    ]
    header = [
        "benchmark",
        "NVFP4 by",
        "FP8 entry",
        "tokens/s (published)",
        "samples to the target",
        "faster to the target",
    ]
    return f"{_markdown(header, rows)}\n{_caption('mlperf_precision')}\n"


def fp8_speedup() -> str:
    """Measured speedups of whole steps, one row an experiment, with what is published for the model beside them."""
    frame = _read("fp8_speedup")
    models, precisions = load_models(), load_precisions()
    stated = frame.filter(pl.col("label") == "published")
    rows = []
    for row in frame.filter(pl.col("label") == "measured").iter_rows(named=True):
        same = stated.filter(pl.col("model") == row["model"], pl.col("precision") == row["precision"])
        rows.append(
            [
                models[row["model"]].name,
                precisions[row["precision"]].name,
                row["variant"],
                f"{row['base_step_time_s']:.3f} s, {row['step_time_s']:.3f} s" if row["speedup"] else row["reason"],
                _speed(row) if row["speedup"] else "none",
                ", ".join(f"{one['speedup']:.2f}x ({one['hardware']})" for one in same.iter_rows(named=True)) or "-",
            ]
        )
    header = ["model", "precision", "what ran on one H200", "step, BF16 and FP8", "measured", "published (whole model)"]
    return f"{_markdown(header, rows)}\n{_caption('fp8_speedup')}\n"


def step_breakdown() -> str:
    """Seconds of a step by part, one row an experiment."""
    frame = _read("step_breakdown")
    parts = frame["part"].unique(maintain_order=True).to_list()
    rows = []
    for own in frame.partition_by("experiment", maintain_order=True):
        times = dict(zip(own["part"], own["time_s"], strict=True))
        name = bar_name(*own.row(0)[:3])
        rows.append([name, *(f"{times[part]:.2f}" for part in parts), f"{sum(times.values()):.2f}"])
    return f"{_markdown(['seconds a step', *parts, 'in all'], rows)}\n{_caption('step_breakdown')}\n"


def nvfp4_speedup() -> str:
    """Published NVFP4 over FP8, one row a model, GPU and framework (its newest release in the table)."""
    frame = _read("nvfp4_speedup").filter(pl.col("speedup").is_not_null()).sort("source_id", maintain_order=True)
    newest: dict[tuple[str, str, str], pl.DataFrame] = {}
    for own in frame.partition_by("model", "hardware", "source_id", maintain_order=True):
        first = own.row(0, named=True)
        newest[first["model"], first["hardware"], first["framework"].split()[0]] = own
    rows = []
    for own in sorted(
        newest.values(), key=lambda own: (list(load_models()).index(own["model"][0]), own["hardware"][0])
    ):
        first = own.row(0, named=True)
        ratios = [f"{one['speedup']:.2f}x ({load_precisions()[one['baseline']].name})" for one in own.to_dicts()]
        place = f"{load_models()[first['model']].name}, {first['gpus']} {first['hardware']}"
        rows.append([place, first["source_id"], ", ".join(ratios), f"{first['speedup_over_best_fp8']:.2f}x"])
    header = ["model, GPUs", "source", "over its own FP8 (published)", "over the fastest FP8 published for that GPU"]
    return f"{_markdown(header, rows)}\n{_caption('nvfp4_speedup')}\n"


def maxtext_numerics() -> str:
    """What each MaxText run's step was made of, and its loss over the baseline's."""
    frame = _read("maxtext_numerics").filter(pl.col("label").is_not_null())
    kinds = [name.removeprefix("lines_") for name in frame.columns if name.startswith("lines_")]
    rows = []
    for row in frame.iter_rows(named=True):
        lines = {kind: row[f"lines_{kind}"] for kind in kinds}
        over = "-" if row["over_baseline"] is None else f"{row['over_baseline']:+.4f}"
        rows.append(
            [
                row["experiment"],
                row["label"],
                load_precisions()[row["proved"]].name,
                ", ".join(f"{kind.upper()} {count}" for kind, count in lines.items() if count) or "none",
                str(row["hadamard_transforms"]),
                str(row["steps"]),
                f"{row['loss_first']:.4f}, {row['loss_last']:.4f}",
                over,
            ]
        )
    header = ["experiment", "label", "the step is", "lines with narrow types", "Hadamard transforms", "steps"]
    header += ["loss: first, mean of the last ten", "over te_no_quant"]
    return f"{_markdown(header, rows)}\n{_caption('maxtext_numerics')}\n"


BLOCKS: dict[str, Callable[[], str]] = {
    "fp8_speedup": fp8_speedup,
    "step_breakdown": step_breakdown,
    "layer_speedup": layer_speedup,
    "claims": claims,
    "mlperf_precision": mlperf_precision,
    "nvfp4_speedup": nvfp4_speedup,
    "maxtext_numerics": maxtext_numerics,
}


def filled(text: str) -> str:
    """A document's text with every block filled anew. Raises KeyError for a block of an unknown exhibit."""
    return _BLOCK.sub(lambda match: match[1] + BLOCKS[match[2]]() + match[3], text)


def summary() -> None:
    """Print the claims' verdicts and where everything lies."""
    table = Table("verdict", "claim", title="What the sources claim, and what was found")
    for row in _read("claims").iter_rows(named=True):
        table.add_row(row["verdict"], row["sentence"])
    console = Console()
    console.print(table)
    excluded = _read("excluded_runs").height
    console.print(
        f"tables and figures: {EXHIBITS}/*.csv, *.svg; runs in no table, with reasons: {excluded}", highlight=False
    )


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.documents", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--summary", action="store_true")
    args = parser.parse_args()
    if args.summary:
        summary()
        return 0
    stale = False
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        new = filled(text)
        if new != text and args.check:
            stale = True
            print(f"{path} is stale; run `python -m analysis.documents`", file=sys.stderr)
        elif new != text:
            write_atomically(path, new)
            print(path)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
