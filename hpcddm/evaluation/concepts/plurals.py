"""Plurals of English nouns by rule, and by a short list."""

from collections.abc import Iterable, Iterator

IRREGULAR = {
    "cactus": "cacti",
    "child": "children",
    "die": "dice",
    "foot": "feet",
    "fungus": "fungi",
    "goose": "geese",
    "louse": "lice",
    "man": "men",
    "mouse": "mice",
    "ox": "oxen",
    "person": "people",
    "tooth": "teeth",
}
"""Ends of nouns, and of their plurals that no rule makes: 'woman' and 'fireman' have theirs, too."""
ENDS = (("y", "ies"), ("fe", "ves"), ("f", "ves"), *((end, f"{end}es") for end in ("s", "x", "z", "ch", "sh", "o")))
"""Ends of nouns, and of plurals that they may have beside the one in -s: a plural that nobody writes does no harm."""


def lemmas(names: Iterable[str]) -> dict[str, str]:
    """Map each plural that the words of these names may have to its singular; the words are taken as singulars."""
    words = sorted({word for name in names for word in name.split()})
    singulars: dict[str, str] = {}
    for word in words:
        for plural in _plurals(word):
            singulars.setdefault(plural, word)
    return {plural: word for plural, word in sorted(singulars.items()) if plural not in words}


def is_plural(word: str, singular: str) -> bool:
    """Tell if a rule makes a word of a singular; one in -ss or -us is none (S stemmer of Harman, JASIS 42, 1991)."""
    return not word.endswith(("ss", "us")) and word in _plurals(singular)


def _plurals(word: str) -> Iterator[str]:
    yield f"{word}s"
    for ends in (ENDS, IRREGULAR.items()):
        yield from (word.removesuffix(end) + plural for end, plural in ends if word.endswith(end))
