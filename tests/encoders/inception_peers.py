"""Inception as torch-fidelity 0.4.0 builds it, with weights of our own instead of a download."""

from collections.abc import Callable
from typing import Any
from unittest import mock

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
