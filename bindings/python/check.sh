#!/usr/bin/env bash
# Builds the wheel, and checks it against the real command: target/debug/headstart, or
# HEADSTART_BINARY. The tools are in a virtual environment, which is kept for the next time; PYTHON
# names another interpreter.
set -euo pipefail
cd "$(dirname "$0")"

work=../../target/python
python=${PYTHON:-python3}
venv=$work/venv-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --requirement check-requirements.txt

rm -rf "$work/wheel"
"$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work/wheel" .
wheel=$(ls "$work"/wheel/headstart-*.whl)
"$venv/bin/pip" install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheel"
"$venv/bin/pip" install --quiet --disable-pip-version-check "$wheel[requests,httpx,aiohttp]"

"$venv/bin/ruff" check --quiet
"$venv/bin/ruff" format --quiet --check
"$venv/bin/mypy"
"$venv/bin/pytest" -p no:cacheprovider
