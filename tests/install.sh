#!/usr/bin/env bash
# Installs what tests need beside Slurm, all from Debian: compilers, for torch.compile and for the late-names file system,
# pkg-config and libfuse 3, which that file system is built with, and ssh-keygen, whose signatures are compared with ours.
set -euo pipefail

packages=(g++ libc6-dev pkg-config libfuse3-dev fuse3 openssh-client)
if command -v gcc >/dev/null && command -v g++ >/dev/null && command -v ssh-keygen >/dev/null && pkg-config --exists fuse3 2>/dev/null; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "tests: those that compile, and those of what NFS shows late, need: ${packages[*]}; installing needs root on Debian" >&2
    exit 3
fi
exec bash "$(dirname "$0")/../slurm/testbed/apt_install.sh" tests "${packages[@]}"
