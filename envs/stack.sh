#!/bin/sh
# Make a stack's environment: sh envs/stack.sh VENV LOCK...   (hashes checked; nothing but the locks' pins)
# PYTHON: the interpreter, or a version that uv finds or fetches; 3.11 where it is not set.
# Exit codes: 0 installed, 3 torch's build for CPU cannot be reached from here, others: something else failed.
# torch for CPU is on torch's own index, which uv knows; where it cannot be reached, pip looks where it is configured to.
set -eu
venv=$1; shift
export UV_SYSTEM_CERTS=true UV_COMPILE_BYTECODE=1
[ -x "$venv/bin/python" ] || uv venv -q --seed --python "${PYTHON:-3.11}" "$venv"
for lock in "$@"; do
    awk '/^[^ #]/ { torch = /^torch==/ } torch' "$lock" > "$venv/torch.txt"
    awk '/^[^ #]/ { torch = /^torch==/ } !torch' "$lock" > "$venv/rest.txt"
    if [ -s "$venv/torch.txt" ]; then
        echo "envs: torch for CPU into $venv" >&2
        uv pip install -q --python "$venv/bin/python" --no-deps --require-hashes --torch-backend cpu \
            -r "$venv/torch.txt" 2> /dev/null ||
            "$venv/bin/python" -m pip --disable-pip-version-check install -q --no-deps --require-hashes \
                -r "$venv/torch.txt" ||
            { echo "envs: no torch for CPU as $lock pins it; can torch's own index be reached?" >&2; exit 3; }
    fi
    echo "envs: $lock into $venv" >&2
    uv pip install -q --python "$venv/bin/python" --no-deps --require-hashes -r "$venv/rest.txt"
done
