"""Words of captions that distinguish a cluster from the others."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

WORD = re.compile(r"[^\W\d_]{2,}")
"""Letters of any alphabet that follow one another, two and more."""


@dataclass(frozen=True)
class Keyword:
    """A word, with the shares of the captions that have it: in the cluster, and in all others together."""

    word: str
    here: float
    elsewhere: float


def find_keywords(captions: Sequence[Sequence[str]], count: int) -> list[list[Keyword]]:
    """Return for each of some clusters the words whose mean TF-IDF in its captions most exceeds that in the others.

    A caption is a document: TF is 1 for a word that it has and else 0, and IDF is ln(N / n) for a word of n of all N
    captions (Sparck Jones, A statistical interpretation of term specificity, 1972). A word that is not more
    frequent than in other clusters is not a keyword.
    """
    counts = [Counter(word for text in texts for word in set(WORD.findall(text.lower()))) for texts in captions]
    together: Counter[str] = sum(counts, Counter())
    total = sum(map(len, captions))
    typical = []
    for own, texts in zip(counts, captions, strict=True):
        others = total - len(texts)
        scored = []
        for word, number in own.items():
            here, elsewhere = number / len(texts), (together[word] - number) / others if others else 0.0
            score = (here - elsewhere) * math.log(total / together[word])
            if score > 0:
                scored.append((-score, Keyword(word, here, elsewhere)))
        typical.append([word for _, word in sorted(scored, key=lambda item: (item[0], item[1].word))[:count]])
    return typical
