#!/bin/sh
# Make or update the core environment: sh envs/install.sh PYTHON VENV LOCK
# Everything comes from the lock with its hash. uv does it where it can, pip where uv cannot reach the packages (behind
# a mirror that only pip's configuration names, for example).
set -eu
python=$1 venv=$2 lock=$3
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "setup: Python 3.11 or newer is needed; say which: make PYTHON=/path/to/python3.11" >&2; exit 2; }
if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv" ||
        { echo "setup: this Python cannot make environments; on Debian: apt install python3-venv" >&2; exit 2; }
fi
quiet() { "$venv/bin/python" -m pip --disable-pip-version-check "$@" 2>&1 | grep -v '^WARNING: Location\|^$' || true; }
pin=$(sed -n '/^uv==/,/^[^ ]/p' envs/core/requirements.lock | sed '1!{/^[^ ]/d}')
printf '%s\n' "$pin" > "$venv/uv.txt"
echo "setup: installing $lock into $venv"
if quiet install -q --require-hashes -r "$venv/uv.txt" && [ -x "$venv/bin/uv" ] &&
    UV_SYSTEM_CERTS=true "$venv/bin/uv" pip install -q --python "$venv/bin/python" --require-hashes -r "$lock"; then
    :
else
    echo "setup: uv could not do it, pip does (slower)" >&2
    "$venv/bin/python" -m pip --disable-pip-version-check install -q --require-hashes -r "$lock"
fi
# The checkout itself: found by its path, with nothing written into it.
"$venv/bin/python" - <<'EOF'
import pathlib, sysconfig
pathlib.Path(sysconfig.get_path("purelib"), "fewbits.pth").write_text(str(pathlib.Path.cwd()) + "\n", encoding="utf-8")
EOF
cat > "$venv/bin/fewbits" <<'EOF'
#!/bin/sh
exec "$(dirname "$0")/python" -m fewbits "$@"
EOF
chmod +x "$venv/bin/fewbits"
