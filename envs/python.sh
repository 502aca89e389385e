#!/bin/sh
# Print an interpreter of one Python: sh envs/python.sh 3.12   (looked for on PATH, in pyenv, among uv's own)
# Exit codes: 0 found, 4 not found (said in one line).
set -eu
version=$1
for python in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/"python$version" \
    "$(uv python find --no-python-downloads "$version" 2> /dev/null || true)"; do
    # a pyenv shim may be on PATH and start nothing
    if [ -n "$python" ] && "$python" -c "import venv" > /dev/null 2>&1; then
        command -v "$python"
        exit 0
    fi
done
echo "Python $version was not found (PATH, pyenv, uv): run \`uv python install $version\`, or install it with your system" >&2
exit 4
