"""Collections of images that `hpcddm prefetch` fetches: one file says which packages a collection is made of."""

from hpcddm.collections.emoji import EMOJI

COLLECTIONS = {collection.name: collection for collection in (EMOJI,)}
