"""Costs of every unit: the number of images that each network sees, and the FLOPs of that."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hpcddm import plugins
from hpcddm.config import ClassifierSettings, Experiment, Training
from hpcddm.ensemble.ensemble import MONOLITH_ARM, STUDENT_ARM
from hpcddm.models.flops import forward_flops, training_flops
from hpcddm.networks import budgets, denoisers, nfe, router, router_quality
from hpcddm.pipeline import CLASSIFIER, EXTRACTOR, evaluate_range, expert_number
from hpcddm.stages import encode, measuring
from hpcddm.stages.evaluate import arm_names
from hpcddm.stages.report import GALLERY_PICTURES

DENOISER, ROUTER, ENCODER = "denoiser", "router", "encoder"
"""Names of networks; expert 3 is 'denoiser-3' where it is made in another way than the monolith."""
TAR = "tar"
"""Name of the work without a network: images become PNG in a tar."""
TAR_IMAGES = 64
REAL_ARMS = 2
SAMPLED_TOGETHER = 100


@dataclass(frozen=True)
class Work:
    """Run of one network on so many images, in batches of so many for all ranks together."""

    network: str
    is_training: bool
    images: int
    batch: int


class Costs:
    """Work and FLOPs of every unit of an experiment; the FLOPs of a network are counted once."""

    def __init__(self, settings: Experiment, counts: dict[str, int]) -> None:
        self.settings, self.counts = settings, counts
        self._flops: dict[tuple[str, bool], int] = {}

    def work(self, key: str) -> list[Work]:
        """List the work of a unit on images; empty for a stage that does not go by images."""
        stage = key.split("/")[0]
        of_stage = {
            "shard": self._shard,
            "encode": self._encode,
            "measuring": self._measuring,
            "train": self._train,
            "distill": self._distill,
            "route": self._route,
            "evaluate": self._evaluate,
            "report": self._report,
        }
        return of_stage[stage](key) if stage in of_stage else []

    def flops(self, work: Work) -> int:
        """Count the FLOPs of a piece of work, a multiply-add as 2."""
        kind = work.network, work.is_training
        if kind not in self._flops:
            self._flops[kind] = self._count(*kind)
        return work.images * self._flops[kind]

    def network(self, name: str) -> nn.Module:
        """Build a network, freshly initialised."""
        if name.startswith(DENOISER):
            return denoisers.build(self.settings, self.settings.expert_config(_expert(name)))
        return (
            router.trainable(self.settings)
            if name == ROUTER
            else measuring.build(self.settings, self.measuring_network(name))
        )

    def denoiser(self, expert: int | None) -> str:
        """Return the name of an expert's network (None: the monolith's), which is that of the first one made alike."""
        make = _make(self.settings, expert)
        everyone = (None, *range(self.settings.cluster.experts))
        first = next(candidate for candidate in everyone if _make(self.settings, candidate) == make)
        return DENOISER if first is None else f"{DENOISER}-{first}"

    def measuring_network(self, name: str) -> ClassifierSettings:
        """Return the settings of 'extractor' or 'classifier'."""
        return getattr(self.settings.measuring, name)

    def training(self, name: str) -> Training:
        """Return a network's training, for a denoiser that of all experts together; fp32 for an untrained router."""
        common = self.settings.experts.training
        if name.startswith(DENOISER):
            return common.model_copy(update={"precision": self.settings.expert_config(_expert(name)).precision})
        if name == ROUTER:
            return self.settings.router.training or common.model_copy(update={"precision": "fp32"})
        return self.measuring_network(name).training

    def inputs(self, name: str, count: int) -> tuple[torch.Tensor, ...]:
        """Make the arguments of a network's forward pass for so many images."""
        data = self.settings.data
        images = torch.zeros(count, data.channels, data.image_size, data.image_size)
        if name != ROUTER and not name.startswith(DENOISER):
            return (images,)
        return images, torch.zeros(count), torch.zeros(count, dtype=torch.long)

    def _count(self, name: str, is_training: bool) -> int:
        if name == TAR:
            return 0
        if name == ENCODER:
            return self._encoder_flops()
        counted = training_flops if is_training else forward_flops
        return counted(self.network(name), *self.inputs(name, 1))

    def _encoder_flops(self) -> int:
        data, encoder = self.settings.data, self.settings.encode.encoder
        function = plugins.load("encoders", encoder.name).build(encoder)
        image = np.zeros((1, data.image_size, data.image_size, data.channels), dtype=np.uint8)
        with FlopCounterMode(display=False) as counter:
            function(image)
        return counter.get_total_flops()

    def _shard(self, key: str) -> list[Work]:
        return [Work(TAR, False, self._images_of(key), TAR_IMAGES)]

    def _encode(self, key: str) -> list[Work]:
        return [Work(ENCODER, False, self._images_of(key), encode.IMAGES_AT_ONCE)]

    def _images_of(self, key: str) -> int:
        """Return the number of images of one shard."""
        split, part = key.split("/")[1].split("-")
        data = self.settings.data
        parts = data.shards if split == "train" else data.heldout_shards
        start, stop = (self.counts[split] * edge // parts for edge in (int(part), int(part) + 1))
        return stop - start

    def _measuring(self, key: str) -> list[Work]:
        name = key.split("/")[1]
        training = self.measuring_network(name).training
        whole_batches = math.ceil(training.images / training.batch) * training.batch
        return [
            Work(name, True, whole_batches, training.batch),
            Work(name, False, self.counts["heldout"], measuring.IMAGES_AT_ONCE),
        ]

    def _train(self, key: str) -> list[Work]:
        expert = expert_number(key)
        if expert is None:
            training = budgets.monolith_training(self.settings)
        else:
            training = budgets.expert_training(self.settings, expert)
        return [Work(self.denoiser(expert), True, training.images, training.batch)]

    def _distill(self, key: str) -> list[Work]:
        training = budgets.student_training(self.settings)
        router_nfe = 1.0 if self.settings.distill.teacher == "router" else 0.0
        taught = self._shared(training.images, training.batch, nfe.NetworkEvaluations(experts=1.0, router=router_nfe))
        return [Work(DENOISER, True, training.images, training.batch), *taught]

    def _route(self, key: str) -> list[Work]:
        work = [Work(ROUTER, False, router_quality.router_nfe(self.settings, self.counts["heldout"]), SAMPLED_TOGETHER)]
        training, samples = budgets.router_training(self.settings), self.settings.router.samples
        if samples:
            drawn = samples.images * self.settings.cluster.experts
            halves = 1 if samples.guidance == 1 else 2
            per_image = nfe.NetworkEvaluations(experts=float(samples.steps * halves))
            work = [*self._shared(drawn, self.settings.evaluate.batch, per_image), *work]
        if training:
            return [Work(ROUTER, True, training.images, training.batch), *work]
        return [Work(ROUTER, False, self.counts["train"], SAMPLED_TOGETHER), *work]

    def _evaluate(self, key: str) -> list[Work]:
        start, stop = evaluate_range(key)
        evaluate, arms = self.settings.evaluate, arm_names(self.settings)
        images = (len(arms) + REAL_ARMS) * (stop - start)
        looked_at = [Work(key.split("/")[1], False, images, evaluate.batch) for key in (EXTRACTOR, CLASSIFIER)]
        return self._sampling(arms, stop - start, evaluate.batch) + looked_at

    def _report(self, key: str) -> list[Work]:
        arms, experts = arm_names(self.settings), self.settings.cluster.experts
        shown = self._sampling(arms, GALLERY_PICTURES, GALLERY_PICTURES)
        inside = self._sampling(arms, GALLERY_PICTURES, GALLERY_PICTURES, nfe.of_diagnostics)
        alone = nfe.of_arm(MONOLITH_ARM, self.settings.evaluate, experts)
        each = nfe.NetworkEvaluations(experts * alone.experts)
        return [*shown, *inside, *self._shared(GALLERY_PICTURES, GALLERY_PICTURES, each)]

    def _sampling(self, arms: list[str], images: int, batch: int, count: Callable = nfe.of_arm) -> list[Work]:
        """List the work of drawing so many images in each of some arms."""
        evaluate, experts = self.settings.evaluate, self.settings.cluster.experts
        together = batch * (1 if evaluate.guidance == 1 else 2)
        per_arm = {arm: count(arm, evaluate, experts) for arm in arms}
        dense = sum(per_arm[arm].experts for arm in arms if arm in (MONOLITH_ARM, STUDENT_ARM))
        routed = sum((per_arm[arm] for arm in arms if arm not in (MONOLITH_ARM, STUDENT_ARM)), nfe.NetworkEvaluations())
        work = [Work(DENOISER, False, round(images * dense), together)] if dense else []
        return work + self._shared(images, together, routed)

    def _shared(self, images: int, batch: int, per_image: nfe.NetworkEvaluations) -> list[Work]:
        """List the work of the experts, each evaluated equally often, those made alike together, and of the router."""
        kinds = Counter(self.denoiser(expert) for expert in range(self.settings.cluster.experts))
        share = images * per_image.experts / kinds.total()
        work = [Work(name, False, round(count * share), batch) for name, count in kinds.items()]
        return [*work, Work(ROUTER, False, round(images * per_image.router), batch)]


def _expert(name: str) -> int | None:
    """Return the expert that gave a denoiser its name; None for the monolith."""
    number = name.removeprefix(DENOISER).removeprefix("-")
    return int(number) if number else None


def _make(settings: Experiment, expert: int | None) -> tuple[object, str]:
    config = settings.expert_config(expert)
    return config.model, config.precision
