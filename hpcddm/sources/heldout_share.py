"""Held-out images as a share of all: which ones says a hash of their keys.

An image more or less moves no other one between the splits, and every process, run and site finds the same ones.
"""

import hashlib


def is_heldout(key: str, share: float) -> bool:
    """Tell if the image of this key is one of the held-out share, 0 < share < 1.

    Its hash, as a number in [0, 1), is below the share: a greater share holds out the same images and more.
    """
    # A name in a tar or in a folder need not be UTF-8.
    hashed = hashlib.blake2b(key.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(hashed, "big") < share * 2**64


def is_of_split(split: str, share: float | None, key: str) -> bool:
    """Tell if the image of this key is in a split, where a share of all is held out; always True without a share."""
    return share is None or is_heldout(key, share) == (split == "heldout")


def share_of(split: str, share: float | None) -> float:
    """Return the share of all images that is in a split; 1 where no share is held out."""
    return 1.0 if share is None else {"train": 1 - share, "heldout": share}[split]
