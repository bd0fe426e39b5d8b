"""Defaults that depend on other settings or on the images, from the first key of an experiment to the last.

Defaults that depend on nothing are in the settings classes. These here are for a first look at a data set: pictures of
up to 32 pixels train to a report in minutes on two CPU cores. A run stores the values, so it never changes when a
default does.
"""

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hpcddm.config import variants
from hpcddm.config.clustering import ClusteringSettings, TwoStageSettings
from hpcddm.config.cross_checks import MIN_IMAGES, are_classes_sampled
from hpcddm.config.data import DataSettings
from hpcddm.config.models import DenoiserModelSettings, RouterModelSettings, TransformerSettings
from hpcddm.config.sampling import EvaluateSettings
from hpcddm.config.schema import Positive, VariantSettings
from hpcddm.config.sources import HELDOUT_SHARE, SourceSettings
from hpcddm.errors import UserError

Values = dict[str, Any]


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of the transformers for images of up to `most` pixels a side: width, depth and heads."""

    most: float
    expert: tuple[int, int, int]
    router: tuple[int, int, int]
    tokens: int
    """Tokens along a side of x, from which the patch follows."""
    batch: int
    """Images of one expert in a step."""


@dataclass(frozen=True)
class Shares:
    """Numbers of images that follow from those of a training: one for so many."""

    warmup: Positive
    halflife: Positive
    """Half-life of the average."""
    router: Positive
    """The router's images, of all experts' together."""


SHARES = Shares(20, 10, 4)
SIZES = (
    ModelSizes(32, (128, 4, 4), (96, 2, 3), 8, 8),
    ModelSizes(64, (192, 6, 6), (96, 4, 3), 8, 8),
    # The size S of arXiv 2212.09748, table 1, and its 256 tokens: work for a GPU.
    ModelSizes(math.inf, (384, 12, 6), (192, 6, 3), 16, 32),
)
EXPERT_IMAGES = 10_240
"""Images that an expert sees; with fewer, one model of the same cost was far better (docs/results/budget.md)."""
SMALL_BATCH = 64
"""Batch of the router and of the evaluators."""
MEASURING_IMAGES = 16_000
SMALL_RATE = 0.002
RATE_TIMES_WIDTH = 0.256
"""Learning rate of Adam falls with the width (arXiv 2203.03466): 0.002 for a width of 128."""
IMAGES_OF_A_SHARD = 5000
"""Images of a tar, at least, where there are few: every tar is read by units with a process each."""
FINE_IMAGES = 8
"""Images of a fine cluster, at least, on average."""


def fill_in(values: Values, name: str, shares: Shares = SHARES) -> None:
    """Fill in missing values of an experiment, with absolute paths; invalid values do not change.

    name: that of the file, from which the run has its name; shares: those of its run, or today's.
    """
    values.setdefault("name", experiment_name(name))
    images = _fill_data(values)
    data = _data(values)
    num_experts = _number(_inside(values, "cluster").get("experts"), 4)
    _fill_clustering(values, num_experts, images)
    _fill_experts(values, num_experts, data, shares)
    _fill_router(values, num_experts, data, shares)
    evaluators = _inside(values, "evaluators")
    has_classes = bool(data and data.num_classes)
    if not has_classes and not values.get("concepts") and _inside(dict(values), "evaluate").get("extractors"):
        evaluators.setdefault("extractor", None)
    for key in ("extractor", "classifier") if has_classes else ("extractor",):
        network = _inside(evaluators, key)
        _inside(network, "model").setdefault("name", "small_cnn")
        _fill_training(network, MEASURING_IMAGES, SMALL_BATCH, SMALL_RATE, shares, precision="fp32")
    _fill_evaluation(values, num_experts, data, images)


def experiment_name(stem: str) -> str:
    """Make the name of an experiment from that of its file."""
    return re.sub("[^A-Za-z0-9_.-]+", "-", stem).lstrip("-_.")[:64] or "mine"


@dataclass(frozen=True)
class ImageCounts:
    """Numbers of images that a source has.

    smaller: of the smaller split; classes: 0 for none; of_class: fewest of a class in a split.
    """

    train: int
    smaller: int
    classes: int = 0
    of_class: int = 0


def _fill_data(values: Values) -> ImageCounts | None:
    """Fill in held-out images, classes and condition; return the numbers of images, where they can be known now."""
    if not isinstance(values.get("data"), dict):
        return None
    data = _inside(values, "data")
    if isinstance(source := data.get("source"), list):
        data["source"] = [_with_heldout(one) for one in source]
    elif source is not None:
        data["source"] = _with_heldout(source)
    images = _images(values)
    is_sampled = images is not None and are_classes_sampled(images.classes, images.of_class)
    if images and is_sampled and "num_classes" not in data and _may_have_classes(data):
        data["num_classes"] = images.classes
    elif data.get("num_classes") is None:
        _inside(data, "condition").setdefault("name", "none")
    if images and images.train < 4 * IMAGES_OF_A_SHARD:
        data.setdefault("shards", max(images.train // IMAGES_OF_A_SHARD, 1))
    return images


def _may_have_classes(data: Values) -> bool:
    usual = {"name": "class_label"}
    return usual | _inside(dict(data), "condition") == usual


def _with_heldout(source: Any) -> Any:
    """Add a share of held-out images to a source where neither a key nor its files say which they are."""
    if not isinstance(source, dict) or source.get("heldout") is not None:
        return source
    from hpcddm.sources.base import Source

    # Wrong settings and folders are named later.
    with suppress(ValueError, UserError):
        if not variants.create(Source, SourceSettings.model_validate(source)).has_heldout():
            return source | {"heldout": {"share": HELDOUT_SHARE}}
    return source


def _images(values: Values) -> ImageCounts | None:
    """Count the images; None if the count is not needed, the images cannot be read, or a filter selects some.

    Commands that need the images report errors in them.
    """
    data, raw = _data(values), values["data"]
    is_needed = "num_classes" not in raw and _may_have_classes(raw)
    is_needed |= "images" not in _inside(dict(values), "evaluate") or "shards" not in raw
    is_needed |= "fine_clusters" not in _inside(_inside(dict(values), "cluster"), "clustering")
    if data is None or data.filter is not None or not is_needed:
        return None
    from hpcddm.sources.base import SPLITS, Source

    try:
        opened = variants.create(Source, data.source)
        train, heldout = (opened.open_split(split) for split in SPLITS)
    except UserError:
        return None
    labels = [split.labels for split in (train, heldout) if split.labels is not None]
    if len(labels) < len(SPLITS) or not train.is_exact:
        # An estimate of the number in tars may be too large.
        smaller = min(len(train), len(heldout))
        return ImageCounts(len(train), smaller if train.is_exact else smaller // 2)
    classes = data.num_classes or int(max(own.max() for own in labels)) + 1
    counts = [int((own == label).sum()) for own in labels for label in range(classes)]
    return ImageCounts(len(train), min(len(train), len(heldout)), classes, min(counts))


def _fill_clustering(values: Values, num_experts: int, images: ImageCounts | None) -> None:
    """Make fewer fine clusters of few images, and bound the largest cluster, so that every expert has images."""
    cluster = _inside(values, "cluster")
    clustering = _inside(cluster, "clustering")
    clustering.setdefault("name", "kmeans")
    if not issubclass(variants.resolve_schema(ClusteringSettings, clustering), TwoStageSettings):
        return
    fine = 1024 if images is None else max(min(1024, images.train // FINE_IMAGES), num_experts)
    if fine < 1024:
        clustering.setdefault("fine_clusters", fine)
    clustering.setdefault("max_share", min(math.ceil(1500 / num_experts) / 1000, 1.0))


def _fill_experts(values: Values, num_experts: int, data: DataSettings | None, shares: Shares) -> None:
    experts = _inside(values, "experts")
    sizes = _sizes(data)
    model = _fill_model(experts, DenoiserModelSettings, "dit", sizes.expert, data)
    named_width = TransformerSettings.sizes.get(str(model.get("size")), SIZES[0].expert)[0]
    rate = RATE_TIMES_WIDTH / _number(model.get("width"), named_width)
    _fill_training(experts, EXPERT_IMAGES * num_experts, sizes.batch * num_experts, float(f"{rate:.2g}"), shares)


def _fill_router(values: Values, num_experts: int, data: DataSettings | None, shares: Shares) -> None:
    router, sizes = _inside(values, "router"), _sizes(data)
    name = "router_dit" if num_experts > 1 else "uniform_router"
    model = _fill_model(router, RouterModelSettings, name, sizes.router, data)
    if variants.resolve_schema(RouterModelSettings, model).trained:
        training = _inside(_inside(dict(values), "experts"), "training")
        images = _number(training.get("images"), EXPERT_IMAGES * num_experts)
        batches = -(-images // (shares.router * SMALL_BATCH))
        _fill_training(router, batches * SMALL_BATCH, SMALL_BATCH, SMALL_RATE, shares)


def _fill_model(
    holder: Values, base: type[VariantSettings], name: str, size: tuple[int, int, int], data: DataSettings | None
) -> Values:
    """Fill in the size and the patch of a transformer; return the settings of the model."""
    model = _inside(holder, "model")
    model.setdefault("name", name)
    if not issubclass(variants.resolve_schema(base, model), TransformerSettings):
        return model
    if model.get("size") is None:
        for key, value in zip(("width", "depth", "heads"), size, strict=True):
            model.setdefault(key, value)
    side = data.x_shape.height if data else 32
    tokens = _sizes(data).tokens
    model.setdefault("patch", min(_divisors(side), key=lambda patch: abs(math.log(side / patch / tokens))))
    return model


def _fill_training(holder: Values, images: int, batch: int, rate: float, shares: Shares, **others: Any) -> None:
    """Fill in a training; warm-up and half-life are shares of its images, whoever named these."""
    training = _inside(holder, "training")
    for key, value in {"images": images, "batch": batch, "learning_rate": rate, **others}.items():
        training.setdefault(key, value)
    images = _number(training["images"], images)
    training.setdefault("warmup_images", images // shares.warmup)
    training.setdefault("ema_halflife_images", max(images // shares.halflife, 1))


def _fill_evaluation(values: Values, num_experts: int, data: DataSettings | None, images: ImageCounts | None) -> None:
    """Draw as many samples as the smaller split has images to compare them with, in whole batches."""
    evaluate = _inside(values, "evaluate")
    if num_experts == 1:
        evaluate.setdefault("strategies", ["top-1"])
    usual: EvaluateSettings = EvaluateSettings()
    classes = (data.num_classes if data else None) or 1
    drawn = _number(evaluate.get("images"), 0)
    if drawn:
        evaluate.setdefault("batch", max(size for size in _divisors(drawn) if size <= usual.batch))
    elif "images" not in evaluate and images is not None:
        limit = images.of_class * classes if data and data.num_classes else images.smaller
        limit = max(limit - _number(evaluate.get("first_sample"), 0), 2 * classes, MIN_IMAGES)
        # Whole rounds of all classes, not fewer images than the report needs.
        limit += -limit % classes
        if limit >= usual.images and usual.images % classes == 0 and "batch" not in evaluate:
            return
        step = math.lcm(_number(evaluate.get("batch"), 1), classes)
        if "batch" not in evaluate:
            evaluate["batch"] = step = min(max(usual.batch // classes, 1), max(limit // classes, 1)) * classes
        evaluate["images"] = max(min(limit, usual.images) // step, 1) * step


def _inside(holder: Values, key: str) -> Values:
    """Return the mapping at a key, a copy that takes its place; a detached one where something else is there."""
    inner = holder.get(key, {})
    if not isinstance(inner, dict):
        return {}
    # An alias puts one mapping in several places of a file.
    holder[key] = dict(inner)
    return holder[key]


def _data(values: Values) -> DataSettings | None:
    """Return the valid settings of the data; None for wrong ones, which are named later."""
    try:
        data = DataSettings.model_validate(values.get("data"))
        # Raises `ValueError` for an image size that the space cannot have.
        return data if data.x_shape else None
    except (ValueError, UserError):
        return None


def _sizes(data: DataSettings | None) -> ModelSizes:
    return next(sizes for sizes in SIZES if (data.image_size if data else 32) <= sizes.most)


def _number(value: Any, otherwise: int) -> int:
    """Return a positive whole number of the values, or another where there is none."""
    return int(value) if isinstance(value, int | float) and value >= 1 and value == int(value) else otherwise


def _divisors(number: int) -> list[int]:
    small = [size for size in range(1, math.isqrt(number) + 1) if number % size == 0]
    return sorted({*small, *(number // size for size in small)})
