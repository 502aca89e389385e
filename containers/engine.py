"""The program that builds and runs images: docker (its daemon), podman, or buildah, whichever is there.

Containerfiles use what all three know. podman and buildah build with chroot isolation, which needs neither a daemon nor
control groups, and set every time in an image to EPOCH, so that the same content has the same manifest digest. Docker's
builder keeps the times of building: its images have an ID, and no two builds the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from recipes.runs import RunError

EPOCH = "1735689600"  # 2025-01-01: every time in an image
ENVIRONMENT = {"SOURCE_DATE_EPOCH": EPOCH, "BUILDAH_ISOLATION": "chroot"}
# ranks find each other by the host's name
NETWORK = ["--network", "host"]


def called(command: Sequence[str], what: str) -> str:
    """Standard output of a command, stripped.

    Raises RunError with the last line of what it complained about, or with the check of ours that failed inside.
    """
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ENVIRONMENT})
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or [f"exit {done.returncode}"]
        ours = [line for line in lines if "RunError: " in line]
        raise RunError(f"{what}: {(ours or lines)[-1].strip()[:300]}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Inside:
    """What a command in a container sees: folders at their own paths, variables, where it starts."""

    mounts: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: Path | None = None

    def options(self, workdir_option: str = "--workdir") -> list[str]:
        """As options of an engine."""
        words = [word for path in self.mounts for word in ("--volume", f"{path}:{path}")]
        words += [word for name, value in self.environment.items() for word in ("--env", f"{name}={value}")]
        return words + ([workdir_option, str(self.workdir)] if self.workdir else [])


def passed_on(command: Sequence[str]) -> int:
    """Exit code of a command that is sent the SIGTERM that we are sent: what runs inside has something to seal."""
    process = subprocess.Popen(command)
    before = signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGTERM, before)


class Engine:
    """What every engine does; `name` is its program's."""

    name = ""
    build_options: Sequence[str] = ("--timestamp", EPOCH, "--no-cache", "--quiet")

    def usable(self) -> bool:
        """Whether it is here and works."""
        return shutil.which(self.name) is not None

    def version(self) -> str:
        """Its own words."""
        return called([self.name, "--version"], self.name)

    def build(
        self, context: Path, containerfile: Path, tag: str, arguments: Mapping[str, str], pull: bool = False
    ) -> None:
        """Build an image. `pull`: its base may come from a registry. Raises RunError."""
        command = [self.name, "build", *self.build_options, *self.pulling(pull)]
        for name, value in arguments.items():
            command += ["--build-arg", f"{name}={value}"]
        called([*command, "--file", str(containerfile), "--tag", tag, str(context)], f"building {tag}")

    def pulling(self, pull: bool) -> list[str]:
        """Options of `build` that let a base come from a registry, or not."""
        return [] if pull else ["--pull-never"]

    def digest(self, tag: str) -> str:
        """Manifest digest of an image in the store. Raises RunError when there is none."""
        return str(json.loads(called([self.name, "images", "--format", "json", tag], tag))[0]["Digest"])

    def reference(self, tag: str) -> str:
        """How a run names an image: by what its content decides. Raises RunError."""
        return f"{tag.rpartition(':')[0]}@{self.digest(tag)}"

    def start(self, tag: str, inside: Inside, command: Sequence[str]) -> int:
        """Run a command in an image, its output where ours goes; returns its exit code."""
        return passed_on([self.name, "run", "--rm", *NETWORK, *inside.options(), tag, *command])

    def output(self, tag: str, command: Sequence[str]) -> str:
        """Standard output of a command in an image. Raises RunError."""
        return called([self.name, "run", "--rm", *NETWORK, tag, *command], f"{tag}: {command[0]}")


class Docker(Engine):
    """Docker, where a daemon answers."""

    name = "docker"
    build_options = ("--network", "none", "--no-cache", "--quiet")

    def usable(self) -> bool:
        """Whether the client is here, and a daemon answers it."""
        return super().usable() and subprocess.run([self.name, "version"], capture_output=True).returncode == 0

    def pulling(self, pull: bool) -> list[str]:
        """A base that is here is taken, whatever a registry has."""
        return []

    def reference(self, tag: str) -> str:
        """An image in docker's store has an ID, which is no manifest digest."""
        return f"{tag} (docker image ID {called([self.name, 'image', 'inspect', '--format', '{{.Id}}', tag], tag)})"


class Podman(Engine):
    """Podman, told to build as buildah does by itself, so that both make the same image."""

    name = "podman"
    build_options = (*Engine.build_options, "--layers=false")


class Buildah(Engine):
    """Buildah, which starts commands without a container runtime."""

    name = "buildah"

    def digest(self, tag: str) -> str:
        """Manifest digest of an image in the store. Raises RunError when there is none."""
        return str(json.loads(called([self.name, "images", "--json", tag], tag))[0]["digest"])

    def start(self, tag: str, inside: Inside, command: Sequence[str]) -> int:
        """Run a command in an image, its output where ours goes; returns its exit code."""
        with self._container(tag) as container:
            return passed_on([*self._run, *inside.options("--workingdir"), container, "--", *command])

    def output(self, tag: str, command: Sequence[str]) -> str:
        """Standard output of a command in an image. Raises RunError."""
        with self._container(tag) as container:
            return called([*self._run, container, "--", *command], f"{tag}: {command[0]}")

    @property
    def _run(self) -> list[str]:
        return [self.name, "run", "--isolation", "chroot"]

    @contextlib.contextmanager
    def _container(self, tag: str) -> Iterator[str]:
        name = called([self.name, "from", "--pull-never", tag], "starting a container")
        try:
            yield name
        finally:
            subprocess.run([self.name, "rm", name], capture_output=True)


ENGINES: Mapping[str, Engine] = {one.name: one for one in (Docker(), Podman(), Buildah())}


def pick(name: str = "") -> Engine:
    """The engine of that name, or the first that works here. Raises RunError where there is none."""
    if name and name not in ENGINES:
        raise RunError(f"--engine {name}: must be one of {', '.join(ENGINES)}")
    for engine in [ENGINES[name]] if name else ENGINES.values():
        if engine.usable():
            return engine
    lacking = f"{name} does not work here" if name else "no docker daemon, no podman and no buildah here"
    raise RunError(
        f"{lacking}, so no image is built or run (Debian: apt install buildah); the locked environment runs the same"
        " without: snakemake nemo_cpu"
    )
