"""Protocol of an evaluation: what its figures depend on, and whether they may stand beside published ones."""

from collections.abc import Iterator, Mapping
from typing import Any

from hpcddm.config.conditions import ConditionForm
from hpcddm.config.experiment import Experiment
from hpcddm.errors.next_step import command
from hpcddm.evaluation.report.run_summary import describe_variant
from hpcddm.runs.weights_files import selected_weights
from hpcddm.sampling import nfe

PUBLISHED = "ADM-style ImageNet FID-50k"
CLASSES, SAMPLES, SIDES = 1000, 50_000, (256, 512)
CROP, FIGURE = "adm_centre_crop", "fd@inception-2015"
"""The settings that published figures on ImageNet share: arXiv 2105.05233, 2212.09748, 2401.08740."""


def describe(experiment: Experiment, metrics: Mapping[str, Any]) -> dict[str, str]:
    """Describe the protocol of a run's evaluation.

    Args:
        experiment: Settings of the experiment.
        metrics: The figures of its arms and its `extractors`, as in metrics.json.

    Returns:
        Texts by title, and at last whether the figures are comparable with published ones.
    """
    evaluate, data = experiment.evaluate, experiment.data
    images = f"{evaluate.images:,}"
    count = {arm: nfe.of_arm(arm, evaluate, experiment.cluster.experts).experts for arm in metrics["arms"]}
    where = (
        []
        if evaluate.guidance_interval == [0, 1]
        else ["at times from {:g} to {:g}".format(*evaluate.guidance_interval)]
    )
    spacing = "" if evaluate.shift == 1 else f" with shift {evaluate.shift:g}"
    half_life = f"average with a half-life of {experiment.experts.training.ema_halflife_images:,} images"
    extractors = [
        f"{name_extractor(label, one)}, SHA-256 {(one['sha256'] or '-')[:16]}"
        for label, one in metrics["extractors"].items()
    ]
    return {
        "Real images": f"{images} held-out ones (source {data.source.name})",
        "Crop": describe_variant(data.transform),
        "Samples": f"{images} of each arm, from number {evaluate.first_sample:,} on",
        "Conditions": _conditions(experiment),
        "Solver": f"{describe_variant(evaluate.solver)}, {evaluate.steps} steps{spacing}",
        "Network evaluations per image": "; ".join(f"{arm} {number:g}" for arm, number in count.items()),
        "Guidance": ", ".join(
            [f"scale {evaluate.guidance:g}", *where, f"{evaluate.posteriors} posteriors of its halves"]
        ),
        "Weights": str(selected_weights(experiment)) or half_life,
        "Extractors": "; ".join(extractors),
        "Beside published figures": compare_with_published(experiment, evaluate.images, metrics, None),
    }


def name_extractor(label: str, extractor: Mapping[str, Any]) -> str:
    """Name an extractor; one with public weights by its label, which says more than its name."""
    return extractor["name"] if label == "own" else label


def compare_with_published(
    experiment: Experiment, images: int, metrics: Mapping[str, Any], statistics: str | None
) -> str:
    """Say whether the Frechet distance of a run's samples may stand beside published ones, and if not, why.

    Args:
        experiment: Settings of the experiment.
        images: Number of samples.
        metrics: Figures of arms, under their full keys.
        statistics: Published statistics of real images that the samples are compared with; None for other images.
    """
    reasons = list(_reasons(experiment, images, metrics, statistics))
    if reasons:
        return f"not comparable with {PUBLISHED}, because {'; '.join(reasons)}"
    labels = {"balanced": "labels are balanced", "uniform": "labels are drawn at random"}[experiment.evaluate.labels]
    return f"comparable with {PUBLISHED} whose {labels}, if {statistics} are statistics of its training images"


def _reasons(experiment: Experiment, images: int, metrics: Mapping[str, Any], statistics: str | None) -> Iterator[str]:
    data = experiment.data
    if data.num_classes != CLASSES or data.condition.form is not ConditionForm.CLASS:
        yield f"the networks are not conditional on the {CLASSES:,} classes of ImageNet"
    if data.image_size not in SIDES:
        yield f"images have {data.image_size} pixels a side instead of 256 or 512"
    if data.transform.name != CROP:
        yield f"real images are cropped by {data.transform.name} instead of {CROP}"
    if images != SAMPLES:
        yield f"there are {images:,} samples instead of {SAMPLES:,}"
    if not any(FIGURE in figures for figures in metrics["arms"].values()):
        yield "the extractor inception_2015 is missing"
    if statistics is None:
        way = command("hpcddm", "evaluate", "RUN:ARM", "--against", "STATISTICS.npz")
        yield f"the real images are not all training images of ImageNet, with whose statistics {way} compares"


def _conditions(experiment: Experiment) -> str:
    if experiment.data.condition.reads_captions:
        return "captions of the held-out images"
    if experiment.data.num_classes is None:
        return "none"
    drawn = {"balanced": "all classes equally often", "uniform": "classes drawn at random with replacement"}
    return drawn[experiment.evaluate.labels]
