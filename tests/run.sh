#!/bin/bash
# `make test`: everything that can run here. With root on Debian a real Slurm is installed and brought up; in CI not
# having one is a failure, elsewhere it is said plainly what is left out.
set -u
cd "$(dirname "$0")/.." || exit 1
VENV=${VENV:-.venv}
export HPCDDM_TESTBED=${HPCDDM_TESTBED:-/tmp/hpcddm-testbed-$$}

if bash slurm/testbed/install.sh && bash slurm/testbed/up.sh "$HPCDDM_TESTBED"; then
    trap 'bash slurm/testbed/down.sh "$HPCDDM_TESTBED"' EXIT
elif [ -n "${CI:-}" ]; then
    echo "error: no Slurm could be started, and in CI the tests on a real Slurm may not be skipped" >&2
    exit 1
else
    echo "NOTE: no Slurm could be started; the tests marked 'slurm' are skipped" >&2
    unset HPCDDM_TESTBED
fi
"$VENV/bin/ruff" check . || exit 1
"$VENV/bin/python" -m pytest "$@"
