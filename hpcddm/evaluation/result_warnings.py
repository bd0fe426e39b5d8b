"""Warnings about the results of a run, in one list that its page, the terminal and `submit` share."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hpcddm.config.experiment import Experiment
from hpcddm.evaluation.metrics import all_metrics, short_key
from hpcddm.evaluation.metrics.base import Metric
from hpcddm.runs.unit_keys import expert_key, expert_keys
from hpcddm.runs.unit_training import resolve_training

if TYPE_CHECKING:
    from hpcddm.evaluation.training_costs import TrainingCost

NEAR_CHANCE = 1.25
"""Multiple of the share by chance up to which the classifier's agreement is called chance."""
NO_GAIN_IMAGES = 30_720
"""Images seen by each expert up to which no strategy was shown to be ahead of a monolith of equal cost, with 4 or with
8 experts on Fashion-MNIST (docs/results/budget.md)."""
MANY_SKIPPED = 0.1
"""Share of its steps above which the skipped steps of a training are a reason to doubt it."""
FP16_REMARK = ", or train longer: fp16 skips steps while it searches its loss scale"
BOUNDED = ("precision", "density")
"""Keys of the metrics that are higher for samples which are blurred or alike than for real images."""


def result_warnings(
    experiment: Experiment,
    metrics: Mapping[str, Any],
    costs: "Mapping[str, TrainingCost]",
    skipped: Mapping[str, int],
) -> list[str]:
    """List reasons to doubt the figures of a report, a sentence each.

    Args:
        experiment: Experiment of the run.
        metrics: Content of metrics.json.
        costs: Training of every unit, by its key.
        skipped: Steps of a unit's training whose gradient was not finite, by its key.
    """
    few = few_images_warning(experiment)
    of_figures = [*_of_infinity(metrics), *_of_chance(metrics), *_of_beyond_real(metrics), *_of_disagreement(metrics)]
    return [*of_figures, *_of_skipped(experiment, skipped), *_of_passes(experiment, costs), *([few] if few else [])]


def few_images_warning(experiment: Experiment) -> str | None:
    """Warn of experts that see so few images that they were never ahead of one model of equal cost.

    Experts that start from weights need fewer images; this does not apply to them.
    """
    images = min(resolve_training(experiment, key).settings.images for key in expert_keys(experiment))
    if experiment.cluster.experts == 1 or images > NO_GAIN_IMAGES or experiment.experts.init_from is not None:
        return None
    return (
        f"an expert sees {images:,} images; with up to {NO_GAIN_IMAGES:,} each, no ensemble was shown to draw better"
        " than one model of the same cost on Fashion-MNIST: train longer, or with fewer experts, and compare with the"
        " monolith"
    )


def at_chance(metrics: Mapping[str, Any]) -> list[str]:
    """List the arms with which a classifier that knows real images agrees hardly more often than by chance."""
    chance, arms = _chance(metrics), metrics["arms"]
    if chance is None or _is_blind(metrics, chance):
        return []
    lows = _lower_ends(metrics, "agreement")
    return [arm for arm, low in lows.items() if low <= chance or arms[arm]["agreement"] <= NEAR_CHANCE * chance]


def _chance(metrics: Mapping[str, Any]) -> float | None:
    """Return the share on which the classifier agrees by chance; None where nobody has requested classes."""
    chance: float | None = (metrics.get("classifier") or {}).get("chance")
    return chance


def _is_blind(metrics: Mapping[str, Any], chance: float) -> bool:
    """Tell if the classifier does not even tell the classes of real images."""
    real = metrics["floor"].get("agreement")
    return real is not None and bool(real <= NEAR_CHANCE * chance)


def beyond_real(metrics: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the arms whose precision or density exceeds that of real images by its whole interval, by the metric."""
    found = {}
    for metric in (one for one in all_metrics() if one.key in BOUNDED):
        lows, floor = _lower_ends(metrics, metric.key), metrics["floor"].get(metric.key)
        found[metric.key] = [arm for arm, low in lows.items() if floor is not None and low > floor]
    return {key: arms for key, arms in found.items() if arms}


def _lower_ends(metrics: Mapping[str, Any], key: str) -> dict[str, float]:
    """Return the lower end of the interval of a table's metric by arm, else the value if it is finite."""
    full_keys = next(iter(metrics["intervals"].values()))
    full_key = next((one for one in full_keys if short_key(one) == key), None)
    if full_key is None:
        return {}
    lows = {arm: metrics["intervals"][arm][full_key][0] for arm in metrics["arms"]}
    found = {arm: metrics["arms"][arm][full_key] if low is None else low for arm, low in lows.items()}
    return {arm: low for arm, low in found.items() if low is not None}


def _of_infinity(metrics: Mapping[str, Any]) -> list[str]:
    reasons = metrics.get("not_finite") or {}
    return [f"{len(reasons)} figures are not finite, such as {key}: {why}" for key, why in [*reasons.items()][:1]]


def _of_chance(metrics: Mapping[str, Any]) -> list[str]:
    chance = _chance(metrics)
    if chance is not None and _is_blind(metrics, chance):
        shown = _metric("agreement").text_of(metrics["floor"])
        return [
            f"the classifier names the class of {shown} of the real images: train it longer before you compare by it"
        ]
    if not (arms := at_chance(metrics)):
        return []
    return [
        f"the classifier agrees hardly more often than by chance ({metrics['classifier']['chance']:.1%}):"
        f" {_listed(metrics, 'agreement', arms)}; these samples do not show their classes, so no other figure makes one"
        " arm better than another"
    ]


def _of_beyond_real(metrics: Mapping[str, Any]) -> list[str]:
    return [
        f"{_metric(key).title} exceeds that of real images ({_metric(key).text_of(metrics['floor'])}):"
        f" {_listed(metrics, key, arms)}; samples that are blurred or alike reach this, so higher is not better here"
        for key, arms in beyond_real(metrics).items()
    ]


def _of_disagreement(metrics: Mapping[str, Any]) -> list[str]:
    """Say which of FD and KID to believe where one calls an arm better and the other one worse."""
    arms_by_case: dict[tuple[str, str], list[str]] = {}
    for arm, differences in metrics["differences"].items():
        found = {(short_key(key), key.split("@")[1]): one["verdict"] for key, one in differences.items()}
        for (key, label), verdict in found.items():
            if key == "fd" and {verdict, found.get(("kid", label))} == {"better", "worse"}:
                arms_by_case.setdefault((label, verdict), []).append(arm)
    enough = "FD, for which there are enough images; another extractor (evaluate.extractors) can confirm it"
    return [
        f"in the features of {label}, FD calls {', '.join(arms)} {verdict} than {metrics['baseline']}, and KID the"
        f" opposite: believe {'KID, as FD needs more images' if label in metrics['few_images'] else enough}"
        for (label, verdict), arms in arms_by_case.items()
    ]


def _of_skipped(experiment: Experiment, skipped: Mapping[str, int]) -> list[str]:
    warnings = []
    for key, count in skipped.items():
        settings = resolve_training(experiment, key).settings
        steps = settings.images // settings.batch
        if count > MANY_SKIPPED * steps:
            warnings.append(
                f"{key} skipped {count} of its {steps} steps, whose gradients were not finite: lower its"
                f" learning_rate, {settings.learning_rate:g}{FP16_REMARK if settings.precision == 'fp16' else ''}"
            )
    return warnings


def _of_passes(experiment: Experiment, costs: "Mapping[str, TrainingCost]") -> list[str]:
    experts = (costs.get(expert_key(number)) for number in range(experiment.cluster.experts))
    passes = [cost.passes for cost in experts if cost is not None and cost.passes is not None]
    few = sorted(one for one in passes if one < 1)
    if not few or experiment.experts.init_from is not None:
        return []
    ends = " to ".join(dict.fromkeys(f"{one:.2g}" for one in (few[0], few[-1])))
    return [f"{len(few)} of {len(passes)} experts saw less than all of their images ({ends} passes)"]


def _listed(metrics: Mapping[str, Any], key: str, arms: Iterable[str]) -> str:
    return ", ".join(f"{arm} {_metric(key).text_of(metrics['arms'][arm])}" for arm in arms)


def _metric(key: str) -> Metric:
    return next(metric for metric in all_metrics() if metric.key == key)
