#!/bin/bash
# `make test`: everything that can run here. With root on Debian a real Slurm is installed and brought up; in CI not
# having one is a failure, elsewhere it is said plainly what is left out. Arguments go to pytest, and then all tests
# run one after the other.
set -u
cd "$(dirname "$0")/.." || exit 1
VENV=${VENV:-.venv}
export HPCDDM_TESTBED=${HPCDDM_TESTBED:-/tmp/hpcddm-testbed}
# Runs that several sessions read are made once.
HPCDDM_TEST_RUNS=$(mktemp -d) && export HPCDDM_TEST_RUNS
trap 'rm -rf "$HPCDDM_TEST_RUNS"' EXIT

if bash slurm/testbed/install.sh && said=$(bash slurm/testbed/up.sh "$HPCDDM_TESTBED"); then
    echo "$said"
    case "$said" in
        *"up already"*) ;;  # somebody else's: it stays up
        *) trap 'bash slurm/testbed/down.sh "$HPCDDM_TESTBED"; rm -rf "$HPCDDM_TEST_RUNS"' EXIT ;;
    esac
elif [ -n "${CI:-}" ]; then
    echo "error: no Slurm could be started, and in CI the tests on a real Slurm may not be skipped" >&2
    exit 1
else
    echo "NOTE: no Slurm could be started; the tests marked 'slurm' are skipped" >&2
    unset HPCDDM_TESTBED
fi
# Without it the tests in tests/late_names are skipped, and in CI they may not be.
bash tests/late_names/install.sh || [ -z "${CI:-}" ] || exit 1
"$VENV/bin/ruff" check . && "$VENV/bin/ruff" format --check --quiet . && "$VENV/bin/mypy" || exit 1
# Bits are compared, and those of a GPU are other ones; 'make gpu-check' is for GPUs.
export CUDA_VISIBLE_DEVICES=
# One thread per process: the tests start many, and the embedded site counts cores.
export OMP_NUM_THREADS=1
if [ $# -gt 0 ]; then
    "$VENV/bin/python" -m pytest "$@"
    exit
fi
# On Slurm, and in whole runs, tests would take each other's cores and be late; all others share the cores by files.
# The workers must find the same tests, whose names may hold sets.
PYTHONHASHSEED=0 "$VENV/bin/python" -m pytest -n auto --dist loadfile --durations=30 -m "not alone and not long and not gpu and not foreign"
others=$?
"$VENV/bin/python" -m pytest --durations=30 -m "alone and not long and not gpu and not foreign" && exit "$others"
