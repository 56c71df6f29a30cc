# Sourced by the scripts: which interpreter and which virtual environment this checkout uses.
# BLACKSTART_PYTHON=<interpreter> selects another one, with an environment of its own (.venv-<x.y>).
if [ -n "${BLACKSTART_PYTHON:-}" ]; then
  BLACKSTART_INTERPRETER="$BLACKSTART_PYTHON"
  version="$("$BLACKSTART_PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" || {
    echo "blackstart: BLACKSTART_PYTHON=$BLACKSTART_PYTHON: not a Python interpreter; try: BLACKSTART_PYTHON=/usr/bin/python3" >&2
    exit 4
  }
  BLACKSTART_VENV="$PWD/.venv-$version"
else
  BLACKSTART_INTERPRETER=python3
  BLACKSTART_VENV="$PWD/.venv"
fi
export BLACKSTART_INTERPRETER BLACKSTART_VENV

# Where this is set (images like to), every one of some hundred Python processes of a run compiles all it imports anew.
unset PYTHONDONTWRITEBYTECODE

# What ci/system brought on this machine: where its engine answers and which image it made. Settings given win.
if [ -f ci/images/engine.env ]; then
  # shellcheck source=/dev/null
  . ci/images/engine.env
fi
