"""Data sets of IDX files, which shipped experiments name where Debian's packages put them; the cache may hold them."""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from hpcddm.config import pretrained


@dataclass(frozen=True)
class IdxFiles:
    """A data set of gzipped IDX files, known by the SHA-256 of what is inside them."""

    name: str
    folder: Path
    """Folder that experiments name, in which the Debian package puts the files."""
    package: str
    """Debian package."""
    mirror: str
    """Address of its authors', below which every file has its name."""
    files: dict[str, str]
    """SHA-256 of the content of every file, decompressed: gzip notes a time, too."""
    licence: str

    def place(self, cache: Path | None = None) -> Path:
        """Return its folder in the cache."""
        return (cache or pretrained.cache_folder()) / "downloads" / self.name

    def defect(self, folder: Path) -> str | None:
        """Return the reason why a folder does not hold the data set, or None."""
        for name, sha256 in self.files.items():
            try:
                with gzip.open(folder / name) as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            except FileNotFoundError:
                return "missing"
            except (OSError, EOFError, zlib.error) as error:
                return f"damaged: {name} ({error})"
            if digest != sha256:
                return f"damaged: {name}"
        return None


FASHION_MNIST = IdxFiles(
    "fashion_mnist",
    Path("/usr/share/datasets/fashion-mnist"),
    "dataset-fashion-mnist",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    {
        "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    "MIT, Zalando SE",
)
IDX_FILES = (FASHION_MNIST,)


def fetched(path: Path) -> Path:
    """Return the folder in the cache for one that experiments name, where only the cache has it; else the path."""
    for one in IDX_FILES:
        if path == one.folder and not path.exists() and one.place().is_dir():
            return one.place()
    return path
