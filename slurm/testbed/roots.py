"""Newer Slurms on this machine: `python roots.py SUITE COMMAND ...` runs a command in a Debian root of another suite.

    trixie    Slurm 24.11
    sid       the newest Slurm in Debian, and apptainer

The root is made where it is missing: two minutes, 1 GB, from the mirror that apt uses here. Inside, /proc, /sys, /dev,
the temporary folder, home, checkout and this Python with its packages are the machine's, everything else is that
suite's; the mounts vanish with the command. `bash slurm/testbed/up.sh FOLDER` in there starts a testbed of that Slurm,
and `python -m pytest -m slurm` with HPCDDM_TESTBED=FOLDER tests with it. HPCDDM_ROOTS names the folder of all roots
(default /var/tmp/hpcddm-roots); it may be removed at any time, and is visible inside.

`python roots.py --image` makes a container's folder and prints its path: a minimal Debian with a Python of its own and
with the libraries that setup.cfg names; the project itself is not in it.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SLURM = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge", "mariadb-server", "iproute2")
# Shared libraries that a Python built from source on an older Debian wants.
PYTHON = ("libffi8", "libssl3t64", "libsqlite3-0", "libbz2-1.0", "liblzma5", "libreadline8t64", "zlib1g")
PACKAGES = {"trixie": (*SLURM, *PYTHON), "sid": (*SLURM, *PYTHON, "apptainer")}
# The image has Debian's Python, and the libraries come from this one's pip: both must be of one version.
IMAGES = {(3, 11): "bookworm", (3, 13): "trixie"}
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc")
FILES = ("/etc/hosts", "/etc/resolv.conf")
# debootstrap's scripts of this machine may not know a suite that is newer; sid's serves all.
SCRIPTS = Path("/usr/share/debootstrap/scripts")

ENTER = """
set -e
root=$1
here=$PWD
mount --bind "$root" "$root"
while IFS= read -r place; do
    mkdir -p "$root$place"
    mount --rbind "$place" "$root$place"
done <<< "$2"
while IFS= read -r file; do
    mkdir -p "$root${file%/*}"
    touch "$root$file"
    mount --bind "$file" "$root$file"
done <<< "$3"
shift 3
# Not chroot: apptainer refuses to run in what it could leave.
cd "$root"
pivot_root . .
umount --lazy .
exec env --chdir="$here" "$@"
"""


class RootError(Exception):
    """Something that the user should read as one message, without a traceback."""


def folder() -> Path:
    return Path(os.environ.get("HPCDDM_ROOTS") or "/var/tmp/hpcddm-roots").resolve()


def shared_places() -> list[Path]:
    """Folders of the machine that are the same inside; none is inside another one."""
    names = [CHECKOUT, Path.cwd(), Path.home(), folder(), tempfile.gettempdir(), sys.prefix, sys.base_prefix, *sys.path]
    places = {path for name in names for path in (Path(name).absolute(), Path(name).resolve()) if path.is_dir()}
    for place in sorted(places):
        if place == Path("/") or any(place.is_relative_to(top) for top in SYSTEM):
            raise RootError(
                f"{place} cannot be shared with a root, which has its own: call this with the Python of a "
                "virtual environment whose interpreter is outside /usr"
            )
    places |= {Path("/proc"), Path("/sys"), Path("/dev")}
    return sorted(place for place in places if not any(parent in places for parent in place.parents))


def enter(root: Path, command: list[str], places: list[Path], files: Sequence[str] = FILES) -> list[str]:
    """The command line that runs a command in a root with some of this machine's places and files, in a mount namespace
    of its own."""
    alone = ["unshare", "--mount", "--propagation", "private"]
    return [*alone, "bash", "-c", ENTER, "enter", str(root), "\n".join(map(str, places)), "\n".join(files), *command]


def made(suite: str) -> Path:
    """The root of a suite, made where it is missing."""
    if suite not in PACKAGES:
        raise RootError(f"the suite {suite} is unknown; choose one of {', '.join(PACKAGES)}")
    return root_of(suite, suite, PACKAGES[suite])


def root_of(name: str, suite: str, packages: tuple[str, ...]) -> Path:
    """Return the root of that name, made from a suite and some of its packages where it is missing."""
    with making(name) as half:
        if half:
            bootstrap(suite, half)
            install(half, packages)
    return folder() / name


def image() -> Path:
    """The folder of a container's image, made where it is missing."""
    suite = IMAGES.get(sys.version_info[:2])
    if not suite:
        raise RootError(f"no Debian is known here with Python {sys.version_info[0]}.{sys.version_info[1]}")
    with making("image") as half:
        if half:
            bootstrap(suite, half)
            install(half, ("python3-minimal", "python3", "iproute2"))
            setup = configparser.ConfigParser()
            setup.read(CHECKOUT / "setup.cfg")
            libraries = setup["options"]["install_requires"].split()
            target = half / "usr/local/lib/python{}.{}/dist-packages".format(*sys.version_info)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
            run(["env", "DS_BUILD_OPS=0", *pip, "--constraint", str(CHECKOUT / "constraints.txt"), *libraries])
    return folder() / "image"


@contextlib.contextmanager
def making(name: str) -> Iterator[Path | None]:
    """Where to make a root, which takes its place afterwards; None when it is there already."""
    root, half = folder() / name, folder() / f"{name}.half-made"
    folder().mkdir(parents=True, exist_ok=True)
    with only_one(folder()):
        if root.exists():
            yield None
            return
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise RootError("making a root needs root on Debian")
        print(f"roots: making {root} (some minutes)", file=sys.stderr, flush=True)
        shutil.rmtree(half, ignore_errors=True)
        yield half
        half.rename(root)


def bootstrap(suite: str, root: Path) -> None:
    """A minimal Debian of that suite, from the mirror that apt uses here."""
    if not shutil.which("debootstrap"):
        run(["apt-get", "-q", "update"])
        run(["apt-get", "-q", "install", "-y", "--no-install-recommends", "debootstrap"])
    script = SCRIPTS / (suite if (SCRIPTS / suite).exists() else "sid")
    run(["debootstrap", "--variant=minbase", "--merged-usr", suite, str(root), mirror(), str(script)])
    # Debian's packages start their services at once unless a policy-rc.d forbids it.
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    # A proxy, or a mirror that hangs, counts inside as well.
    keys = ("Acquire::http", "Acquire::https", "Acquire::Check-Valid-Until", "Acquire::Check-Date")
    (root / "etc/apt/apt.conf.d/80machine").write_text(run(["apt-config", "dump", *keys]))


def mirror() -> str:
    """Where apt fetches Debian's own packages on this machine."""
    targets = run(["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"])
    found = [line.split()[1] for line in targets.splitlines() if line.startswith("Debian ")]
    if not found:
        raise RootError("apt knows no mirror of Debian here; run 'apt-get update' first")
    return found[0]


def install(root: Path, packages: tuple[str, ...]) -> None:
    places = [Path("/proc"), Path("/sys"), Path("/dev")]
    for step in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        run(enter(root, ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", *step], places), cwd="/")


def run(command: list[str], cwd: str | None = None) -> str:
    """What a command prints; its last lines are the message when it fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise RootError(f"this failed: {' '.join(command[:6])} ...\n{last}")
    return done.stdout


@contextlib.contextmanager
def only_one(place: Path) -> Iterator[None]:
    """Two calls at the same time take turns."""
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def main() -> int:
    if len(sys.argv) < 3 and sys.argv[1:] != ["--image"]:
        print(__doc__)
        return 2
    try:
        if sys.argv[1] == "--image":
            print(image())
            return 0
        command = enter(made(sys.argv[1]), sys.argv[2:], shared_places())
    except (RootError, OSError) as error:
        print(f"roots: {error}", file=sys.stderr)
        return 1
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
