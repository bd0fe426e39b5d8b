"""Workload of a unit: the networks that it runs, with numbers of images and batch sizes, for cost estimates."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Expert
from hpcddm.runs.ranges import images_of_range
from hpcddm.runs.unit_keys import MONOLITH, MONOLITH_ARM, STUDENT_ARM, all_experts, expert_key, expert_of, stage_of
from hpcddm.sampling.ensemble import NetworkEvaluations
from hpcddm.training import flops_budget

DENOISER, ROUTER, ENCODER = f"{stage_of(MONOLITH)}/", "router", "encoder"
TEXT_ENCODER = "text encoder"
EVALUATOR = "evaluator "
"""Prefix of the names of the encoders that measure images; the label of the encoder follows."""
AUTOENCODER, ENCODE_LATENTS, DECODE_LATENTS = "autoencoder", "encoding to latents", "decoding of latents"
"""Names of networks; a denoiser is named by the first unit that trains an equal network, usually the monolith's."""
TAR, READING, SINGLE_READING = "tar", "reading", "reading in one thread"
"""Names of work without a network: images are written to tars (or decoded from existing tars), images are read as in a
training, images are read in one thread."""
SAMPLE_WORK = frozenset({TAR, READING, SINGLE_READING})
"""Work on real samples, which can be measured only if the images exist."""


@dataclass(frozen=True)
class Work:
    """Run of one network.

    Args:
        network: Name of the network or of the work.
        is_training: True for forward and backward passes, False for forward passes only.
        images: Number of images.
        batch: Number of images per batch over all ranks.
    """

    network: str
    is_training: bool
    images: int
    batch: int


@dataclass(frozen=True)
class Workload:
    """Experiment with its numbers of images, from which the stages derive the work of their units.

    Args:
        experiment: The experiment.
        counts: Number of images in each split, `train` and `heldout`.
    """

    experiment: Experiment
    counts: dict[str, int]

    def images_of(self, key: str) -> int:
        """Return the number of images of a unit that processes a range of tars."""
        return images_of_range(self.experiment, key, self.counts)

    def denoiser(self, expert: Expert | None) -> str:
        """Return the name of an expert's network: the key of the first unit that trains an equal network.

        Args:
            expert: Number of the cluster, or name of an extra expert; None for the monolith.
        """
        keys = (MONOLITH, *map(expert_key, all_experts(self.experiment)))
        return next(key for key in keys if self._is_alike(expert_of(key), expert))

    def training(self, network: str, key: str) -> Work:
        """Return the work of a unit's training of a network."""
        settings = flops_budget.training_of(self.experiment, key).settings
        return Work(network, True, settings.images, settings.batch)

    def encoding_captions(self, training: Work) -> list[Work]:
        """List the work of the text encoder in a training; empty unless the training encodes captions in every step."""
        if not self.experiment.data.condition.encodes_in_steps:
            return []
        return [Work(TEXT_ENCODER, False, training.images, training.batch)]

    def through_autoencoder(self, direction: str, images: int, batch: int) -> list[Work]:
        """List the work of the autoencoder; empty if x is not a latent.

        Args:
            direction: `ENCODE_LATENTS` or `DECODE_LATENTS`.
            images: Number of images.
            batch: Number of images per batch.
        """
        return [Work(direction, False, images, batch)] if self.experiment.data.space.reads_latents else []

    def sampling(
        self, arms: list[str], images: int, batch: int, count: Callable[..., NetworkEvaluations]
    ) -> list[Work]:
        """List the work of sampling images.

        Args:
            arms: Names of the arms.
            images: Number of images per arm.
            batch: Number of images per batch; guidance doubles the batch of the networks.
            count: Function of arm, `EvaluateSettings` and number of experts that returns the evaluations per image.
        """
        evaluate, experts = self.experiment.evaluate, self.experiment.cluster.experts
        together = batch * (1 if evaluate.guidance == 1 else 2)
        per_arm = {arm: count(arm, evaluate, experts) for arm in arms}
        dense = sum(per_arm[arm].experts for arm in per_arm if arm in (MONOLITH_ARM, STUDENT_ARM))
        routed = [per_arm[arm] for arm in per_arm if arm not in (MONOLITH_ARM, STUDENT_ARM)]
        work = [Work(MONOLITH, False, round(images * dense), together)] if dense else []
        return work + self.expert_work(images, together, sum(routed, NetworkEvaluations()))

    def expert_work(self, images: int, batch: int, per_image: NetworkEvaluations) -> list[Work]:
        """List the work of experts and router if every expert is evaluated equally often.

        Args:
            images: Number of images.
            batch: Number of images per batch of the networks.
            per_image: Number of evaluations of experts and router per image.

        Returns:
            One entry for all experts with equal networks, and one for the router.
        """
        kinds = Counter(self.denoiser(expert) for expert in range(self.experiment.cluster.experts))
        share = images * per_image.experts / kinds.total()
        work = [Work(name, False, round(count * share), batch) for name, count in kinds.items()]
        return [*work, Work(ROUTER, False, round(images * per_image.router), batch)]

    def _is_alike(self, one: Expert | None, other: Expert | None) -> bool:
        first, second = self.experiment.expert_config(one), self.experiment.expert_config(other)
        return (first.model, first.precision) == (second.model, second.precision)
