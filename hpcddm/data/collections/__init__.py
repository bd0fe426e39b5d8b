"""Collections that `hpcddm prefetch` fetches: one file says which packages one is made of."""

from hpcddm.data.collections.wordnet_package import WORDNET

COLLECTIONS = {collection.name: collection for collection in (WORDNET,)}
