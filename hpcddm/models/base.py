"""Bases of the networks: denoisers, routers and classifiers, built from settings and properties of the data."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hpcddm.config.variants import S, Variant
from hpcddm.data.reader import Reader
from hpcddm.models.compiled_blocks import Compilation

Images = Float[Tensor, "n c h w"]
"""Clean or noisy x in the space of the data; for classifiers, images in [-1, 1]."""
Times = Float[Tensor, " n"]
"""Times in [0, 1], from data to noise."""
Condition = Int[Tensor, " n"] | Float[Tensor, "n l width"]
"""Condition from `hpcddm.diffusion.conditions`: class ids, or states of tokens padded with rows of zeros."""
Logits = Float[Tensor, "n k"]


class Network(nn.Module, Variant[S]):
    """A network, freshly initialised when it is created from its settings and the properties of the data.

    Denoisers and routers receive x, of shape `x_shape`; classifiers receive images.
    """

    def stacked_blocks(self) -> Sequence[nn.Module]:
        """Return the sequence of blocks that do most of the work: by default the attribute `blocks`, if there is one.

        The site's settings `checkpoint_blocks` and `compile_blocks` apply to these blocks. They are called with
        positional arguments only.
        """
        return getattr(self, "blocks", ())


class Denoiser(Network[S]):
    """Network that predicts its objective's target from noisy images, created as `cls(settings, data)`.

    If a parameter has no gradient in a step, it must have none on any rank: in some stages of ZeRO the ranks would
    otherwise wait for each other.
    """

    @abstractmethod
    def forward(self, x: Images, t: Times, condition: Condition) -> Float32[Tensor, "n c h w"]:
        """Compute the prediction.

        Args:
            x: (N, C, H, W) noisy images, of any floating-point dtype.
            t: (N,) times in [0, 1], from data to noise.
            condition: (N,) class ids or (N, L, D) states of tokens.

        Returns:
            (N, C, H, W) float32 predictions.
        """


class Router(Network[S]):
    """Network that estimates p(cluster | x, t, condition), created as `cls(settings, data, num_clusters)`."""

    @abstractmethod
    def forward(self, x: Images, t: Times, condition: Condition) -> Logits:
        """Compute the logits of the clusters.

        Args:
            x: (N, C, H, W) noisy images.
            t: (N,) times in [0, 1], from data to noise.
            condition: (N,) class ids or (N, L, D) states of tokens.

        Returns:
            (N, K) logits.
        """


class TrainedRouter(Router[S]):
    """Router that is trained on noisy images and their clusters."""

    @abstractmethod
    def head_parameters(self) -> dict[str, nn.Parameter]:
        """Return the last layer's parameters by name; a refit to another number of clusters trains only these."""


class ComputedRouter(Router[S]):
    """Router that is computed from the training images in one pass, without gradients."""

    @abstractmethod
    def fit(self, reader: Reader, x0_of: Callable[[range], Tensor], advance: Callable[[int], None]) -> None:
        """Compute all parameters from the samples of a reader.

        Args:
            reader: Reader of the training samples.
            x0_of: Function from sample numbers to x0 (N, C, H, W).
            advance: Function that receives the number of samples read since its last call.
        """


class Classifier(Network[S]):
    """Network that classifies images, created as `cls(settings, data, num_classes)`.

    The Frechet distance uses its features. The features of an image do not depend on other images.
    """

    @abstractmethod
    def forward(self, images: Images) -> Float32[Tensor, "n classes"]:
        """Compute the logits of the classes (N, classes) of images (N, C, H, W) in [-1, 1]."""

    @abstractmethod
    def features(self, images: Images) -> Float32[Tensor, "n d"]:
        """Compute the features (N, D) of images (N, C, H, W) in [-1, 1]: the activations before the last layer."""


def has_blocks(model: nn.Module) -> bool:
    """Return True if a network has blocks that can recompute and be compiled."""
    return isinstance(model, Network) and bool(list(model.stacked_blocks()))


def prepare_blocks(model: nn.Module, every: int, compilation: Compilation) -> str:
    """Make every so many-th block recompute its activations in the backward pass, and compile all of them.

    A network without blocks is not changed: the keys apply to all trainings of a site.

    Args:
        model: Network to change.
        every: Interval of blocks that recompute and keep only their inputs (arXiv 1604.06174); 0 for no block.
        compilation: Compilation of the blocks; inactive afterwards if there are none.

    Returns:
        A description of the changes; '' for none.
    """
    blocks = list(model.stacked_blocks()) if isinstance(model, Network) else []
    if not blocks:
        requested = compilation.active and not compilation.reason
        compilation.active = False
        return "no blocks: checkpoint_blocks and compile_blocks change nothing" if every or requested else ""
    if compilation.active:
        compilation.wrap(blocks)
    done = [text] if (text := compilation.describe(len(blocks))) else []
    if every:
        recomputed = blocks[::every]
        for block in recomputed:
            block.forward = partial(_checkpointed, block.forward)
        done.append(f"activations of {len(recomputed)} of {len(blocks)} blocks recomputed")
    return ", ".join(done)


def _checkpointed(forward: Callable[..., Any], *inputs: Any) -> Any:
    """Run a block and keep its inputs alone for the backward pass; without gradients, just run it."""
    return checkpoint(forward, *inputs, use_reentrant=False) if torch.is_grad_enabled() else forward(*inputs)
