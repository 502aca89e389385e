"""The workflow as users run it, on a copy of this checkout at a path with a space, under a plain C locale."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from analysis.rebuild import RESTORE
from recipes.runs import METRICS
from tests.conftest import CHECKOUT
from tests.make_run import make_run

pytestmark = pytest.mark.workflow
EXPERIMENT = "results/raw/te_layers/layers-llama3_8b-fp8_current"
ENVIRONMENT = {
    **{key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "SNAKEMAKE"))},
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
}


def sh(where: Path, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=where, env=ENVIRONMENT, capture_output=True, text=True, errors="replace")
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def snakemake(where: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return sh(where, "snakemake", *arguments, check=check)


def rebuild(where: Path, *stages: str) -> subprocess.CompletedProcess[str]:
    """What the rule `exhibits` runs, for some stages only: the whole workflow is tested above and takes longer."""
    return sh(where, "python", "-m", "analysis.rebuild", *stages)


def copy_checkout(target: Path) -> Path:
    """What git has of this checkout, uncommitted changes included, as a repository with one commit."""
    listing = ["git", "-C", str(CHECKOUT), "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(listing, capture_output=True, check=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (CHECKOUT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(CHECKOUT / name, target / name)
    settings = target / "config/config.yaml"  # what trains on CPU has tests of its own
    settings.write_text(settings.read_text().replace("cpu_tier: [nemo, maxtext]", "cpu_tier: []"))
    sh(target, "git", "init", "-q")
    sh(target, "git", "add", "-A")
    sh(target, "git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x")
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh copy on which reproduce_all has run once; an exhibit was taken away before, so that it had to be made."""
    root = copy_checkout(tmp_path_factory.mktemp("work") / "a path with spaces & more")
    (root / "results/exhibits/layer_speedup.csv").unlink()
    (root / "results/exhibits/claims.svg").write_text("not what it was")
    snakemake(root, "reproduce_all")
    return root


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    """A copy of the built checkout that a test may damage."""
    target = tmp_path / "copy of it"
    shutil.copytree(built, target, symlinks=True)
    return target


def speedup(where: Path, precision: str) -> dict[str, object]:
    frame = pl.read_csv(where / "results/exhibits/layer_speedup.csv", infer_schema_length=None)
    rows = frame.filter(pl.col("model") == "llama3_8b", pl.col("precision") == precision, pl.col("scope") == "layer")
    return rows.row(0, named=True)


def test_a_fresh_clone_rebuilds_every_exhibit_byte_for_byte(built: Path) -> None:
    for path in sorted((CHECKOUT / "results" / "exhibits").iterdir()):
        assert (built / "results" / "exhibits" / path.name).read_bytes() == path.read_bytes(), path.name
    assert sh(built, "git", "status", "--porcelain").stdout == ""


def test_nothing_is_done_twice(built: Path) -> None:
    done = snakemake(built, "reproduce_all", "-n")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_dvc_repro_alone_rebuilds_one_exhibit(copy: Path) -> None:
    before = (copy / "results/exhibits/gemm_throughput.svg").read_bytes()
    (copy / "results/exhibits/gemm_throughput.svg").unlink()
    sh(copy, "dvc", "repro", "-q", "gemm_throughput")
    assert (copy / "results/exhibits/gemm_throughput.svg").read_bytes() == before


def test_a_flipped_byte_is_named_and_nothing_is_built(copy: Path) -> None:
    repeats = speedup(copy, "fp8_current")["repeats"]
    valid = (path for path in sorted((copy / EXPERIMENT).iterdir()) if (path / METRICS).stat().st_size > 1000)
    path = next(valid) / METRICS
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    (copy / "build/exhibits.done").unlink()
    before = (copy / f"{EXPERIMENT}.dvc").read_text()
    done = snakemake(copy, "reproduce_all", check=False)
    assert done.returncode != 0
    assert f"{path.parent.relative_to(copy)}: metrics.jsonl is not what was recorded" in done.stdout + done.stderr
    assert RESTORE in done.stdout + done.stderr
    assert (copy / f"{EXPERIMENT}.dvc").read_text() == before
    # an analyst who calls DVC directly gets an empty cell, never the number
    sh(copy, "dvc", "repro", "-q", "layer_speedup")
    assert speedup(copy, "fp8_current")["repeats"] == int(str(repeats)) - 1
    excluded = sh(copy, "fewbits", "verify", EXPERIMENT, check=False)
    assert excluded.returncode == 1
    assert "INCONSISTENT" in excluded.stdout
    # DVC has rewritten the pointer, which git shows; git and the printed command bring everything back
    assert f"{EXPERIMENT}.dvc" in sh(copy, "git", "status", "--porcelain").stdout
    sh(copy, "git", "checkout", "-q", "results")
    sh(copy, *RESTORE.split())
    rebuild(copy, "layer_speedup")
    assert sh(copy, "git", "status", "--porcelain").stdout == ""


def test_a_lost_raw_file_comes_back(copy: Path) -> None:
    path = next((copy / EXPERIMENT).iterdir()) / METRICS
    before = path.read_bytes()
    path.unlink()
    rebuild(copy, "layer_speedup")
    assert path.read_bytes() == before
    assert sh(copy, "git", "status", "--porcelain").stdout == ""


def test_a_raw_file_lost_everywhere_empties_its_cell_only(copy: Path) -> None:
    for run in (copy / EXPERIMENT).iterdir():
        path = run / METRICS
        md5 = sh(copy, "md5sum", str(path)).stdout.split()[0].lstrip("\\")
        path.unlink()
        for store in (copy / ".dvc/cache/files/md5", copy / "results/reference/files/md5"):
            (store / md5[:2] / md5[2:]).unlink()
    before = (copy / f"{EXPERIMENT}.dvc").read_text()
    rebuild(copy, "layer_speedup", "claims")
    lost = speedup(copy, "fp8_current")
    assert lost["speedup"] is None
    assert "INCOMPLETE" in str(lost["reason"])
    assert speedup(copy, "fp8_delayed")["speedup"] is not None
    assert (copy / f"{EXPERIMENT}.dvc").read_text() == before
    claims = pl.read_csv(copy / "results/exhibits/claims.csv")
    verdicts = dict(zip(claims["claim"], claims["verdict"], strict=True))
    assert verdicts["fp8_current_gain_grows_with_size"] == "needs hardware"


def test_a_killed_rebuild_leaves_whole_files_and_is_done_again(copy: Path) -> None:
    names = sorted(path.name for path in (copy / "results/exhibits").iterdir())
    before = {name: (copy / "results/exhibits" / name).read_bytes() for name in names}
    (copy / "results/exhibits/claims.csv").unlink()
    (copy / "results/exhibits/layer_speedup.csv").unlink()
    process = subprocess.Popen(
        ["snakemake", "reproduce_all"], cwd=copy, env=ENVIRONMENT, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(6)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    sh(copy, "snakemake", "--unlock")
    snakemake(copy, "reproduce_all")
    assert {p.name: p.read_bytes() for p in (copy / "results/exhibits").iterdir()} == before


def test_an_edited_exhibit_is_made_again_and_a_second_snakemake_says_who_holds_the_lock(copy: Path) -> None:
    path = copy / "results/exhibits/claims.csv"
    before = path.read_text()
    path.write_text(before.replace("consistent", "reproduced"))
    (copy / "results/exhibits/layer_speedup.csv").unlink()
    first = subprocess.Popen(
        ["snakemake", "reproduce_all"], cwd=copy, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    locks = copy / ".snakemake" / "locks"
    for _ in range(100):
        if locks.is_dir() and any(locks.iterdir()) and (copy / "build/running.json").is_file():
            break
        time.sleep(0.1)
    second = snakemake(copy, "reproduce_all", check=False)
    assert second.returncode != 0
    said = second.stdout + second.stderr
    assert "cannot be locked" in said
    assert f"another Snakemake works in this folder: process {first.pid} on " in said
    assert first.wait() == 0
    assert path.read_text() == before
    assert not (copy / "build/running.json").exists()


def test_publish_runs_again_when_there_are_new_runs(copy: Path) -> None:
    """Whatever the clock of the node that wrote them: an hour behind, and an hour ahead."""
    for session, skew_s in (("first", 0), ("second", -3600), ("third", 3600)):
        run = make_run(copy / "runs", "bf16", session=session)
        there = time.time() + skew_s
        for path in (*run.iterdir(), run):
            os.utime(path, (there, there))
        snakemake(copy, "publish")
        assert (copy / "results/raw/te_layers/layers-llama3_8b-bf16" / f"{session}-r1").is_dir()
    done = snakemake(copy, "publish", "-n")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_without_a_gpu_the_message_says_what_to_do(built: Path) -> None:
    done = snakemake(built, "smoke", check=False)
    assert done.returncode != 0
    assert "te_layers needs 1 NVIDIA GPU" in done.stderr
    assert "snakemake reproduce_all" in done.stderr


def test_the_gpu_profile_plans_every_session(built: Path) -> None:
    done = snakemake(built, "te_layers", "-n", "--workflow-profile", "profiles/gpu")
    assert "te_layers_session       10" in done.stdout + done.stderr


def test_a_setting_on_the_command_line_adds_to_the_profiles(built: Path) -> None:
    """Snakemake's `config:` in a profile would be replaced by --config, and the GPU lent to nobody."""
    done = snakemake(
        built, "nemo_smoke", "-n", "-p", "--workflow-profile", "profiles/gpu", "--config", "nemo={site: /a/site}"
    )
    assert "PYTHONPATH=/a/site:." in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("setting", "says"), [("gpus=many", "instance['gpus']: 'many'"), ("gpu=1", "('gpu' was unexpected)")]
)
def test_a_wrong_setting_is_named(built: Path, setting: str, says: str) -> None:
    done = snakemake(built, "reproduce_all", "-n", "--config", setting, check=False)
    assert done.returncode != 0
    assert says in " ".join((done.stdout + done.stderr).split())


def test_lint_finds_nothing_but_missing_containers(built: Path) -> None:
    """Software comes from locks (envs/), containers where a stack has one: that finding is expected of other rules."""
    done = snakemake(built, "--lint", check=False)
    findings = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("    * ")]
    assert set(findings) <= {"    * Specify a conda environment or container for each rule.:"}


def test_an_image_is_run_in_or_refused(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake ignores `container:` without --sdm apptainer: a run would be labelled with an image it never saw."""
    standin = tmp_path / "apptainer"
    shutil.copy(CHECKOUT / "tests/workflow/apptainer_standin.sh", standin)
    standin.chmod(0o755)
    monkeypatch.setitem(ENVIRONMENT, "PATH", f"{tmp_path}{os.pathsep}{ENVIRONMENT['PATH']}")
    image = f"nemo={{container: {tmp_path}}}"
    target = "build/sessions/nemo/llama3_8b-cpu-bf16.json"
    refused = snakemake(built, target, "-n", "--config", image, check=False)
    assert refused.returncode != 0
    assert (
        "nemo.container names an image, which Snakemake ignores without `--sdm apptainer`"
        in refused.stdout + refused.stderr
    )
    done = snakemake(built, target, "-n", "-p", "--sdm", "apptainer", "--config", image)
    planned = done.stdout + done.stderr
    assert f"FEWBITS_IMAGE={tmp_path} PYTHONPATH=. python3 -m recipes.nemo.launch llama3_8b-cpu-bf16" in planned
    assert "nemo_environment" not in planned
    for name, says in (("pinned", "is not resolved"), ("nvcr.io/nvidia/nemo:25.04", "a tag can be moved")):
        done = snakemake(
            built, target, "-n", "--sdm", "apptainer", "--config", f"nemo={{container: '{name}'}}", check=False
        )
        assert done.returncode != 0
        assert says in done.stdout + done.stderr


def test_a_read_only_checkout_is_read_and_worked_on_in_a_clone(built: Path, tmp_path: Path) -> None:
    where = str(built)
    mount = f'mount --bind "{where}" "{where}" && mount -o remount,ro,bind "{where}" && cd "{where}" && '

    def read_only(command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return sh(tmp_path, "unshare", "--mount", "sh", "-c", mount + command, check=check)

    if read_only("! touch x 2>/dev/null", check=False).returncode:
        pytest.skip("this machine does not let the test mount a folder read-only")
    read_only(f"fewbits verify {EXPERIMENT} && fewbits capability --json > /dev/null")
    read_only(f'python -m analysis.exhibits layer_speedup --out "{tmp_path}/out"')
    assert (tmp_path / "out/layer_speedup.svg").read_bytes() == (
        built / "results/exhibits/layer_speedup.svg"
    ).read_bytes()
    done = read_only(f'make reproduce_all WORK="{tmp_path}/work" PYTHON=false', check=False)
    assert "this checkout cannot be written to; working in a clone" in done.stderr
    assert (tmp_path / "work" / "Snakefile").is_file()
    assert "Python 3.11 or newer is needed" in done.stderr


def test_full_recipes_wait_for_a_cluster(built: Path) -> None:
    place = "slurm={account: a, partition: p, home: /shared/me, hardware: [h100, b200], mounts: ['/data:/data']}"
    done = snakemake(built, "nemo_cluster", "-n", "-p", "--workflow-profile", "profiles/slurm", "--config", place)
    said = done.stdout + done.stderr
    assert (
        "-m recipes.nemo.submit llama31_405b-b200-mxfp8 --account a --partition p --home /shared/me --mount /data:/data"
        " --checkpoint-every 0 --wait --session-file build/sessions/nemo/llama31_405b-b200-mxfp8.json"
    ) in said
    assert "gb200" not in said
    assert "h100-mxfp8" not in said  # the gate


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("slurm={hardware: [h100]}", "set slurm.account, slurm.partition, slurm.home"),
        ("slurm={account: a, partition: p, home: /h}", "slurm.hardware is empty; say what the cluster has: h100"),
        ("slurm={account: a, partition: p, home: /h, hardware: [h200]}", "allowed: b200, gb200, h100"),
    ],
)
def test_without_a_cluster_the_message_says_what_to_set(built: Path, place: str, says: str) -> None:
    done = snakemake(built, "nemo_cluster", "-n", "--config", place, check=False)
    assert done.returncode != 0
    assert says in " ".join((done.stdout + done.stderr).split())
