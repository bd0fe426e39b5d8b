"""The router: a small DiT that classifies noisy images by cluster (arXiv 2501.05450, sec. 3.2-3.3)."""

from typing import Literal

from hpcddm.config.data_shapes import NetworkData
from hpcddm.config.models import OneStreamSettings, RouterModelSettings
from hpcddm.models.base import Condition, Images, Logits, Times, TrainedRouter
from hpcddm.models.dit import Transformer, Trunk
from hpcddm.models.parameter_counts import count_head, count_trunk


class RouterDiTSettings(OneStreamSettings, RouterModelSettings):
    """A transformer's settings; `pool` is the classifier's input: the tokens' mean, or a CLS token."""

    size: Literal["S", "B", "L", "XL"] | None = None
    pool: Literal["mean", "cls"] = "mean"

    def parameters(self, data: NetworkData, num_clusters: int) -> int:
        cls = self.width if self.pool == "cls" else 0
        return count_trunk(self, data) + cls + count_head(self, num_clusters)


class RouterDiT(Transformer, TrainedRouter[RouterDiTSettings]):
    """A trunk whose pooled tokens are classified."""

    def __init__(self, settings: RouterDiTSettings, data: NetworkData, num_clusters: int):
        super().__init__(settings, Trunk(settings, data, cls=settings.pool == "cls"), num_clusters)
        self.settings = settings

    def forward(self, x: Images, t: Times, condition: Condition) -> Logits:
        tokens = self.normalised(x, t, condition)
        return self.head(tokens.mean(dim=1) if self.settings.pool == "mean" else tokens[:, 0]).float()
