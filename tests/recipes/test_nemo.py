"""NeMo's experiments: NVIDIA's layouts, matched pairs, what is cut; the launcher's and the cluster's refusals."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import recipes.launching
import recipes.slurm
from fewbits import app
from recipes.catalog import CatalogError, load_models
from recipes.checkpoints import place_of
from recipes.launching import take_failed_ranks
from recipes.nemo.experiments import MAIN_RELEASE, Layout, all_experiments, experiment, recommended
from recipes.nemo.launch import check_host, command, main, tidy
from recipes.nemo.submit import check
from recipes.nemo.submit import main as submit
from recipes.nemo.weight_cast import cast_weights_rowwise
from recipes.ranks import why
from recipes.runs import MANIFEST, RunError, manifest_faults, sha256_of
from tests.conftest import CHECKOUT

GOLDEN = CHECKOUT / "tests/recipes/nemo_golden"
PYTHON = CHECKOUT / "build/envs/nemo/bin/python"


def host(**changes: Any) -> dict[str, Any]:
    """A probed host with NeMo 25.04 and one GPU of 80 GB."""
    versions = {"nemo-toolkit": "2.3.0", "megatron-core": "0.12.0", "transformer_engine": "2.20.2"}
    return {"gpus": 1, "memory_free_bytes": 80 << 30, "versions": versions, **changes}


def test_every_model_gpu_and_precision_has_an_experiment() -> None:
    names = set(all_experiments())
    for model in ("llama3_8b", "llama3_70b", "llama31_405b", "nemotron4_15b", "nemotron4_340b"):
        for gpu in ("h100", "b200", "gb200"):
            for precision in ("bf16", "fp8_delayed", "fp8_current", "mxfp8"):
                assert f"{model}-{gpu}-{precision}" in names
        assert f"{model}-h100-fp8_block-25.07" in names
        assert f"{model}-cpu-bf16" in names
        assert f"{model}-h200-bf16-scaled" in names


def test_scaled_experiments_keep_the_share_of_the_head() -> None:
    scaled = [one for name, one in all_experiments().items() if name.endswith("-bf16-scaled")]
    assert len(scaled) == 5
    for one in scaled:
        full, cut = load_models()[one.model], one.dimensions
        assert cut.vocabulary % 128 == 0
        assert cut.vocabulary / cut.layers == pytest.approx(full.vocabulary / full.layers, rel=0.01)
        assert (cut.hidden, cut.ffn, cut.heads, cut.sequence) == (full.hidden, full.ffn, full.heads, full.sequence)
        assert one.tokens == 65536


def test_weights_are_cast_without_the_transpose_only_in_that_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in for Transformer Engine's module: the class is another only while weights are cast."""
    utils: Any = types.ModuleType("transformer_engine.pytorch.tensor.utils")

    class Float8Quantizer:
        def __init__(self, *, columnwise: bool = True) -> None:
            self.columnwise = columnwise

    def cast(count: int) -> list[bool]:
        return [utils.Float8Quantizer().columnwise for _ in range(count)]

    utils.Float8Quantizer = Float8Quantizer
    monkeypatch.setitem(sys.modules, utils.__name__, utils)
    with pytest.raises(RunError, match="without -rowwise_cast"):
        cast_weights_rowwise()
    utils._cast_master_weights_to_fp8_current_scaling = cast
    (changed,) = cast_weights_rowwise()
    assert changed.endswith("._cast_master_weights_to_fp8_current_scaling")
    assert utils._cast_master_weights_to_fp8_current_scaling(2) == [False, False]
    assert utils.Float8Quantizer is Float8Quantizer


def test_layouts_are_nvidias() -> None:
    assert len(recommended()) == 30
    found = experiment("llama31_405b-gb200-fp8_current")
    assert (found.layout.gpus, found.nodes, found.layout.tensor_parallel, found.layout.fsdp) == (128, 32, 4, True)
    assert found.layout.data_parallel == 32
    assert experiment("llama3_70b-h100-bf16").layout.virtual_pipeline == 5


def test_a_pair_that_is_not_like_for_like_has_a_matched_one_beside_it() -> None:
    experiments = all_experiments()
    for one in experiments.values():
        if one.tier != "cluster" or one.baseline is None:
            continue
        base = experiments[one.baseline]
        if one.matched or one.layout == base.layout:
            assert one.layout == base.layout
        else:
            assert experiments[f"{one.name}-matched"].layout == base.layout
    assert sum(one.matched for one in experiments.values()) == 15


def test_what_is_cut_is_said() -> None:
    full = load_models()
    for one in all_experiments().values():
        mine = one.dimensions.model_dump()
        differing = {key for key, value in full[one.model].model_dump().items() if mine[key] != value}
        assert len(one.cut) == len(differing), one.name
        assert one.tier == "one_host" or bool(one.cut) == (one.tier != "cluster")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama3_9b-h100-bf16", "did you mean llama3_8b"),
        ("llama3_8b-h1000-bf16", "allowed: b200, cpu, gb200, h100, h200"),
        ("llama3_8b-h100-fp4", "allowed: bf16, fp8_block"),
        ("llama3_8b-h100-fp8_block", "llama3_8b-h100-fp8_block-25.07"),
        ("", "allowed: llama31_405b"),
    ],
)
def test_an_unknown_name_is_told_the_allowed_ones(name: str, said: str) -> None:
    with pytest.raises(CatalogError) as error:
        experiment(name)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"gpus": 8, "tensor_parallel": 3}, "not a multiple of tensor"),
        ({"gpus": 8, "global_batch_samples": 12}, "global batch 12"),
        ({"gpus": 0}, "greater than 0"),
    ],
)
def test_layouts_that_do_not_divide_are_refused(layout: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Layout.model_validate(layout)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("llama3_8b-h200-bf16", {"gpus": 2}, "runs on 1 GPUs, 2 are visible"),
        ("llama3_8b-h100-bf16", {}, "recipes.nemo.submit"),
        ("llama3_8b-h200x4-bf16", {"gpus": 2}, "runs on 4 GPUs, 2 are visible"),
        ("llama3_8b-h200x2-bf16-tp2", {}, "choose an experiment of your number"),
        ("llama3_8b-h200x2-bf16", {"gpus": 2}, "weights and optimizer alone need 89.7 GiB"),
        ("llama3_8b-h200-bf16", {"versions": {}}, "nemo-toolkit is not installed"),
        ("llama3_8b-h200-fp8_block-25.07", {}, "nemo-toolkit 2.3.0 found"),
        ("llama3_8b-h200-fp8_current", {"import_error": "no libcudart"}, "no libcudart"),
        ("llama3_70b-h200-bf16-scaled", {"memory_free_bytes": 40 << 30}, "GiB of device memory free"),
        (
            "llama3_8b-h200-fp8_current",
            {"versions": {"nemo-toolkit": "2.3.0", "megatron-core": "0.12.0"}},
            "would train BF16 and say nothing",
        ),
    ],
)
def test_hosts_that_do_not_fit_are_refused(name: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError) as error:
        check_host(experiment(name), host(**changes))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama3_8b-h200-fp8_current", {}),
        # the optimizer is spread over four GPUs: 59.9 GiB on each
        ("llama3_8b-h200x4-fp8_current", {"gpus": 4}),
        ("llama3_8b-h200x2-fp8_current-pp2", {"gpus": 2}),
    ],
)
def test_a_host_that_fits_is_taken(name: str, changes: dict[str, Any]) -> None:
    check_host(experiment(name), host(**changes))


def test_context_parallelism_on_cpu_is_refused() -> None:
    which = experiment("llama3_8b-cpu-bf16")
    split = which.model_copy(update={"layout": Layout(gpus=2, context_parallel=2, global_batch_samples=4)})
    with pytest.raises(RunError, match="context parallelism does not exist on CPU"):
        check_host(split, host(gpus=0))


def test_several_ranks_go_through_torchrun_and_one_does_not() -> None:
    args = argparse.Namespace(checkpoint_every=2, resume=None, profile_step=-1, ranks=None)
    alone = command(experiment("llama3_8b-cpu-bf16"), args)
    assert "torch.distributed.run" not in alone
    assert alone[-2:] == ["--checkpoint-every", "2"]
    both = command(experiment("llama3_8b-cpu-bf16-tp2"), args)
    assert both[both.index("--nproc-per-node") + 1] == "2"
    # Slurm has started a task a rank already
    args.ranks = Path("ranks")
    assert "torch.distributed.run" not in command(experiment("llama3_8b-cpu-bf16-tp2"), args)


def test_the_reason_is_the_last_error_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("x\nValueError: first\ntorch.OutOfMemoryError: CUDA out of memory. Tried 13 GiB\n  at end\n")
    assert why(log) == "torch.OutOfMemoryError: CUDA out of memory. Tried 13 GiB"
    log.write_text("Killed\n")
    assert why(log) == "Killed"
    log.write_text("")
    assert why(log) == "no output"


def test_logs_of_further_ranks_are_kept_and_checkpoints_only_on_request(tmp_path: Path) -> None:
    for name, keep in (("a", False), ("b", True)):
        folder = tmp_path / "runs/nemo/llama3_8b-cpu-bf16" / name
        out = folder / "ranks/none_x/attempt_0/1"
        out.mkdir(parents=True)
        (out / "stdout.log").write_text("said\n")
        (out / "stderr.log").write_text("warned\n")
        saved = folder / "nemo/checkpoints/step=3/weights"
        saved.mkdir(parents=True)
        (saved / "0.distcp").write_bytes(b"0123")
        kept = tidy(folder, keep)
        assert (folder / "rank-1.log").read_text() == "said\nwarned\n"
        assert not (folder / "ranks").exists()
        assert not (folder / "nemo").exists()
        assert (kept is not None) == keep
        if kept:
            place = tmp_path / "runs" / kept["folder"]
            assert place == place_of(folder)
            assert (kept["files"], kept["bytes"]) == (1, 4)
            assert (place / "step=3/weights/0.distcp").read_bytes() == b"0123"
            assert manifest_faults(place, required=()) == []
            assert sha256_of(place / MANIFEST) == kept["manifest_sha256"]


def test_a_wrong_experiment_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llama3_8b-h100-fp8"]) == 2
    assert "allowed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("llama3_8b-h200-bf16", {}, "no cluster experiment"),
        ("llama3_8b-gb200-bf16", {"gpus_per_node": 8}, "nodes of 4 GPUs"),
        ("llama3_8b-h100-bf16", {"image": "./nemo.sqsh"}, "absolute path"),
        ("llama3_8b-h100-bf16", {"image": "an/image:tag"}, "name it by digest"),
        ("llama3_8b-h100-bf16", {"image": "/not/there.sqsh"}, "not there"),
        ("llama3_8b-h100-bf16", {"mount": ["data:/data"]}, "/absolute/source:/target"),
        ("llama3_8b-h100-bf16", {"mount": ["/not/there:/data"], "dry_run": False}, "does not exist"),
        ("llama3_8b-h100-bf16", {"dry_run": False}, "no sbatch here"),
        ("llama3_8b-h100-bf16", {"home": Path("/shared/my folder")}, "without spaces"),
        ("llama3_8b-h100-bf16", {"time_limit": "30"}, "must be HH:MM:SS"),
    ],
)
def test_a_cluster_job_that_cannot_work_is_refused(
    name: str, more: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    args = argparse.Namespace(
        **{
            "image": "image@sha256:00",
            "mount": [],
            "gpus_per_node": None,
            "dry_run": True,
            "home": Path("/h"),
            "time_limit": "",
        }
        | more
    )
    with pytest.raises(RunError) as error:
        check(experiment(name), args)
    assert said in str(error.value)


def test_submit_names_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = ["--account", "a", "--partition", "p", "--home", str(tmp_path), "--dry-run"]
    assert submit(["llama3_8b-h200-bf16", *place]) == 2
    assert "recipes.nemo.launch" in capsys.readouterr().err
    assert submit(["llama3_8b-h100-mxfp8", *place]) == 3
    assert "needs compute capability 10.0" in capsys.readouterr().err


def test_other_ranks_that_failed_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes.launching, "RANKS_WAIT_S", 0.0)
    ranks, folder = tmp_path / "ranks", tmp_path / "run"
    ranks.mkdir()
    folder.mkdir()
    for rank in range(20):
        said = "torch.OutOfMemoryError: CUDA out of memory\n" if rank % 2 else "fine\n"
        (ranks / f"rank-{rank}.log").write_text(said)
    take_failed_ranks(folder, ranks)
    kept = {path.name for path in folder.iterdir()}
    assert len(kept) == recipes.launching.MOST_RANKS
    assert "rank-2.log" not in kept


@pytest.mark.parametrize(
    ("changes", "tasks", "said"),
    [
        ({"gpus": 8, "gpu_name": "NVIDIA H100 80GB HBM3"}, "8", None),
        ({"gpus": 8, "gpu_name": "NVIDIA H100 80GB HBM3"}, "4", "8 ranks, Slurm started 4 tasks"),
        ({"gpus": 8, "gpu_name": "NVIDIA B200"}, "8", "this is NVIDIA B200"),
        # a variant that the catalog does not name
        ({"gpus": 8, "gpu_name": "NVIDIA H100 of some cloud", "compute_capability": [9, 0]}, "8", None),
        ({"gpus": 8, "gpu_name": "NVIDIA of some cloud", "compute_capability": [8, 0]}, "8", "some cloud: its layout"),
        ({"gpus": 4, "gpu_name": "NVIDIA H100 80GB HBM3"}, "8", "4 are visible"),
    ],
)
def test_a_node_of_another_kind_is_refused(
    changes: dict[str, Any], tasks: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", tasks)
    versions = {"nemo-toolkit": "2.3.0rc0", "megatron-core": "0.12.0+c0ffee", "transformer_engine": "2.2.0.dev0"}
    found = host(**changes, versions=versions)
    if said is None:
        check_host(experiment("llama3_8b-h100-bf16"), found, slurm=True)
        return
    with pytest.raises(RunError, match=said):
        check_host(experiment("llama3_8b-h100-bf16"), found, slurm=True)


def test_golden_files_hold_every_experiment_that_resolves() -> None:
    """What the files hold is checked in NeMo's environment (below); that none is missing, everywhere."""
    text = "".join(path.read_text() for path in GOLDEN.glob("*.recipe.txt"))
    jobs = "".join(path.read_text() for path in GOLDEN.glob("*.sbatch.txt"))
    for one in all_experiments().values():
        # MXFP8 on Hopper is refused by the gate; 25.07 resolves in an environment of its own
        resolves = one.release == MAIN_RELEASE and (one.precision, one.hardware) != ("mxfp8", "h100_sxm")
        assert (f"== {one.name}\n" in text) == resolves
        assert (f"== {one.name}\n" in jobs) == (resolves and one.tier == "cluster")


def test_the_list_of_experiments_says_which_the_gate_refuses() -> None:
    listed = json.loads(CliRunner().invoke(app, ["experiments", "llama3_8b-h100-*", "--json"]).output)
    assert {row["name"]: bool(row["refused"]) for row in listed} == {
        "llama3_8b-h100-bf16": False,
        "llama3_8b-h100-bf16-25.07": False,
        "llama3_8b-h100-fp8_block-25.07": False,
        "llama3_8b-h100-fp8_delayed": False,
        "llama3_8b-h100-fp8_current": False,
        "llama3_8b-h100-mxfp8": True,
    }
    assert (
        "8 of 32 layers"
        in CliRunner().invoke(app, ["experiments", "llama3_8b-h200-bf16"], env={"COLUMNS": "160"}).output
    )


@pytest.mark.slow
def test_golden_files_are_what_nemo_resolves() -> None:
    if not PYTHON.exists():
        pytest.skip("envs/nemo is not built here (`snakemake nemo_cpu` builds it)")
    done = subprocess.run(
        [str(PYTHON), "-m", "recipes.nemo.golden", "--check"], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
