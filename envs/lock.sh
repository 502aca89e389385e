#!/usr/bin/env bash
# Make every lock anew: versions and hashes only, no registry's name. Called by `make locks`.
# torch for CPU is only on torch's own index, which uv knows by itself; UV_FIND_LINKS may name a folder with the wheel.
set -euo pipefail
cd "$(dirname "$0")"
compile() {
    uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@"
}
linux="--python-platform x86_64-manylinux_2_28"
compile --universal --python-version 3.11 core/requirements.in -o core/requirements.lock
compile --universal --python-version 3.11 -c core/requirements.lock dev/requirements.in -o dev/requirements.lock
compile --python-version 3.12 $linux te_layers/requirements.in -o te_layers/requirements.lock
cpu="--torch-backend cpu"
[ -z "${UV_FIND_LINKS:-}" ] || cpu=""
compile --python-version 3.11 $linux $cpu nemo/requirements.in -o nemo/requirements.lock
compile --python-version 3.12 $linux nemo_gpu/requirements.in -o nemo_gpu/requirements.lock
compile --python-version 3.11 $linux --no-deps nemo/release.in -o nemo/release.lock
compile --python-version 3.12 --python-platform x86_64-manylinux_2_31 --no-deps nemo_25_07/release.in \
    -o nemo_25_07/release.lock
# MaxText's wheel asks for nothing by itself: every package is named, and none brings another
compile --python-version 3.12 $linux --no-deps maxtext/requirements.in -o maxtext/requirements.lock
compile --python-version 3.12 $linux --no-deps maxtext_gpu/requirements.in -o maxtext_gpu/requirements.lock
