"""What makes a testbed an institution of its own: a network without a way out, and a Unix user. Both need root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import processes
from processes import TestbedError

TEMPORARY = {tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"}
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000


def enter(pid: int) -> None:
    """Goes on in the network and among the mounts of that process."""
    _isolate("setns", os.pidfd_open(pid), CLONE_NEWNET | CLONE_NEWNS)


def make_network() -> None:
    """Goes on in a new network that has loopback only. It vanishes with the last process in it."""
    _isolate("unshare", CLONE_NEWNET)
    _administer("ip", "link", "set", "lo", "up")
    # Slurm asks getaddrinfo for addresses of a kind that this network has, and 127.0.0.1 does not count for that.
    _administer("ip", "address", "add", "127.0.0.2/8", "dev", "lo")


def _isolate(call: str, *arguments: int) -> None:
    # Python 3.12 has both calls in its os.
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*arguments):
        raise TestbedError(
            f"this machine forbids to make or enter a network namespace ({os.strerror(ctypes.get_errno())}): "
            "an isolated testbed needs root and, in a container, the capability CAP_SYS_ADMIN"
        )


def make_user(name: str, folder: Path) -> None:
    """The user, where it is missing, a private folder as its home, and the folder around it for its group only."""
    home = folder / "user"
    if not find_user(name):
        of_home = ("--home-dir", str(home), "--no-create-home", "--shell", "/bin/bash")
        _administer("useradd", "--system", "--user-group", *of_home, name)
    user = pwd.getpwnam(name)
    os.chown(folder, 0, user.pw_gid)
    folder.chmod(0o750)
    home.mkdir(mode=0o700, exist_ok=True)
    os.chown(home, user.pw_uid, user.pw_gid)


def remove_user(name: str) -> None:
    """With what it has in temporary folders: the next user of this number would own that."""
    user = find_user(name)
    if not user:
        return
    for entry in [entry for place in TEMPORARY for entry in Path(place).glob("*")]:
        with contextlib.suppress(FileNotFoundError):  # others' files come and go
            if entry.lstat().st_uid != user.pw_uid:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    _administer("userdel", "--force", name)


def find_user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def pids_of(name: str | None) -> list[int]:
    """Processes of that user, wherever they were started; without a user there are none."""
    user = find_user(name) if name else None
    return [process.pid for process in processes.listing() if process.uid == user.pw_uid] if user else []


def run_as(name: str, command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Replaces this process by a command of that user, in its home."""
    user = pwd.getpwnam(name)
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.chdir(user.pw_dir)
    own = {"HOME": user.pw_dir, "USER": name, "LOGNAME": name}
    os.execvpe(command[0], command, {**os.environ, **own, **environment})


def _administer(*command: str) -> None:
    done = subprocess.run(command, env={"PATH": processes.PATH}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"'{' '.join(command)}' failed: {done.stderr.strip()}")
