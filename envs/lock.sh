#!/usr/bin/env bash
# Make every lock anew: versions and hashes only, no registry's name. Called by `make locks`.
set -euo pipefail
cd "$(dirname "$0")"
compile() { uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url "$@"; }
compile --universal --python-version 3.11 core/requirements.in -o core/requirements.lock
compile --universal --python-version 3.11 -c core/requirements.lock dev/requirements.in -o dev/requirements.lock
compile --python-version 3.12 --python-platform x86_64-manylinux_2_28 te_layers/requirements.in -o te_layers/requirements.lock
