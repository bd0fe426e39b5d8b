"""The file ATTRIBUTION.md of a download: who made its files, and under which licences they are."""

from pathlib import Path

from hpcddm.files import atomic
from hpcddm.sources.downloads.npm_packages import NpmDownload

FILE = "ATTRIBUTION.md"
LICENCES = {
    "Apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "MIT": "https://opensource.org/license/mit",
    "LicenseRef-WordNet-3.0": "https://wordnet.princeton.edu/license-and-commercial-use",
}


def write(download: NpmDownload, folder: Path) -> Path:
    """Write the file into a folder; return its path."""
    rows = [
        f"| {package.folder} | {package.author} | [{package.licence}]({LICENCES[package.licence]})"
        f" | {package.upstream} | {package.requirement} |"
        for package in download.packages
    ]
    notes = [f"- {package.folder}: {package.note}" for package in download.packages if package.note]
    lines = [
        f"# Attribution of the download {download.name}",
        "",
        "| folder | author | licence | upstream | package |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        *notes,
    ]
    atomic.write_text(folder / FILE, "\n".join(lines).rstrip() + "\n")
    return folder / FILE
