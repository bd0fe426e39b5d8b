"""Inception as torch-fidelity 0.4.0 and pytorch-fid 0.3.0 build it, with weights of our own instead of a download."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from hpcddm.encoders import optional_packages
from tests.encoders.inception_weights import random_state


def _extractor(state: dict[str, Tensor] | None) -> Any:
    optional_packages.import_torchvision()
    from torch_fidelity import feature_extractor_inceptionv3 as module

    with (
        mock.patch.object(module, "load_state_dict_from_url", lambda *args, **kwargs: state),
        mock.patch.object(module.FeatureExtractorInceptionV3, "load_state_dict", _load),
    ):
        return module.FeatureExtractorInceptionV3("inception-v3-compat", ["2048", "logits_unbiased"])


def _load(network: nn.Module, state: dict[str, Tensor] | None) -> None:
    """Load a state dict as the published ones are: without the numbers of batches."""
    if state is not None:
        unused = nn.Module.load_state_dict(network, state, strict=False)
        assert not unused.unexpected_keys and all("num_batches" in key for key in unused.missing_keys), unused


def empty_state() -> dict[str, Tensor]:
    """The tensors that torch-fidelity's network has."""
    state = _extractor(None).state_dict()
    return {key: values for key, values in state.items() if "num_batches" not in key}


def torch_fidelity_module() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Torch-fidelity's function of RGB images (N, 3, H, W), uint8, to features and logits."""
    module: Callable[[Tensor], tuple[Tensor, Tensor]] = _extractor(random_state())
    return module


def pytorch_fid_network() -> Callable[[Tensor], Tensor]:
    """Pytorch-fid's function of prepared images, neither resized nor scaled, to features."""
    optional_packages.import_torchvision()
    from pytorch_fid import inception

    with (
        mock.patch.object(inception, "load_state_dict_from_url", lambda *args, **kwargs: random_state()),
        mock.patch.object(inception.torchvision.models.Inception3, "load_state_dict", _load),
    ):
        network = inception.InceptionV3(resize_input=False, normalize_input=False).eval()

    @torch.no_grad()
    def features(planes: Tensor) -> Tensor:
        (pooled,) = network(planes)
        result: Tensor = pooled[:, :, 0, 0]
        return result

    return features
