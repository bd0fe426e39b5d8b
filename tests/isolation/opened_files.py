"""Hook of every Python of the virtual environment while tests run: writes down the files that it opens elsewhere.

`places.py watch` has it executed at the start of each interpreter, so it imports only what is imported already.
"""

import os
import sys

NOT_COUNTED = ("/fonts", "/.fonts", "/.cache/matplotlib/", "/.config/matplotlib/stylelib")
NOT_COUNTED += ("/.config/pip/", "/.pip/", "/.netrc")
"""Parts of the paths of fonts and styles, which matplotlib lists though it uses its own, and of pip's settings."""


def install(folder: str) -> None:
    """Write down each path outside of the allowed places, or in the home, once per process, with the test that ran."""
    with open(f"{folder}/places") as file:
        home, *places = file.read().splitlines()
    allowed = tuple(places)
    noted: set[str] = set()
    fspath, abspath, fsdecode = os.fspath, os.path.abspath, os.fsdecode

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event not in ("open", "os.listdir", "os.scandir") or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        path = abspath(fsdecode(fspath(arguments[0])))
        is_allowed = path == "/" or (f"{path}/".startswith(allowed) and not path.startswith(home))
        if is_allowed or path in noted or any(part in path for part in NOT_COUNTED):
            return
        noted.add(path)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" (")[0]
        with open(f"{folder}/{os.getpid()}.txt", "a") as file:
            file.write(f"{path}\t{test or ' '.join(sys.argv[:3])}\n".replace("\n", " ").rstrip() + "\n")

    sys.addaudithook(note)
