"""NVIDIA's recipe pairs: five of fifteen differ in more than the precision, and each difference is named."""

from __future__ import annotations

from pathlib import Path

from analysis.exhibits.recipe_pairs import build, read_pairs

TABLE = Path("recipes/nemo/recommended.csv")


def test_five_of_fifteen_pairs_differ() -> None:
    found = build(Path("results/raw"), Path("results/published/published.csv")).table
    assert found.height == 15
    unequal = found.filter(~found["like_for_like"])
    assert set(zip(unequal["model"], unequal["hardware"], strict=True)) == {
        ("llama3_8b", "GB200"),
        ("llama3_70b", "H100"),
        ("llama3_70b", "GB200"),
        ("llama31_405b", "GB200"),
        ("nemotron4_340b", "GB200"),
    }
    (row,) = unequal.filter((unequal["model"] == "llama3_70b") & (unequal["hardware"] == "H100")).to_dicts()
    assert row["differences"] == "pipeline_parallel: 4 vs 8; context_parallel: 2 vs 1"


def test_layouts_add_up() -> None:
    """Data-parallel size and gradient accumulation follow from the rest (nemo.collections.llm's own arithmetic)."""
    for pair in read_pairs(TABLE):
        for row in pair:
            number = {name: int(value) for name, value in row.items() if value.isdigit()}
            model_parallel = number["tensor_parallel"] * number["pipeline_parallel"] * number["context_parallel"]
            assert number["data_parallel"] * model_parallel == number["gpus"]
            samples = number["micro_batch_samples"] * number["data_parallel"] * number["gradient_accumulation"]
            assert samples == number["global_batch_samples"]
