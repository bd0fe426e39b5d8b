#!/usr/bin/env bash
# apt_install.sh LABEL PACKAGE...: installs Debian packages, quietly unless that fails; apt's own lines are some hundreds.
set -euo pipefail

label=$1
shift
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "$label: installing $*"
for step in "update" "install -y --no-install-recommends $*"; do
    # shellcheck disable=SC2086  # the step is words on purpose
    if ! apt-get -q -o DPkg::Lock::Timeout=60 $step >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "$label: 'apt-get ${step%% *}' failed; its last lines are above" >&2
        exit 1
    fi
done
