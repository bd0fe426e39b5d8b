"""Bases of the networks: denoisers, routers and classifiers, built from settings and the properties of the data."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

from jaxtyping import Float, Float32, Int
from torch import Tensor, nn

from hpcddm.config.variants import S, Variant
from hpcddm.data.reader import Reader

Images = Float[Tensor, "n c h w"]
"""x of images in the space of the data, or noisy ones; of classifiers, images in [-1, 1]."""
Times = Float[Tensor, " n"]
"""Times in [0, 1], from data to noise."""
Condition = Int[Tensor, " n"] | Float[Tensor, "n l width"]
"""Condition as `hpcddm.diffusion.conditions` makes it: classes, or states of tokens with rows of zeros as padding."""
Logits = Float[Tensor, "n k"]


class Network(nn.Module, Variant[S]):
    """A network, freshly initialised when it is created.

    Beside its settings it takes the properties of the data, `hpcddm.config.shapes.NetworkData`; denoisers and routers
    see x, of shape `x_shape`, and classifiers images.
    """

    def stacked_blocks(self) -> Sequence[nn.Module]:
        """Return the blocks that do most of the work, one after the other: by default `blocks`, if there are any.

        They are what `checkpoint_blocks` and `compile_blocks` of a site are about; they are called without keywords.
        """
        return getattr(self, "blocks", ())


class Denoiser(Network[S]):
    """Network that predicts from noisy images what its objective tells, created as `cls(settings, data)`.

    A parameter may be without a gradient in some steps, but then on all ranks: some stages of ZeRO wait for each other.
    """

    @abstractmethod
    def forward(self, x: Images, t: Times, condition: Condition) -> Float32[Tensor, "n c h w"]:
        """Compute the prediction; x may be of another dtype than the parameters."""


class Router(Network[S]):
    """Network that estimates p(cluster | x, t, condition), created as `cls(settings, data, num_clusters)`."""

    @abstractmethod
    def forward(self, x: Images, t: Times, condition: Condition) -> Logits:
        """Compute the logits of the clusters of noisy images."""


class TrainedRouter(Router[S]):
    """Router that is trained, on noisy images and their clusters."""

    @abstractmethod
    def head_parameters(self) -> dict[str, nn.Parameter]:
        """Return the last layer's parameters by name: new, and trained alone, when the number of clusters changes."""


class ComputedRouter(Router[S]):
    """Router that is computed from the training images in one pass; nothing in it has a gradient."""

    @abstractmethod
    def fit(self, reader: Reader, x0_of: Callable[[range], Tensor], advance: Callable[[int], None]) -> None:
        """Compute everything from the samples of a reader.

        x0_of: function from sample numbers to their x0 (N, C, H, W); advance: called with the number of samples read.
        """


class Classifier(Network[S]):
    """Network that names the classes of images, created as `cls(settings, data, num_classes)`.

    Its features are those of the Frechet distance. An image's features depend on no other image.
    """

    @abstractmethod
    def forward(self, images: Images) -> Float32[Tensor, "n classes"]:
        """Compute the logits of the classes of images in [-1, 1]."""

    @abstractmethod
    def features(self, images: Images) -> Float32[Tensor, "n d"]:
        """Compute the features of images in [-1, 1]: the activations before the last layer."""
