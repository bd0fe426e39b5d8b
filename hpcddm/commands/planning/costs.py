"""Costs of every unit: the FLOPs of the work that its stage lists."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import UInt8
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from hpcddm.config import variants
from hpcddm.config.experiment import Experiment
from hpcddm.config.training import Training
from hpcddm.data.reader import ArrayReader
from hpcddm.diffusion.conditions.sentence_encoder import SentenceEncoder
from hpcddm.diffusion.spaces.pixels import pixels_to_values
from hpcddm.encoders.autoencoder.base import Autoencoder, TrainedAutoencoder
from hpcddm.encoders.image.base import SampleEncoder
from hpcddm.models import build_autoencoder, build_classifier, build_denoiser, build_router
from hpcddm.models.flops import forward_flops, training_flops, unallocated
from hpcddm.runs import unit_keys
from hpcddm.runs.unit_keys import expert_of, stage_of
from hpcddm.runs.unit_training import require_latent_space, resolve_training
from hpcddm.stages.evaluation.measure_real import encoders_by_label
from hpcddm.stages.workload import (
    AUTOENCODER,
    DECODE_LATENTS,
    DENOISER,
    ENCODE_LATENTS,
    ENCODER,
    EVALUATOR,
    ROUTER,
    SAMPLE_WORK,
    TEXT_ENCODER,
    Work,
    Workload,
)


class UnitCosts:
    """Work and FLOPs of every unit of an experiment; the FLOPs of a network are counted once."""

    def __init__(self, experiment: Experiment, counts: dict[str, int]) -> None:
        self.experiment, self.workload = experiment, Workload(experiment, counts)
        self._flops: dict[tuple[str, bool], int] = {}

    def work(self, key: str) -> list[Work]:
        """List the work of a unit on images; empty for a stage that does not go by images."""
        stage = variants.import_from_subpackages("stages", f"{stage_of(key)}_job")
        return stage.work(self.workload, key) if hasattr(stage, "work") else []

    def flops(self, work: Work) -> int:
        """Count the FLOPs of a piece of work, a multiply-add as 2."""
        kind = work.network, work.is_training
        if kind not in self._flops:
            self._flops[kind] = self._count(*kind)
        return work.images * self._flops[kind]

    def training_bytes(self, work: Work) -> int:
        """Count the bytes of a trained network's weights, gradients, moments and average in fp32; 0 for other work."""
        if not work.is_training:
            return 0
        network = unallocated(lambda: self.network(work.network))
        return 5 * 4 * sum(parameter.numel() for parameter in network.parameters())

    def network(self, name: str) -> nn.Module:
        """Build a network, freshly initialised."""
        if name.startswith(DENOISER):
            return build_denoiser.build(self.experiment, self.experiment.expert_config(expert_of(name)))
        if name == ROUTER:
            return build_router.build_trainable(self.experiment)
        if name == AUTOENCODER:
            return build_autoencoder.build(self.experiment)
        return build_classifier.build(self.experiment, f"evaluators/{name}")

    def training(self, name: str) -> Training:
        """Return the training of the first unit that has a network; for an untrained router any, in fp32."""
        if name == ROUTER and self.experiment.router.training is None:
            return self.experiment.experts.training.model_copy(update={"precision": "fp32"})
        keys = {ROUTER: unit_keys.ROUTER, AUTOENCODER: unit_keys.AUTOENCODER}
        key = name if name.startswith(DENOISER) else keys.get(name, f"evaluators/{name}")
        return resolve_training(self.experiment, key).settings

    def inputs(self, name: str, count: int) -> tuple[torch.Tensor, ...]:
        """Make the arguments of a network's forward pass for so many images."""
        if name == AUTOENCODER:
            return build_autoencoder.inputs(self.experiment, count)
        if name != ROUTER and not name.startswith(DENOISER):
            return (torch.zeros(count, *build_classifier.pixels(self.experiment).shape),)
        return tuple(part.expand(count, *part.shape[1:]).clone() for part in build_denoiser.one_image(self.experiment))

    def encoding(self, name: str, count: int) -> Callable[[], object]:
        """Return a function that encodes `count` images once with an encoder of the work, for timing."""
        measuring = {f"{EVALUATOR}{label}": one for label, one in encoders_by_label(self.experiment).items()}
        settings = measuring.get(name, self.experiment.encode.encoder)
        encoder, images = variants.create(SampleEncoder, settings), self._images(count)
        reader = ArrayReader(images, labels=np.zeros(count, np.int64), clusters=np.zeros(count, np.int64))
        return lambda: encoder.features(reader, range(count))

    def encoding_captions(self, count: int, device: torch.device) -> Callable[[], object]:
        """Return a function that encodes `count` captions once, each of as many words as states are kept."""
        condition = self.experiment.data.condition
        if condition.text_encoder is None:
            raise ValueError("data.condition: nothing is encoded")
        sentences = SentenceEncoder(condition.text_encoder, condition.shape[0])
        tokens = sentences.tokenise([" ".join(["a"] * condition.shape[0])] * count).to(device)
        return lambda: sentences.states(tokens)

    def through_autoencoder(self, direction: str, count: int, device: torch.device) -> Callable[[], object]:
        """Return the autoencoder's run on so many images, to latents or back, with inputs on a device.

        The weights of one that the run trains are random.
        """
        data, own = self.experiment.data, require_latent_space(self.experiment)
        autoencoder = variants.create(Autoencoder, own.autoencoder, data)
        if isinstance(autoencoder, TrainedAutoencoder):
            autoencoder.network.to(device)
        if direction == DECODE_LATENTS:
            latents = torch.zeros(count, *data.x_shape, device=device)
            return torch.no_grad()(lambda: autoencoder.decode(latents))
        images = pixels_to_values(torch.from_numpy(self._images(count))).to(device)
        return torch.no_grad()(lambda: autoencoder.encode(images))

    def _images(self, count: int) -> UInt8[np.ndarray, "n h w c"]:
        """Make black images."""
        data = self.experiment.data
        return np.zeros((count, data.image_size, data.image_size, data.channels), dtype=np.uint8)

    def _count(self, name: str, is_training: bool) -> int:
        if name in SAMPLE_WORK:
            return 0
        if name == ENCODER or name.startswith(EVALUATOR):
            return _counted(self.encoding(name, 1))
        if name == TEXT_ENCODER:
            return _counted(self.encoding_captions(1, torch.device("cpu")))
        if name in (ENCODE_LATENTS, DECODE_LATENTS):
            return _counted(self.through_autoencoder(name, 1, torch.device("cpu")))
        counted = training_flops if is_training else forward_flops
        return counted(unallocated(lambda: self.network(name)), *self.inputs(name, 1))


def _counted(run: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()
