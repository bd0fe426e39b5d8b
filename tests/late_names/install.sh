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
exec bash "$(dirname "$0")/../../slurm/testbed/apt_install.sh" "late names" "${packages[@]}"
