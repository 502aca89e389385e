"""Models, GPUs and precisions: counted, sourced, and unforgiving of what they do not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipes.catalog import (
    CatalogError,
    find_gpu,
    flops_per_token,
    load_hardware,
    load_models,
    load_precisions,
    lookup,
    parameters,
)
from recipes.catalog.hardware import HardwareFile, mfu
from recipes.catalog.models import ModelFile
from recipes.catalog.reading import read_yaml

# Counted by hand from the dimensions in the model cards: layers x (QKV + output + FC1 + FC2) + two tables + norms.
BY_HAND = {
    "llama3_8b": 32 * (4096 * 6144 + 4096**2 + 3 * 4096 * 14336 + 2 * 4096) + 2 * 128256 * 4096 + 4096,
    "nemotron4_15b": 32 * (6144 * 8192 + 6144**2 + 2 * 6144 * 24576 + 4 * 6144) + 2 * 256000 * 6144 + 2 * 6144,
}
# GFLOP per token that publications print (8192 tokens): full attention, causal attention.
PUBLISHED_GFLOP = {"llama3_8b": (57.9, 51.5), "llama3_70b": (481, 449), "llama31_405b": (2625, 2524)}


@pytest.mark.parametrize("key", BY_HAND)
def test_parameters_by_hand(key: str) -> None:
    assert parameters(load_models()[key]) == BY_HAND[key]


@pytest.mark.parametrize("key", [k for k, m in load_models().items() if m.nominal_parameters])
def test_parameters_within_one_percent_of_nominal(key: str) -> None:
    model = load_models()[key]
    assert model.nominal_parameters
    assert parameters(model) == pytest.approx(model.nominal_parameters, rel=0.01)


@pytest.mark.parametrize("key", PUBLISHED_GFLOP)
def test_flops_match_publications(key: str) -> None:
    full, causal = (flops_per_token(load_models()[key], attention=a) / 1e9 for a in ("full", "causal"))
    assert (full, causal) == pytest.approx(PUBLISHED_GFLOP[key], rel=0.001)


def test_flops_by_hand() -> None:
    """A model small enough to count on paper: 2 layers, hidden 64, sequence 128."""
    model = load_models()["llama_tiny"]
    matrices = 2 * (64 * 128 + 64 * 64 + 64 * 256 + 128 * 64)
    assert flops_per_token(model, attention="full") == 6 * (matrices + 512 * 64) + 2 * 12 * 64 * 128
    assert flops_per_token(model, attention="causal") == 6 * (matrices + 512 * 64) + 2 * 6 * 64 * 128


@pytest.mark.parametrize(
    ("driver_name", "key"),
    [
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B300", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA B2000", None),
        ("nvidia h200", None),
        ("", None),
    ],
)
def test_gpu_by_exact_name(driver_name: str, key: str | None) -> None:
    assert find_gpu(driver_name) == key


def test_mfu() -> None:
    assert mfu("NVIDIA H200", "bf16", 494.5) == pytest.approx(0.5)
    assert mfu("NVIDIA H2000", "bf16", 1) is None
    assert mfu("NVIDIA H200", "fp4", 1) is None
    with pytest.raises(CatalogError, match="above the dense bf16 peak"):
        mfu("NVIDIA H200", "bf16", 1200)


def test_every_value_has_a_source_and_disputes_are_marked() -> None:
    gpus = load_hardware()
    assert set(gpus) == {"a100_sxm", "h100_sxm", "h200_sxm", "b200", "gb200", "b300", "gb300"}
    assert {claim.value for claim in gpus["gb200"].dense_tflops["bf16"].disputed} == {2500, 2250}
    assert all(precision.source for precision in load_precisions().values())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("hidden: 4096", "hiden: 4096", ["models.llama3_8b.hiden: unknown key", "allowed:", "hidden"]),
        ("hidden: 4096", "hidden: wide", ["models.llama3_8b.hidden", "valid integer"]),
        ("heads: 32", "heads: 31", ["models.llama3_8b", "not a multiple of heads"]),
        ("norm: rmsnorm", "norm: batchnorm", ["models.llama3_8b.norm", "'rmsnorm' or 'layernorm'"]),
        ("hidden: 4096", "hidden: 4096\n    hidden: 8192", ["given twice"]),
        ("models:", "models: !!python/object/apply:os.system ['true']\nx:", ["not valid YAML"]),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, old: str, new: str, says: list[str]) -> None:
    text = Path("recipes/catalog/models.yaml").read_text()
    assert old in text
    path = tmp_path / "models.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(CatalogError) as caught:
        read_yaml(path, ModelFile)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for part in says:
        assert part in message


def test_an_unlisted_source_is_refused(tmp_path: Path) -> None:
    text = Path("recipes/catalog/hardware.yaml").read_text().replace("source: dgxc}", "source: hearsay}", 1)
    (tmp_path / "hardware.yaml").write_text(text)
    with pytest.raises(CatalogError, match="hearsay"):
        read_yaml(tmp_path / "hardware.yaml", HardwareFile)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        read_yaml(tmp_path / "none.yaml", ModelFile)


def test_lookup_helps() -> None:
    assert lookup("model", "Llama3-8B", load_models()).name == "Llama 3 8B"
    with pytest.raises(CatalogError, match=r"did you mean llama3_8b\?.*allowed:.*nemotron4_340b"):
        lookup("model", "llama3_9b", load_models())
