"""Of settings that are equally good, the figure by which one was chosen is too good; that of other samples is not."""

import numpy as np

from hpcddm.evaluation.metrics.fd import frechet_distance
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.sweep_results.setting_results import SettingResult, best_by_arm

REPETITIONS, SETTINGS, IMAGES, WIDTH = 200, 20, 100, 4


def distance(generator: np.random.Generator, shift: float) -> float:
    """The distance between a shifted Gaussian's samples and as many of the standard one."""
    samples = generator.standard_normal((2, IMAGES, WIDTH))
    return frechet_distance(
        FeatureStatistics.from_features(samples[0] + shift), FeatureStatistics.from_features(samples[1])
    )


def test_only_the_figure_that_chooses_is_too_good():
    generator = np.random.default_rng(0)
    everyone, chosen, reported = [], [], []
    for _ in range(REPETITIONS):
        distances = [distance(generator, 0.5) for _ in range(SETTINGS)]
        rows = [
            SettingResult(str(number), {}, {"top-1": {"fd": value}}, "complete", leading_metric="fd")
            for number, value in enumerate(distances)
        ]
        everyone += distances
        chosen.append(distances[int(best_by_arm(rows)["top-1"])])
        reported.append(distance(generator, 0.5))
    error = np.std(reported, ddof=1) / np.sqrt(REPETITIONS)
    assert np.mean(chosen) < np.mean(everyone) - 10 * error
    assert abs(np.mean(reported) - np.mean(everyone)) < 3 * error
