"""Two-stage k-means: many fine clusters, then K coarse ones from the fine centroids (arXiv 2501.05450, sec. 3.2)."""

from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64

from hpcddm.clustering.centroids import Centroids
from hpcddm.clustering.lloyd import lloyd
from hpcddm.clustering.two_stage import TwoStage
from hpcddm.config.clustering import TwoStageSettings


class KMeansSettings(TwoStageSettings):
    """Fine clusters, and the assignment of a sample to a coarse cluster.

    `fine_lookup` takes the coarse cluster of the nearest fine centroid (what the code of MoDE does);
    `nearest_coarse` takes the nearest coarse centroid (what the paper's text says).
    """

    assignment: Literal["fine_lookup", "nearest_coarse"] = "fine_lookup"


class KMeans(TwoStage[KMeansSettings]):
    """Coarse clusters by k-means of the fine centroids, each with weight one."""

    def merge_fine(
        self, fine: Float32[np.ndarray, "m d"], sizes: Int64[np.ndarray, " m"], num_clusters: int, seed: int
    ) -> tuple[Float32[np.ndarray, "k d"], Int64[np.ndarray, " m"] | None]:
        settings = self.settings
        coarse = lloyd(fine, num_clusters, settings.iterations, settings.restarts, seed)
        return coarse, Centroids(coarse).nearest(fine) if settings.assignment == "fine_lookup" else None
