#!/bin/bash
# The part of tests/run.sh that runs where the home, and other places that packages and people fill, are empty.
set -u
on_slurm= is_ours=
trap '[ -z "$on_slurm" ] || kill "$on_slurm" 2>/dev/null; [ -z "$is_ours" ] || bash slurm/testbed/down.sh "$HPCDDM_TESTBED"' EXIT
trap 'exit 130' INT
if said=$(bash slurm/testbed/up.sh "$HPCDDM_TESTBED"); then
    echo "$said"
    case "$said" in
        *"up already"*) ;;  # somebody else's: it stays up
        *) is_ours=yes ;;
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
HERE="not long and not gpu and not foreign"
failed=0
if [ $# -gt 0 ]; then
    "$VENV/bin/python" -m pytest "$@" || failed=1
else
    echo "Two phases at once, on two idle cores about 20 minutes: tests without Slurm, which show their progress, and tests on Slurm,"
    echo "one after the other, which are shown at the end; while they run: $HPCDDM_TEST_RUNS/on-slurm"
    mapfile -t files < <(grep -rl 'mark\.slurm' tests --include='test_*.py')
    # Bash lets what is in the background ignore Ctrl-C, and with it all that it starts.
    (
        trap - INT
        exec "$VENV/bin/python" -m pytest --durations=20 -m "slurm and $HERE" "${files[@]}" >"$HPCDDM_TEST_RUNS/on-slurm" 2>&1
    ) &
    on_slurm=$!
    # On Slurm most time is spent waiting; the others take what cores that leaves, and begin with the longest files.
    # Workers that share the cores must find the same tests, whose names may hold sets.
    PYTHONHASHSEED=0 nice -n 10 "$VENV/bin/python" -m pytest --durations=20 -n auto --dist loadfile --no-loadscope-reorder \
        -m "not slurm and $HERE" || failed=1
    wait "$on_slurm" || failed=1
    on_slurm=
    cat "$HPCDDM_TEST_RUNS/on-slurm"
fi
"$VENV/bin/python" tests/isolation/places.py report "$HPCDDM_OPENED" || [ -z "${CI:-}" ] || failed=1
exit "$failed"
