"""The verb prefetch for data sets of IDX files: from Debian's package where apt knows it, else from its authors."""

import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.errors.printing import echo, printable
from hpcddm.sources.downloads.idx_files import IdxFiles

SECONDS = 1800
ANSWER_SECONDS = 60
MAX_BYTES = 1 << 28
"""Most bytes of one file."""


def fetch_idx(files: IdxFiles, cache: Path | None) -> None:
    """Put the files into the cache, unless the cache or the experiments' folder has them.

    Raises `UserError` with the commands that get them elsewhere.
    """
    place = files.place(cache)
    for folder in (files.folder, place):
        defect = files.defect(folder)
        if defect is None:
            echo(f"present  {folder}  SHA-256 of {len(files.files)} files proven")
            return
        if defect != "missing":
            echo(f"{folder} is {defect}; fetching it again")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".fetching-") as staged:
            reasons = []
            for fetch in (_from_debian, _from_authors):
                try:
                    folder = fetch(files, Path(staged))
                    if (defect := files.defect(folder)) is None:
                        break
                    reasons.append(defect)
                except (OSError, subprocess.SubprocessError) as error:
                    reasons.append(printable(error, 120))
            else:
                raise UserError(f"{files.name}: could not be fetched ({'; '.join(reasons)}); {offline_advice(files)}")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for name in files.files:
                shutil.move(folder / name, place / name)
    except OSError as error:
        raise UserError(f"{place}: cannot write there: {error.strerror or error}") from error
    echo(f"fetched  {place}  SHA-256 of {len(files.files)} files proven, {files.licence}")


def offline_advice(files: IdxFiles) -> str:
    """Say how the files come from a machine with network."""
    addresses = " ".join(f"{files.mirror}/{name}" for name in files.files)
    return (
        f"as root: apt-get install {files.package}; or where there is a network, in an empty FOLDER:"
        f" curl --remote-name-all {addresses}; then submit here with data.source.folder=FOLDER"
    )


def _from_debian(files: IdxFiles, staged: Path) -> Path:
    """Unpack the Debian package, which is neither installed nor run; apt checks its signature."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise FileNotFoundError(f"no {tool} here")
    _run(["apt-get", "download", files.package], staged)
    packages = [str(path) for path in staged.glob("*.deb")]
    _run(["dpkg-deb", "--extract", *packages, "unpacked"], staged)
    return staged / "unpacked" / files.folder.relative_to("/")


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise OSError(f"{command[0]}: {errors[0] if errors else f'exit code {done.returncode}'}")


def _from_authors(files: IdxFiles, staged: Path) -> Path:
    folder = staged / "authors"
    folder.mkdir()
    for name in files.files:
        with urllib.request.urlopen(f"{files.mirror}/{name}", timeout=ANSWER_SECONDS) as answer:
            (folder / name).write_bytes(answer.read(MAX_BYTES))
    return folder
