"""MaxText without MaxText: configuration, what proves a precision, a launcher that refuses; and with it (slow)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import recipes.maxtext.launch
from analysis.judge import judge
from analysis.logs import read_run
from recipes.catalog import CatalogError
from recipes.maxtext.arguments import arguments
from recipes.maxtext.emulation import emulate
from recipes.maxtext.environment import check_host, rank_environment
from recipes.maxtext.experiments import Experiment, all_experiments, experiment
from recipes.maxtext.launch import parse, run
from recipes.maxtext.proof import fused_attentions, hadamard_products, narrow_types, proved_precision
from recipes.maxtext.standin import StandIn
from recipes.maxtext.tokens import INDEX, STREAM, stream_of, write_tokens
from recipes.maxtext.worker import said
from recipes.runs import EXIT_UNSUPPORTED, RunError, find_runs
from tests.conftest import CHECKOUT

GOLDEN = Path(__file__).with_name("maxtext.golden.jsonl")
PYTHON = CHECKOUT / "build/envs/maxtext/bin/python"
needs_maxtext = pytest.mark.skipif(not PYTHON.exists(), reason="MaxText's environment is not built")


def golden_text() -> str:
    lines = [{"experiment": name, **arguments(one)} for name, one in all_experiments().items()]
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_configurations_change_only_in_sight() -> None:
    """`python -m tests.recipes.test_maxtext` writes the file anew."""
    assert GOLDEN.read_text() == golden_text()


def test_seven_precisions_share_weights_and_batches() -> None:
    tiny = [one for one in all_experiments().values() if one.tier == "cpu" and not one.gpus_per_node]
    assert len(tiny) == 7
    assert len({(one.seed, one.steps, repr(one.dimensions), repr(one.layout), repr(one.settings)) for one in tiny}) == 1
    assert {one.baseline for one in tiny} == {None, "llama3_8b-cpu-te_no_quant"}
    assert all(one.emulated == bool(one.quantization) for one in tiny)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("llama3_9b-cpu-bf16", "did you mean llama3_8b"),
        ("llama3_8b-h100-bf16", "did you mean h200"),
        ("llama3_8b-cpu-te_nvfp4", "nvfp4"),
        ("llama3_8b-cpu", "llama3_8b-cpu-mxfp8"),
    ],
)
def test_an_unknown_name_is_told_the_allowed_ones(name: str, hint: str) -> None:
    with pytest.raises(CatalogError, match=hint):
        experiment(name)


def changed(name: str, **changes: Any) -> Experiment:
    return Experiment.model_validate({**experiment(name).model_dump(), **changes})


def test_what_would_silently_train_bf16_is_refused() -> None:
    with pytest.raises(ValidationError, match="would train BF16 and say nothing"):
        changed("llama3_8b-cpu-nvfp4", settings={"use_qwix_quantization": True})
    with pytest.raises(ValidationError, match="steps: the experiment itself says so"):
        changed("llama3_8b-cpu-nvfp4", settings={"steps": 3})


@pytest.mark.parametrize(
    ("layout", "hint"),
    [
        ({"gpus": 4, "fsdp": 3, "device_batch_samples": 1, "global_batch_samples": 4}, "not a multiple of FSDP 3"),
        ({"gpus": 4, "fsdp": 4, "device_batch_samples": 2, "global_batch_samples": 4}, "is not 4 GPUs x 2"),
    ],
)
def test_layouts_that_do_not_divide_are_refused(layout: dict[str, int], hint: str) -> None:
    with pytest.raises(ValidationError, match=hint):
        changed("llama3_8b-cpu-bf16", layout=layout)


STEP = """module @jit_train_step {
  %0 = stablehlo.dot_general %a, %b : (tensor<64x16xbf16>, tensor<16x16xbf16>) -> tensor<64x16xbf16>
  %1 = stablehlo.convert %0 : (tensor<64x16xf32>) -> tensor<64x16xf4E2M1FN>
  %2 = stablehlo.convert %s : (tensor<64x1xf32>) -> tensor<64x1xf8E4M3FN>
}
"""


def test_types_are_read_from_the_lowered_step() -> None:
    assert narrow_types(STEP) == {"e2m1": 1, "e4m3": 1}
    assert hadamard_products(STEP) == 1
    assert narrow_types("tensor<8x8xbf16> tensor<8x8xf32>") == {}


# Lines of the step that MaxText lowers for an H200 with compiled Transformer Engine, shortened.
NATIVE = """
    %41:2 = stablehlo.custom_call @te_rht_amax_ffi(%27) {mhlo.backend_config = {flatten_axis = 2 : i64}} : (tensor<4x8192x4096xbf16>) -> (tensor<1xf32>, tensor<1xf32>)
    %43:7 = stablehlo.custom_call @te_dbias_quantize_ffi(%27, %40) {mhlo.backend_config = {scaling_mode = 4 : i64, stochastic_rounding = false, use_rht = true}} : (tensor<4x8192x4096xbf16>, tensor<16x16xbf16>) -> (tensor<4x8192x4096xf4E2M1FN>, tensor<4x8192x256xf8E4M3FN>)
    %55:7 = stablehlo.custom_call @te_dbias_quantize_ffi(%29, %47) {mhlo.backend_config = {scaling_mode = 5 : i64, stochastic_rounding = false, use_rht = false}} : (tensor<4096x32x128xbf16>, tensor<1x1xbf16>) -> (tensor<4096x32x128xf4E2M1FN>, tensor<4096x32x8xf8E4M3FN>)
"""  # noqa: E501


def test_compiled_transformer_engines_transforms_are_read_from_its_calls() -> None:
    assert narrow_types(NATIVE) == {"e2m1": 2, "e4m3": 2}
    assert hadamard_products(NATIVE) == 1
    assert hadamard_products(NATIVE.replace("use_rht = true", "use_rht = false")) == 0


def test_fused_attention_is_seen_in_the_step() -> None:
    call = "%167:3 = stablehlo.custom_call @{}(%163, %164, %165) {{api_version = 2 : i32}} : tensor<4x8xbf16>\n"
    assert fused_attentions(call.format("__cudnn$fmhaSoftmax") + call.format("__cudnn$fmhaSoftmaxBackward")) == 2
    assert fused_attentions(call.format("te_fused_attn_forward_ffi")) == 1
    assert fused_attentions(call.format("te_scaled_upper_triang_masked_softmax_forward_ffi")) == 0


def test_an_error_is_told_with_the_one_it_came_of() -> None:
    try:
        try:
            raise AssertionError("sequence_descriptor must be None\nor not")
        except AssertionError:
            raise RuntimeError("generator didn't stop after throw()")  # noqa: B904
    except RuntimeError as error:
        told = said(error)
    assert told == (
        "RuntimeError: generator didn't stop after throw(); it came of AssertionError: sequence_descriptor must be None"
    )
    assert said(ValueError("alone")) == "ValueError: alone"


@pytest.mark.parametrize(
    ("types", "hadamards", "state", "precision"),
    [
        ({}, 0, [], "bf16"),
        ({"e2m1": 9, "e4m3": 9}, 2, [], "nvfp4"),
        ({"e2m1": 9, "e4m3": 9}, 0, [], "nvfp4_no_rht"),
        ({"e4m3": 9, "e8m0": 9}, 0, [], "mxfp8"),
        ({"e4m3": 9, "e5m2": 9}, 0, ["['wi_0']['kernel_amax_history'].value"], "fp8_delayed"),
        ({"e4m3": 9, "e5m2": 9}, 0, ["['wi_0']['kernel'].value"], "fp8_current"),
        ({"e4m3": 9}, 0, [], "mixed: e4m3"),
    ],
)
def test_a_precision_is_what_the_types_amount_to(
    types: dict[str, int], hadamards: int, state: list[str], precision: str
) -> None:
    assert proved_precision(types, hadamards, state) == precision


def test_the_stream_is_the_bytes_of_the_source(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "b").mkdir(parents=True)
    (package / "b/one.py").write_bytes(b"xyz")
    (package / "a.py").write_bytes(b"\x00\xffab")
    (package / "a.pyc").write_bytes(b"not source")
    assert stream_of(package) == b"\x00\xffabxyz"
    told = write_tokens(package, tmp_path / "tokens", 2)
    raw = (tmp_path / "tokens" / STREAM).read_bytes()
    assert [int.from_bytes(raw[at : at + 2], "little") for at in range(0, len(raw), 2)] == list(b"\x00\xffabxyz")
    index = json.loads((tmp_path / "tokens" / INDEX).read_text())
    assert (index["total_instances"], index["total_tokens"]) == (3, 7)
    assert "7 tokens" in told


def test_the_stand_in_computes_nothing() -> None:
    module = StandIn("transformer_engine_jax")
    assert module.JAXX_Scaling_Mode.A == module.JAXX_Scaling_Mode.A != module.JAXX_Scaling_Mode.B
    assert int(module.JAXX_Scaling_Mode.B) == 1
    assert module.registrations() == {}
    with pytest.raises(RuntimeError, match="quantize was called, and only its stand-in is here"):
        module.quantize(1)
    assert not hasattr(module, "__path__")


def test_emulation_without_transformer_engine_says_what_to_install() -> None:
    with pytest.raises(RunError, match="install envs/maxtext"):
        emulate()


def test_another_maxtext_is_refused() -> None:
    with pytest.raises(RunError, match=r"maxtext 0\.2\.4 found, llama3_8b-cpu-bf16 is for 0\.2\.5"):
        check_host(experiment("llama3_8b-cpu-bf16"), {"versions": {"maxtext": "0.2.4"}})
    with pytest.raises(RunError, match="maxtext is not installed"):
        check_host(experiment("llama3_8b-cpu-bf16"), {"versions": {}})


H200 = {
    "gpus": 1,
    "gpu_name": "NVIDIA H200",
    "compute_capability": [9, 0],
    "memory_free_bytes": 140 * 2**30,
    "versions": {
        "maxtext": "0.2.5",
        "transformer_engine": "2.20.2",
        "transformer_engine_cu13": "2.20.2",
        "transformer_engine_jax": "2.20.2",
    },
}


@pytest.mark.parametrize(
    ("name", "changes", "hint"),
    [
        ("llama3_8b-h200-fp8_current", {}, None),
        ("llama3_8b-h200-fp8_current", {"gpus": 2}, "runs on 1 GPUs of a host with FSDP 1, 2 are visible"),
        ("llama3_8b-h200x4-bf16", {"gpus": 2}, "runs on 4 GPUs of a host with FSDP 4, 2 are visible"),
        ("llama3_8b-h200x2-bf16", {"gpus": 2}, None),
        ("llama3_8b-h200x2-bf16", {"gpus": 2, "memory_free_bytes": 2**35}, "32.0 GiB of device memory free"),
        ("llama3_8b-gb200-nvfp4", {"gpus": 4}, "goes to a cluster"),
        ("llama3_8b-h200-fp8_current", {"import_error": "OSError: libnvrtc"}, "does not import: OSError: libnvrtc"),
    ],
)
def test_a_host_is_checked_before_anything_is_written(name: str, changes: dict[str, Any], hint: str | None) -> None:
    if hint is None:
        check_host(experiment(name), {**H200, **changes})
        return
    with pytest.raises(RunError, match=hint):
        check_host(experiment(name), {**H200, **changes})


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"transformer_engine_jax": "2.19.0"}, "different versions: .*transformer_engine_jax 2.19.0"),
        ({"transformer_engine_jax": None}, "needs Transformer Engine's transformer_engine_jax"),
        ({"transformer_engine_cu13": None}, "needs Transformer Engine's transformer_engine_cu13"),
    ],
)
def test_parts_of_transformer_engine_that_do_not_fit_are_named(changes: dict[str, str | None], hint: str) -> None:
    versions = {name: version for name, version in {**H200["versions"], **changes}.items() if version}
    with pytest.raises(RunError, match=hint):
        check_host(experiment("llama3_8b-h200-fp8_current"), {**H200, "versions": versions})
    # native BF16, Flax's FP8 and what is emulated need none of them
    for name in ("bf16", "fp8_flax", "nvfp4-emulated"):
        check_host(experiment(f"llama3_8b-h200-{name}"), {**H200, "versions": versions})


def test_flags_are_the_experiments_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    flags = rank_environment(experiment("llama3_8b-h200-bf16"))["XLA_FLAGS"].split()
    assert "--xla_gpu_enable_triton_gemm=false" in flags
    assert "--xla_gpu_enable_command_buffer=" in flags
    assert not any("autotune" in flag for flag in flags)
    assert rank_environment(experiment("llama3_8b-h200x2-bf16"))["NCCL_NVLS_ENABLE"] == "0"


def test_what_is_not_native_and_does_not_ask_for_emulation_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes.maxtext.launch, "probe_apart", lambda: {"gpus": 0, "versions": {}})
    args = parse(["llama3_8b-cpu-nvfp4", "--runs", str(tmp_path)])
    assert run(changed("llama3_8b-cpu-nvfp4", emulated=False), args) == EXIT_UNSUPPORTED
    (folder,) = find_runs(tmp_path)
    judged = judge(read_run(folder))
    assert judged.verdict == "UNSUPPORTED"
    assert "does not ask for emulation" in judged.reasons[0].message


def in_maxtext(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "JAX_PLATFORMS": "cpu"}
    return subprocess.run([str(PYTHON), *command], cwd=CHECKOUT, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@needs_maxtext
def test_emulation_is_the_reference_codec_bit_for_bit() -> None:
    done = in_maxtext("-m", "tests.recipes.codec_against_te")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["mended"]) == 3
    assert {key: value for key, value in found.items() if key.endswith("otherwise") and value} == {}
    # and each of the three faults shows when it is left in
    assert found["without block_scale_rows"] > 0
    assert found["without e4m3_rounding"] > 0
    assert found["without key_words"].startswith("TypeError")
    assert found["stochastic mean error"] < found["nearest error"] / 3


@pytest.mark.slow
@needs_maxtext
def test_a_step_that_is_not_what_was_asked_for_fails(tmp_path: Path) -> None:
    """NVFP4 asked for, current scaling configured: nothing is trained, the run says why."""
    wrong = changed("llama3_8b-cpu-nvfp4", quantization="te_fp8_currentscaling", steps=2).model_dump_json()
    script = (
        "import sys; from recipes.maxtext import launch; from recipes.maxtext.experiments import Experiment;"
        f"which = Experiment.model_validate_json({wrong!r});"
        f"sys.exit(launch.run(which, launch.parse([which.name, '--runs', {str(tmp_path)!r}])))"
    )
    done = in_maxtext("-c", script)
    assert done.returncode == 1, done.stderr
    (folder,) = find_runs(tmp_path)
    run_ = read_run(folder)
    assert "nvfp4 was asked for, the lowered step is fp8_current" in run_.get("outcome", "reason")
    assert run_.trained == []
    assert not judge(run_).valid


if __name__ == "__main__":
    GOLDEN.write_text(golden_text())
    sys.exit(0)
