"""The file ATTRIBUTION.md of a collection: who made its files, and under which licences they are."""

from pathlib import Path

from hpcddm.fetched.packages import Collection, Package
from hpcddm.rundir import atomic

FILE = "ATTRIBUTION.md"
LICENCES = {
    "Apache-2.0": "https://www.apache.org/licenses/LICENSE-2.0",
    "MIT": "https://opensource.org/license/mit",
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
    "CC-BY-SA-4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
    "LicenseRef-WordNet-3.0": "https://wordnet.princeton.edu/license-and-commercial-use",
}
DRAWN = ["The drawings are unchanged here; runs draw them on white, in another size.", ""]
DUTIES = {
    "CC-BY-4.0": "names its authors, links to the licence and says what was changed",
    "CC-BY-SA-4.0": "does so, too, and what is adapted from them is under the same licence",
}


def write(collection: Collection, packages: list[Package], folder: Path) -> Path:
    """Write the file for the packages that are there; return its path."""
    rows = [
        f"| {package.folder} | {package.author} | [{package.licence}]({LICENCES[package.licence]})"
        f" | {package.upstream} | {package.requirement} |"
        for package in packages
    ]
    notes = [f"- {package.folder}: {package.note}" for package in packages if package.note]
    licences = {package.licence for package in packages}
    duties = [f"- Who passes on drawings under {name} {duty}." for name, duty in DUTIES.items() if name in licences]
    lines = [
        f"# Attribution of the collection {collection.name}",
        "",
        "| folder | author | licence | upstream | package |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        *DRAWN * bool(collection.sets),
        *notes,
        *duties,
    ]
    atomic.write_text(folder / FILE, "\n".join(lines).rstrip() + "\n")
    return folder / FILE
