"""Concepts of many captions: captions/s of the matcher on one core, and its anonymous memory on the way.

    python -m tests.benchmarks.concept_index [--captions 10000000] [--matching bag] [--seed 0]

The captions are invented: 4 to 16 of 50,000 words, Zipf-distributed, a tenth of them in the plural, and one in ten
followed by a comma; three in ten have a concept of two words. Of the 4,000 concepts a thousand have two words. Only
the matching is timed, and the counting, not the inventing; memory is that of the process (RssAnon), after each tenth.
"""

import argparse
import hashlib
import os
import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from hpcddm.evaluation.concepts.matching import Matcher
from hpcddm.evaluation.concepts.vocabulary import Concept, Vocabulary
from tests.benchmarks.scale import MEGABYTE, anonymous_bytes

WORDS, SINGLE, PAIRS = 50_000, 3_000, 1_000
EXPONENT = 1.1
"""Exponent of the words' frequencies by their ranks."""
BLOCK = 10_000
"""Captions that are matched at a time."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def word(rank: int) -> str:
    """The word of a rank, of letters alone, that no other one is the plural of."""
    digits = [rank // len(LETTERS) ** place % len(LETTERS) for place in range(4)]
    return "".join(LETTERS[digit] for digit in digits) + "o"


def vocabulary() -> Vocabulary:
    """Single words of all frequencies, and pairs of frequent ones."""
    ranks = sorted({int(rank) for rank in np.geomspace(20, WORDS - 1, 2 * SINGLE)})
    step = len(ranks) / SINGLE
    singles = [word(ranks[int(place * step)]) for place in range(SINGLE)]
    pairs = [f"{word(20 + number)} {word(21 + 7 * number % 5_000)}" for number in range(PAIRS)]
    lemmas = {f"{part}s": part for name in (*singles, *pairs) for part in name.split()}
    return Vocabulary([Concept(name) for name in sorted({*singles, *pairs})], lemmas)


def invented(count: int, pairs: list[str], seed: int) -> Iterator[list[str]]:
    """Blocks of captions; each is a function of its number and the seed."""
    frequency = np.arange(1, WORDS + 1) ** -EXPONENT
    shares = np.cumsum(frequency / frequency.sum())
    forms = np.array([word(rank) for rank in range(WORDS)], object)
    forms = np.stack([forms, forms + "s", forms + ","])
    for start in range(0, count, BLOCK):
        draws = np.random.default_rng([seed, start])
        size = min(BLOCK, count - start)
        ends = np.cumsum(draws.integers(4, 17, size))
        ranks = np.minimum(np.searchsorted(shares, draws.random(ends[-1])), WORDS - 1)
        kinds = draws.choice(3, len(ranks), p=(0.8, 0.1, 0.1))
        words = forms[kinds, ranks].tolist()
        with_pair = draws.random(size) < 0.3
        which = draws.integers(len(pairs), size=size)
        for number in np.flatnonzero(with_pair):
            words[ends[number] - 1] = pairs[which[number]]
        yield [" ".join(words[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=10_000_000)
    parser.add_argument("--matching", choices=("phrase", "bag"), default="phrase")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    concepts = vocabulary()
    matcher, counts = Matcher(concepts, options.matching), np.zeros(len(concepts), np.int64)
    pairs = [concept.name for concept in concepts.concepts if " " in concept.name]
    table = Table("captions", "CPU seconds", "captions/s of this tenth", "anonymous MB")
    done, seconds, told = 0, 0.0, (0, 0.0)
    table.add_row("0", "0.0", "", f"{anonymous_bytes(os.getpid()) / MEGABYTE:.1f}")
    for block in invented(options.captions, pairs, options.seed):
        started = time.process_time()
        rows = matcher.match(block)
        counts += np.bincount(np.concatenate(rows), minlength=len(counts))
        seconds += time.process_time() - started
        done += len(block)
        if done * 10 // options.captions > told[0] * 10 // options.captions or done == options.captions:
            rate = (done - told[0]) / (seconds - told[1])
            memory = anonymous_bytes(os.getpid()) / MEGABYTE
            table.add_row(f"{done:,}", f"{seconds:.1f}", f"{rate:,.0f}", f"{memory:.1f}")
            told = (done, seconds)
    console = Console(width=120)
    console.print(table)
    digest = hashlib.sha256(counts.tobytes()).hexdigest()[:12]
    console.print(
        f"{options.matching}: {done / seconds:,.0f} captions/s; {len(counts):,} concepts, {np.sum(counts):,} mentions,"
        f" from {counts.min():,} to {counts.max():,} of a concept; SHA-256 of the counts begins {digest}"
    )


if __name__ == "__main__":
    main()
