"""Work of a unit on images: which networks run, on how many images, in batches of what size."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.runs.ranges import images_of_range
from hpcddm.runs.unit_keys import MONOLITH, MONOLITH_ARM, STUDENT_ARM, expert_key, expert_of, experts_of, stage_of
from hpcddm.sampling import nfe
from hpcddm.sampling.nfe import NetworkEvaluations

DENOISER, ROUTER, ENCODER = f"{stage_of(MONOLITH)}/", "router", "encoder"
TEXT_ENCODER = "text encoder"
AUTOENCODER, ENCODE_LATENTS, DECODE_LATENTS = "autoencoder", "encoding to latents", "decoding of latents"
"""Names of networks; a denoiser has the key of the first unit that trains one made alike: the monolith's, mostly."""
TAR, READING, SINGLE_READING = "tar", "reading", "reading in one thread"
"""Names of the work without a network: images become PNG in a tar, or those of an adopted tar are decoded; images are
read as a training reads them; they are read by one thread."""
SAMPLE_WORK = frozenset({TAR, READING, SINGLE_READING})
"""Work on real samples, whose images must be there to be measured."""


@dataclass(frozen=True)
class Work:
    """Run of one network on so many images, in batches of so many for all ranks together."""

    network: str
    is_training: bool
    images: int
    batch: int


@dataclass(frozen=True)
class Workload:
    """Experiment with its numbers of 'train' and 'heldout' images, from which a stage's `work` lists that of a unit."""

    settings: Experiment
    counts: dict[str, int]

    def images_of(self, key: str) -> int:
        """Count the images of a unit that is a range of tars."""
        return images_of_range(self.settings, key, self.counts)

    def denoiser(self, expert: Expert | None) -> str:
        """Return the name of an expert's network (None: the monolith's), which is that of the first one made alike."""
        everyone = (MONOLITH, *map(expert_key, experts_of(self.settings)))
        return next(key for key in everyone if self._is_alike(expert_of(key), expert))

    def encoding_captions(self, training: Work) -> list[Work]:
        """List the run of the text encoder on a training's images, where it encodes their captions in every step."""
        if not self.settings.data.condition.encodes_in_steps:
            return []
        return [Work(TEXT_ENCODER, False, training.images, training.batch)]

    def through_autoencoder(self, direction: str, images: int, batch: int) -> list[Work]:
        """List the run of the autoencoder on so many images, to latents or back; nothing where x is no latent."""
        return [Work(direction, False, images, batch)] if self.settings.data.space.reads_latents else []

    def sampling(
        self, arms: list[str], images: int, batch: int, count: Callable[..., NetworkEvaluations] = nfe.of_arm
    ) -> list[Work]:
        """List the work of drawing so many images in each of some arms; count: evaluations per image."""
        evaluate, experts = self.settings.evaluate, self.settings.cluster.experts
        together = batch * (1 if evaluate.guidance == 1 else 2)
        per_arm = {arm: count(arm, evaluate, experts) for arm in arms}
        dense = sum(per_arm[arm].experts for arm in per_arm if arm in (MONOLITH_ARM, STUDENT_ARM))
        routed = [per_arm[arm] for arm in per_arm if arm not in (MONOLITH_ARM, STUDENT_ARM)]
        work = [Work(MONOLITH, False, round(images * dense), together)] if dense else []
        return work + self.of_experts(images, together, sum(routed, NetworkEvaluations()))

    def of_experts(self, images: int, batch: int, per_image: NetworkEvaluations) -> list[Work]:
        """List the work of the experts, each evaluated equally often, those made alike together, and of the router."""
        kinds = Counter(self.denoiser(expert) for expert in range(self.settings.cluster.experts))
        share = images * per_image.experts / kinds.total()
        work = [Work(name, False, round(count * share), batch) for name, count in kinds.items()]
        return [*work, Work(ROUTER, False, round(images * per_image.router), batch)]

    def _is_alike(self, one: Expert | None, other: Expert | None) -> bool:
        first, second = self.settings.expert_config(one), self.settings.expert_config(other)
        return (first.model, first.precision) == (second.model, second.precision)
