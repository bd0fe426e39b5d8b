"""Collections that `hpcddm prefetch` fetches, of images or words: one file says which packages one is made of."""

from hpcddm.fetched.emoji import EMOJI
from hpcddm.fetched.wordnet import WORDNET

COLLECTIONS = {collection.name: collection for collection in (EMOJI, WORDNET)}
