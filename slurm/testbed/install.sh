#!/usr/bin/env bash
# Installs what the testbed needs: Slurm, its accounting daemon, munge and MariaDB, all from Debian.
#
# Only programs are wanted, no system services: the testbed starts its own daemons, as its own
# copies, in its own folder. A machine that has the programs already is left alone.
set -euo pipefail

programs=(slurmctld slurmd slurmdbd srun munged mariadbd mariadb-install-db)
packages=(slurmctld slurmd slurm-client slurmdbd munge mariadb-server)
export PATH="$PATH:/usr/sbin:/sbin"

missing=()
for program in "${programs[@]}"; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "testbed: Slurm, munge and MariaDB are installed already"
    exit 0
fi

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "testbed: ${missing[*]} missing; installing needs root on Debian" \
         "(elsewhere install: ${packages[*]})" >&2
    exit 3
fi

# Debian's packages start their services at once unless a policy-rc.d forbids it (101: forbidden).
# A policy that somebody else put there comes back afterwards.
policy=/usr/sbin/policy-rc.d
kept=$(mktemp -d)
restore_policy() {
    rm -f "$policy"
    if [ -e "$kept/policy-rc.d" ]; then mv "$kept/policy-rc.d" "$policy"; fi
    rmdir "$kept"
}
if [ -e "$policy" ]; then mv "$policy" "$kept/policy-rc.d"; fi
trap restore_policy EXIT
printf '#!/bin/sh\nexit 101\n' >"$policy"
chmod 755 "$policy"

bash "$(dirname "$0")/apt_install.sh" testbed "${packages[@]}"
echo "testbed: installed $(slurmctld -V)"
