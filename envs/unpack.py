#!/usr/bin/env python3
"""Set up one site folder from a bundle, on a host without a network. Needs Python 3.8 or newer, and nothing else.

    python3 unpack.py --site SITE                # parts lie beside this script
    export PYTHONPATH=SITE

Every part's SHA-256 is checked against bundle.json before anything is written; a missing or damaged part is named, so
that only it needs copying again. No member can leave SITE. The folder appears whole or not at all. What the bundle
holds as source is built with the host's compiler; --keep-wheels keeps the result for the next bundle.
Exit codes: 0 done (or done before), 1 a build failed, 2 the bundle or the host does not fit.
"""

import argparse
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

STAMP = "BUNDLE.json"


class BundleError(Exception):
    """The bundle or the host does not fit; the message is one line that says what to do."""


def sha256_of(path):
    """SHA-256 of a file, hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def check_parts(folder, parts):
    """Paths of all parts, each verified. Raises BundleError naming every missing or damaged one."""
    wrong = []
    for part in parts:
        path = folder / part["name"]
        if not path.is_file():
            wrong.append(part["name"] + " is missing")
        elif sha256_of(path) != part["sha256"]:
            wrong.append(part["name"] + " is damaged")
    if wrong:
        raise BundleError("copy these parts again: " + ", ".join(wrong))
    return [folder / part["name"] for part in parts]


class Joined(io.RawIOBase):
    """The parts read as one stream."""

    def __init__(self, paths):
        self._paths = list(paths)
        self._file = None

    def readable(self):
        return True

    def readinto(self, buffer):
        while True:
            if self._file is None:
                if not self._paths:
                    return 0
                self._file = open(self._paths.pop(0), "rb")
            count = self._file.readinto(buffer)
            if count:
                return count
            self._file.close()
            self._file = None


def safe_target(folder, name):
    """Where a member goes. Raises BundleError for a name that could leave `folder`."""
    pieces = name.split("/")
    if not name or name.startswith("/") or "\\" in name or any(piece in ("", ".", "..") for piece in pieces):
        raise BundleError("the archive holds an unsafe name: " + repr(name))
    return folder.joinpath(*pieces)


def extract(stream, folder):
    """Regular files and folders of a tar.xz stream into `folder`; links and devices are refused. Returns the count."""
    count = 0
    with tarfile.open(fileobj=stream, mode="r|xz") as archive:
        for member in archive:
            target = safe_target(folder, member.name)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
                continue
            source = archive.extractfile(member) if member.isreg() else None
            if source is None:
                raise BundleError("the archive holds something that is not a plain file: " + repr(member.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(target, "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
            os.chmod(target, 0o755 if member.mode & 0o100 else 0o644)
            count += 1
    return count


def check_host(bundle):
    """Raises BundleError when this Python or machine is not what the bundle was made for."""
    here = "%d.%d" % sys.version_info[:2]
    if here != bundle["python"]:
        raise BundleError(
            "the bundle is for Python %s, this is %s; run this script with python%s"
            % (bundle["python"], here, bundle["python"])
        )
    machine = bundle["platform"].split("-")[0]
    if platform.machine() != machine:
        raise BundleError("the bundle is for %s, this machine is %s" % (machine, platform.machine()))


def found_folders(patterns, site):
    """Existing folders named by `patterns` under the site or any folder of sys.path."""
    roots = [site] + [Path(entry) for entry in sys.path if entry]
    return [str(root / pattern) for pattern in patterns for root in roots if (root / pattern).is_dir()]


def install_wheel(wheel, site):
    """Unpack a wheel into the site. Not by pip: its --target skips or replaces folders that two distributions share."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith("/"):
                continue
            target = safe_target(site, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, open(target, "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)


def build(spec, site, wheels):
    """Build one source distribution of the bundle into a wheel and install it into `site`. Raises BundleError."""
    environment = dict(os.environ, **spec["environment"])
    environment["PYTHONPATH"] = str(site)
    environment.setdefault("MAX_JOBS", str(min(16, os.cpu_count() or 1)))
    for variable, key in (("CPLUS_INCLUDE_PATH", "include"), ("LIBRARY_PATH", "library")):
        folders = found_folders(spec[key], site)
        if os.environ.get(variable):
            folders.append(os.environ[variable])
        environment[variable] = os.pathsep.join(folders)
    source = site / spec["file"]
    before = set(wheels.glob("*.whl"))
    pip = [sys.executable, "-m", "pip"]
    offline = ["--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    log = wheels / (spec["name"] + ".build.log")
    with open(log, "w") as output:
        made = subprocess.call(
            [*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", str(wheels), str(source)],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    new = sorted(set(wheels.glob("*.whl")) - before)
    if made != 0 or len(new) != 1:
        tail = log.read_text(errors="replace").splitlines()[-30:]
        print("\n".join(tail), file=sys.stderr)
        raise subprocess.CalledProcessError(made or 1, "building %s (log: %s)" % (spec["name"], log))
    install_wheel(new[0], site)
    return new[0]


def unpack(parts_folder, site, wheels, do_build):
    """The whole procedure; returns a line that says what was done."""
    bundle = json.loads((parts_folder / "bundle.json").read_text())
    check_host(bundle)
    wanted = bundle["build"] if do_build else []
    stamp = json.dumps({"bundle": bundle, "built": [spec["name"] for spec in wanted]}, indent=2) + "\n"
    if (site / STAMP).is_file() and (site / STAMP).read_text() == stamp:
        return "%s is already set up from this bundle" % site
    if site.exists():
        raise BundleError("%s exists and is not from this bundle; choose another --site or remove it" % site)
    paths = check_parts(parts_folder, bundle["parts"])
    partial = site.with_name(site.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    count = extract(io.BufferedReader(Joined(paths), 1 << 20), partial)
    if wanted:
        wheels.mkdir(parents=True, exist_ok=True)
    built = [build(spec, partial, wheels).name for spec in wanted]
    (partial / STAMP).write_text(stamp)
    partial.rename(site)
    return "%s: %d files, built: %s" % (site, count, ", ".join(built) or "nothing")


def main():
    """Command line; returns the exit code."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--parts", type=Path, default=here, help="folder with bundle.json and the parts")
    parser.add_argument("--site", type=Path, required=True, help="folder to create")
    parser.add_argument("--keep-wheels", type=Path, help="where built wheels and logs go (default: beside the site)")
    parser.add_argument("--no-build", action="store_true", help="leave source distributions unbuilt")
    args = parser.parse_args()
    site = args.site.absolute()
    wheels = (args.keep_wheels or site.with_name(site.name + ".wheels")).absolute()
    try:
        print(unpack(args.parts, site, wheels, not args.no_build))
        return 0
    except subprocess.CalledProcessError as error:
        print("unpack: failed: %s" % error.cmd, file=sys.stderr)
        return 1
    except (BundleError, OSError, ValueError, KeyError, tarfile.TarError) as error:
        print("unpack: %s" % error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
