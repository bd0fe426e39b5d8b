#!/bin/bash
# `make test`: everything that can run here. With root on Debian a real Slurm is installed; in CI not having one is a
# failure. Then the tests run with an empty home, and as root on Linux where what packages and people fill is empty, too.
# Arguments go to pytest, and then all tests run one after the other.
set -u
cd "$(dirname "$0")/.." || exit 1
export VENV=${VENV:-.venv}
export HPCDDM_TESTBED=${HPCDDM_TESTBED:-/tmp/hpcddm-testbed}
bash slurm/testbed/install.sh
# Without it the tests in tests/late_names are skipped, others fail, and in CI neither may be.
bash tests/install.sh || [ -z "${CI:-}" ] || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch"/{home/.config,runs,pip,opened}
# Of the home, tests get what pip is configured by.
for own in .config/pip .pip .netrc; do
    [ ! -e "$HOME/$own" ] || cp -r "$HOME/$own" "$scratch/home/$own"
done
export HOME=$scratch/home PIP_CACHE_DIR=$scratch/pip HPCDDM_TEST_RUNS=$scratch/runs HPCDDM_OPENED=$scratch/opened
for name in $(compgen -e | grep -E '^(HF_|HUGGINGFACE_|TRANSFORMERS_|TORCH_HOME$|XDG_|HPCDDM_CACHE$|HPCDDM_VARIANTS$|PYTHON)'); do
    unset "$name"
done
if [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; then
    "$VENV/bin/python" tests/isolation/places.py enter bash tests/run_isolated.sh "$@"
else
    echo "NOTE: no mount namespace could be made (it needs root on Linux): only the home is empty" >&2
    bash tests/run_isolated.sh "$@"
fi
