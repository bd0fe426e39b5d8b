"""What every unit will compute: how often which network sees an image, and how many operations that is."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hpcddm import plugins
from hpcddm.config import ClassifierSettings, Experiment, Training
from hpcddm.ensemble import strategies
from hpcddm.ensemble.members import MONOLITH_ARM
from hpcddm.models.flops import forward_flops, training_flops
from hpcddm.pipeline import EXTRACTOR, JUDGE, MONOLITH, evaluate_range
from hpcddm.stages import critics, encode, route, train
from hpcddm.stages.evaluate import arm_names
from hpcddm.stages.report import GALLERY_PICTURES

DENOISER, ROUTER, ENCODER = "denoiser", "router", "encoder"
TAR = "tar"
"""No network: images become PNG in a tar."""
TAR_IMAGES = 64
REAL_ARMS = 2


@dataclass(frozen=True)
class Work:
    """One network seeing so many images, in batches of so many for all ranks together."""

    network: str
    is_training: bool
    images: int
    batch: int


class Costs:
    """The work of every unit of an experiment and what it costs; networks are built once."""

    def __init__(self, settings: Experiment, counts: dict[str, int]) -> None:
        self.settings, self.counts = settings, counts
        self._flops: dict[tuple[str, bool], int] = {}

    def work(self, key: str) -> list[Work]:
        """What a unit does image by image; empty for a stage that does not go by images."""
        stage = key.split("/")[0]
        of_stage = {
            "shard": self._shard,
            "encode": self._encode,
            "critics": self._critics,
            "train": self._train,
            "route": self._route,
            "evaluate": self._evaluate,
            "report": self._report,
        }
        return of_stage[stage](key) if stage in of_stage else []

    def flops(self, work: Work) -> int:
        """Operations, multiply-add = 2."""
        kind = work.network, work.is_training
        if kind not in self._flops:
            self._flops[kind] = self._count(*kind)
        return work.images * self._flops[kind]

    def train_flops(self, key: str) -> int:
        """The operations of a unit's training alone, as its manifest will say."""
        return sum(self.flops(work) for work in self.work(key) if work.is_training)

    def network(self, name: str) -> nn.Module:
        """A network, freshly initialised."""
        if name == DENOISER:
            return train.build(self.settings)
        return route.build(self.settings) if name == ROUTER else critics.build(self.settings, self.critic(name))

    def critic(self, name: str) -> ClassifierSettings:
        """The settings of 'extractor' or 'judge'."""
        return getattr(self.settings.critics, name)

    def training(self, name: str) -> Training:
        """How a network is trained; of the denoiser, all experts together."""
        if name == DENOISER:
            return self.settings.experts.training
        return self.settings.router.training if name == ROUTER else self.critic(name).training

    def inputs(self, name: str, count: int) -> tuple[torch.Tensor, ...]:
        """Arguments of a network's forward pass for so many images."""
        data = self.settings.data
        images = torch.zeros(count, data.channels, data.image_size, data.image_size)
        if name not in (DENOISER, ROUTER):
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
        """The images of one shard."""
        split, part = key.split("/")[1].split("-")
        data = self.settings.data
        parts = data.shards if split == "train" else data.heldout_shards
        start, stop = (self.counts[split] * edge // parts for edge in (int(part), int(part) + 1))
        return stop - start

    def _critics(self, key: str) -> list[Work]:
        name = key.split("/")[1]
        training = self.critic(name).training
        whole_batches = math.ceil(training.images / training.batch) * training.batch
        return [
            Work(name, True, whole_batches, training.batch),
            Work(name, False, self.counts["heldout"], critics.IMAGES_AT_ONCE),
        ]

    def _train(self, key: str) -> list[Work]:
        settings = self.settings
        if key == MONOLITH:
            training = train.monolith_training(settings, train.denoiser_flops(settings))
        else:
            training = train.expert_training(settings)
        return [Work(DENOISER, True, training.images, training.batch)]

    def _route(self, key: str) -> list[Work]:
        training = route.router_training(self.settings)
        measured = min(route.MEASURED_IMAGES, self.counts["heldout"])
        seen = 2 * len(route.NOISE_LEVELS) * measured
        return [Work(ROUTER, True, training.images, training.batch), Work(ROUTER, False, seen, measured)]

    def _evaluate(self, key: str) -> list[Work]:
        start, stop = evaluate_range(key)
        evaluate, arms = self.settings.evaluate, arm_names(self.settings)
        seen = (len(arms) + REAL_ARMS) * (stop - start)
        looked_at = [Work(key.split("/")[1], False, seen, evaluate.batch) for key in (EXTRACTOR, JUDGE)]
        return self._sampling(arms, stop - start, evaluate.batch) + looked_at

    def _report(self, key: str) -> list[Work]:
        experts = self.settings.cluster.experts
        single = [MONOLITH_ARM] * experts
        return self._sampling(arm_names(self.settings) + single, GALLERY_PICTURES, GALLERY_PICTURES)

    def _sampling(self, arms: list[str], images: int, batch: int) -> list[Work]:
        """Each step asks the router once and the experts that have weight, about both halves of the guidance."""
        evaluate = self.settings.evaluate
        halves = 1 if evaluate.guidance == 1 else 2
        asked = [self._asked(arm) for arm in arms]
        passes = images * evaluate.steps * halves
        denoiser, router = (passes * sum(one[index] for one in asked) for index in (0, 1))
        return [Work(DENOISER, False, denoiser, batch * halves), Work(ROUTER, False, router, batch * halves)]

    def _asked(self, arm: str) -> tuple[int, int]:
        """How many experts, and how many routers, an arm asks about one image in one step."""
        if arm == MONOLITH_ARM:
            return 1, 0
        strategy = strategies.parse(arm)
        posterior = torch.eye(self.settings.cluster.experts)[:1]
        if strategy.needs_router:
            posterior = (posterior + torch.arange(self.settings.cluster.experts)).softmax(1)
        weights = strategies.rule(strategy)(posterior)
        return int((weights > 0).sum()), int(strategy.needs_router)
