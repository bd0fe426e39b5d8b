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
HERE="not long and not gpu and not foreign"
phase() {
    local name=$1 nice=$2 started=$SECONDS code
    shift 2
    echo "$name"
    $nice "$VENV/bin/python" -m pytest --durations=20 "$@"
    code=$?
    echo "$name: took $(((SECONDS - started) / 60)) min $(((SECONDS - started) % 60)) s"
    return "$code"
}
failed=0
if [ $# -gt 0 ]; then
    "$VENV/bin/python" -m pytest "$@" || failed=1
else
    # On Slurm most time is spent waiting, one test after the other; what the others do has to wait for them.
    phase "on Slurm" "" -m "slurm and $HERE" >"$HPCDDM_TEST_RUNS/on-slurm" 2>&1 &
    on_slurm=$!
    # Workers that share the cores must find the same tests, whose names may hold sets.
    PYTHONHASHSEED=0 phase "without Slurm" "nice -n 5" -n auto --dist loadfile --no-loadscope-reorder -m "not slurm and $HERE" || failed=1
    wait "$on_slurm" || failed=1
    cat "$HPCDDM_TEST_RUNS/on-slurm"
fi
"$VENV/bin/python" tests/isolation/places.py report "$HPCDDM_OPENED" || [ -z "${CI:-}" ] || failed=1
exit "$failed"
