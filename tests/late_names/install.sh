#!/usr/bin/env bash
# Installs what the late-names file system is built of: a compiler, pkg-config and libfuse 3, all from Debian.
set -euo pipefail

packages=(gcc libc6-dev pkg-config libfuse3-dev fuse3)
if command -v gcc >/dev/null && pkg-config --exists fuse3 2>/dev/null; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "late names: tests of what NFS shows late need root on Debian (elsewhere install: ${packages[*]})" >&2
    exit 3
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
echo "late names: installing ${packages[*]}"
for step in "update" "install -y --no-install-recommends ${packages[*]}"; do
    # shellcheck disable=SC2086  # the step is words on purpose
    if ! apt-get -q -o DPkg::Lock::Timeout=60 $step >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "late names: 'apt-get ${step%% *}' failed; its last lines are above" >&2
        exit 1
    fi
done
rm -f "$log"
