"""A Slurm of one node on this machine, in a folder of its own: munged, slurmctld, slurmd. For tests only.

The node is called localhost, since ranks find each other by node names.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue")
CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
MinJobAge=300
KillWait=30
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs={cpus}
PartitionName=test Nodes=localhost Default=YES State=UP
"""


def missing() -> list[str]:
    """Programs of Slurm and munge that this machine lacks; with sbin, where Debian keeps the daemons."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# Stands in for pyxis, NVIDIA's plugin for srun, without a container: goes to the folder to be mounted as working
# directory, and leaves out options for hardware that this machine has not.
SRUN = """#!/usr/bin/env python3
import os, sys
arguments, mounts, folder, kept = iter(sys.argv[1:]), {{}}, None, []
for word in arguments:
    if word == "--container-image":
        next(arguments)
    elif word == "--container-mounts":
        mounts = dict(reversed(mount.split(":")[:2]) for mount in next(arguments).split(","))
    elif word == "--container-workdir":
        folder = next(arguments)
    elif word == "numactl":
        next(arguments), next(arguments)
    elif word != "--mpi=pmix":
        kept.append(word)
if folder:
    start = max((path for path in mounts if folder.startswith(path)), key=len)
    kept.insert(0, "--chdir=" + mounts[start] + folder.removeprefix(start))
os.execv({srun!r}, ["srun", *kept])
"""


@contextlib.contextmanager
def slurm(root: Path) -> Iterator[dict[str, str]]:
    """Start it, yield the environment in which its commands find it, stop it. Raises RuntimeError."""
    root.mkdir(parents=True)
    (root / "state").mkdir()
    (root / "spool.localhost").mkdir()
    host, user = socket.gethostname().split(".")[0], subprocess.check_output(["id", "-un"], text=True).strip()
    ports = {"port": _free_port(), "node_port": _free_port()}
    (root / "slurm.conf").write_text(CONF.format(root=root, host=host, user=user, cpus=os.cpu_count(), **ports))
    (root / "munge.key").write_bytes(secrets.token_bytes(128))
    (root / "munge.key").chmod(0o600)
    (root / "bin").mkdir()
    (root / "bin/srun").write_text(SRUN.format(srun=shutil.which("srun", path=_path())))
    (root / "bin/srun").chmod(0o755)
    path = f"{root}/bin{os.pathsep}{_path()}"
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(root / "slurm.conf")}
    munge = ["munged", "--foreground", "--force", f"--socket={root}/munge.socket", f"--key-file={root}/munge.key"]
    munge += [f"--pid-file={root}/munged.pid", f"--log-file={root}/munged.log", f"--seed-file={root}/munge.seed"]
    commands = [munge, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "localhost"]]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            with (root / f"{command[0]}.{len(started)}.out").open("wb") as out:
                started.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment))
            time.sleep(1.0)
        end = time.monotonic() + 60
        said = ""
        while time.monotonic() < end:
            done = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], env=environment, capture_output=True, text=True)
            said = done.stdout + done.stderr
            if done.stdout.split() == ["idle"]:
                break
            time.sleep(1.0)
        else:
            logs = "".join(log.read_text(errors="replace")[-1500:] for log in sorted(root.glob("*.out")))
            raise RuntimeError(f"Slurm has not come up: {said}\n{logs}")
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
