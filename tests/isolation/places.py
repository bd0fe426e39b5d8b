"""Places that tests may read, and a view of this machine in which the others are empty.

    python tests/isolation/places.py enter COMMAND...    run a command where what packages and people fill is empty
    python tests/isolation/places.py watch FOLDER        from now on, write down what Python opens elsewhere
    python tests/isolation/places.py report FOLDER       stop watching and list those files; 1 if there are any

The Python of the virtual environment calls this, with nothing imported but the standard library. `enter` needs root
on Linux: it makes a mount namespace, which ends with the command.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
HIDDEN = ("/root", "/home", "/opt", "/srv", "/mnt", "/media", "/data", "/scratch", "/usr/local/share", "/var/cache")
HIDDEN += ("/usr/share/datasets", "/usr/share/nltk_data", "/usr/share/wordnet", "/usr/share/fonts", "/usr/games")
"""Filled by packages, or by people."""
SYSTEM = ("/proc", "/sys", "/dev", "/run", "/etc", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/include")
SYSTEM += ("/usr/share/zoneinfo", "/usr/share/mime", "/usr/bin", "/usr/sbin", "/bin", "/sbin")
"""Part of every Linux, or of the Debian packages that tests/run.sh installs; the hidden places are not."""
NOWHERE = "/nowhere"
"""Folder that is nowhere, which tests name where a file is missing."""
HOOK = "hpcddm_opened_files.pth"

ENTER = """
set -e
keep=$(mktemp -d)
mount -t tmpfs tmpfs "$keep"
number=0
while IFS= read -r place; do
    [ -n "$place" ] || continue
    number=$((number + 1))
    if [ -d "$place" ]; then mkdir "$keep/$number"; else touch "$keep/$number"; fi
    mount --rbind "$place" "$keep/$number"
done <<< "$1"
while IFS= read -r place; do
    mount -t tmpfs -o mode=755 tmpfs "$place"
done <<< "$2"
number=0
while IFS= read -r place; do
    [ -n "$place" ] || continue
    number=$((number + 1))
    if [ -d "$keep/$number" ]; then mkdir -p "$place"; else mkdir -p "${place%/*}" && touch "$place"; fi
    mount --rbind "$keep/$number" "$place"
done <<< "$1"
umount --recursive --lazy "$keep"
rmdir "$keep"
here=$3
shift 3
exec env --chdir="$here" "$@"
"""


def interpreter() -> list[Path]:
    """Return the folders of the virtual environment, and of the Python that it was made with."""
    base = Path(sys.base_prefix).resolve()
    folders = [Path(sys.prefix).absolute(), Path(sys.executable).resolve().parent]
    if base in (Path("/usr"), Path("/usr/local")):
        return [*folders, *(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "include"))]
    return [*folders, base]


def configured_for_pip() -> Iterator[Path]:
    """Yield the files and folders that pip's settings name."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    settings = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for scheme, word in re.findall(r"(file://)?(/[^\s'\"]+)", settings):
        # The pages of an index on disk point to files beside it.
        path = Path(word).parent if scheme else Path(word)
        # Only existing places: most settings are addresses.
        if path.exists() and path != Path("/"):
            yield path


def kept() -> list[Path]:
    """Return the places outside of the system that tests may read."""
    temporary = [tempfile.gettempdir(), "/tmp", "/var/tmp", os.environ.get("HPCDDM_TESTBED", "/tmp")]
    places = [CHECKOUT, *interpreter(), *map(Path, temporary), *configured_for_pip()]
    return sorted({form for place in places for form in (place.absolute(), place.resolve())})


def enter(command: list[str]) -> None:
    """Replace this process by a command that finds the hidden places empty, but for what tests may read in them."""
    allowed = kept()
    hidden = [place for place in map(Path, HIDDEN) if place.is_dir() and not place.is_symlink()]
    hidden = [place for place in hidden if not any(place.is_relative_to(one) for one in allowed)]
    inside = [place for place in allowed if place.exists() and any(place.is_relative_to(one) for one in hidden)]
    inside = [place for place in inside if not any(one in inside for one in place.parents)]
    lines = ["\n".join(map(str, places)) for places in (inside, hidden)]
    unshare = ["unshare", "--mount", "--propagation", "private", "bash", "-c", ENTER, "enter"]
    os.execvp(unshare[0], [*unshare, *lines, os.getcwd(), *command])


def watch(folder: Path) -> None:
    """Install the hook into the virtual environment; whatever it writes down is one line of a file in `folder`."""
    # The home lies in a temporary folder, and what is read there is somebody's all the same.
    prefixes = [f"{place}/" for place in [Path.home(), *SYSTEM, NOWHERE, *kept()]]
    (folder / "places").write_text("\n".join(prefixes))
    hook = Path(__file__).with_name("opened_files.py")
    source = f'open({str(hook)!r}).read() + "\\ninstall({str(folder)!r})"'
    # A folder that is gone, as after a run that was killed, ends the watching.
    line = f"import os; os.path.isdir({str(folder)!r}) and exec({source}, {{}})\n"
    Path(sysconfig.get_path("purelib"), HOOK).write_text(line)


def report(folder: Path) -> int:
    """List the files that were opened elsewhere, each with the first test that did; return 1 if there are any."""
    Path(sysconfig.get_path("purelib"), HOOK).unlink(missing_ok=True)
    opened: dict[str, str] = {}
    for file in sorted(folder.glob("*.txt")):
        for line in file.read_text(errors="replace").splitlines():
            path, _, test = line.partition("\t")
            opened.setdefault(path, test)
    shutil.rmtree(folder)
    for path, test in sorted(opened.items()):
        print(f"  {path}    {test}")
    print(f"files that tests opened outside of the checkout and of what they install: {len(opened)}")
    return int(bool(opened))


def main(arguments: list[str]) -> int:
    match arguments:
        case ["enter", *command] if command:
            enter(command)
        case ["watch", folder]:
            watch(Path(folder))
        case ["report", folder]:
            return report(Path(folder))
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
