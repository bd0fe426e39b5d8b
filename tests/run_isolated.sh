#!/bin/bash
# The part of tests/run.sh that runs where the home, and other places that packages and people fill, are empty.
set -u
if said=$(bash slurm/testbed/up.sh "$HPCDDM_TESTBED"); then
    echo "$said"
    case "$said" in
        *"up already"*) ;;  # somebody else's: it stays up
        *) trap 'bash slurm/testbed/down.sh "$HPCDDM_TESTBED"' EXIT ;;
    esac
elif [ -n "${CI:-}" ]; then
    echo "error: no Slurm could be started, and in CI the tests on a real Slurm may not be skipped" >&2
    exit 1
else
    echo "NOTE: no Slurm could be started; the tests marked 'slurm' are skipped" >&2
    unset HPCDDM_TESTBED
fi
"$VENV/bin/ruff" check . && "$VENV/bin/ruff" format --check --quiet . && "$VENV/bin/mypy" || exit 1
# Bits are compared, and those of a GPU are other ones; 'make gpu-check' is for GPUs.
export CUDA_VISIBLE_DEVICES=
# One thread per process: the tests start many, and the embedded site counts cores.
export OMP_NUM_THREADS=1
"$VENV/bin/python" tests/isolation/places.py watch "$HPCDDM_OPENED"
# phase NAME ARGUMENT ...: one call of pytest, with the minutes that it took.
phase() {
    local name=$1 started=$SECONDS code
    shift
    echo "$name"
    "$VENV/bin/python" -m pytest --durations=20 "$@"
    code=$?
    echo "$name: took $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s"
    return "$code"
}
failed=0
if [ $# -gt 0 ]; then
    "$VENV/bin/python" -m pytest "$@" || failed=1
else
    shared=(-n auto --dist loadfile --no-loadscope-reorder)
    # Workers that share the cores must find the same tests, whose names may hold sets.
    PYTHONHASHSEED=0 phase "phase 1 of 2, without Slurm" "${shared[@]}" -m "not slurm and not long and not gpu and not foreign" || failed=1
    # On Slurm tests would take each other's cores and be late.
    phase "phase 2 of 2, on Slurm" -m "slurm and not long and not gpu and not foreign" || failed=1
fi
"$VENV/bin/python" tests/isolation/places.py report "$HPCDDM_OPENED" || [ -z "${CI:-}" ] || failed=1
exit "$failed"
