"""The contract of a metric, for every file of the room, and what a new file does."""

import dataclasses
import json

import numpy as np
import pytest

from hpcddm.commands.results_table import print_results_table
from hpcddm.commands.sweep_table import print_sweep_table
from hpcddm.config import variant_files
from hpcddm.evaluation import metrics
from hpcddm.evaluation.metrics import all_metrics
from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.feature_statistics import FeatureStatistics
from hpcddm.evaluation.metrics.metric_inputs import ImageSet, MetricInputs
from hpcddm.evaluation.metrics.need import Need
from hpcddm.evaluation.report import page
from hpcddm.evaluation.sweep_results import plot
from hpcddm.evaluation.sweep_results.seed_statistics import statistics_over_seeds, write_seeds
from hpcddm.evaluation.sweep_results.setting_results import SettingResult, write_csv
from hpcddm.stages.report import report_job
from tests.evaluation.metrics.sets import image_set
from tests.evaluation.report.test_page import Page, bare, content
from tests.helpers import python

RNG = np.random.default_rng(0)
REAL, SAMPLES = image_set(RNG.standard_normal((60, 3))), image_set(RNG.standard_normal((60, 3)) + 0.3)
NOTHING = ImageSet.from_arrays({}, np.zeros(0, dtype=int))

NEW = """
from hpcddm.evaluation.metrics.base import Better, Metric
from hpcddm.evaluation.metrics.need import Need

class Brightness(Metric):
    '''Mean of all features.'''

    title = "mean feature"
    explanation = "the mean of all features"
    better = Better.LOWER
    format = ".3f"
    needs = frozenset({Need.FEATURES})
    order = 25
    is_headline = True

    def compute(self, evaluation):
        return float(evaluation.samples.features.mean())
"""


@pytest.mark.parametrize("metric", all_metrics(), ids=lambda metric: metric.key)
def test_a_metric_reads_nothing_but_what_it_says_it_needs(metric):
    value = metric.compute(MetricInputs(SAMPLES, REAL))
    assert isinstance(value, float) and np.isfinite(value)
    nothing = {part.value: getattr(NOTHING, part.value) for part in set(Need) - metric.needs}
    bare_sets = (dataclasses.replace(images, **nothing) for images in (SAMPLES, REAL))
    assert metric.compute(MetricInputs(*bare_sets)) == value


def test_the_keys_and_their_order_are_those_of_every_report_so_far():
    keys = ["fd", "kid", "agreement", "precision", "recall", "density", "coverage", "diversity"]
    assert [metric.key for metric in all_metrics()] == keys
    assert metrics.primary().key == "fd" and [metric.key for metric in metrics.headlines()] == [*keys[:3], "recall"]
    assert len({metric.order for metric in all_metrics()}) == len(keys)


def test_the_evaluation_keeps_what_the_metrics_need():
    assert metrics.needed() == set(Need)
    kept = SAMPLES.arrays({Need.STATISTICS})
    assert set(kept) == {"count", "mean", "scatter"}
    part = ImageSet.from_arrays(kept, SAMPLES.labels)
    assert part.features.size == part.agreed.size == 0 and (part.statistics.mean == SAMPLES.statistics.mean).all()


def test_parts_are_merged_in_their_order():
    features = RNG.standard_normal((30, 3))
    parts = [image_set(features[:12]), image_set(features[12:])]
    stored = [ImageSet.from_arrays(part.arrays(set(Need)), part.labels) for part in parts]
    merged, expected = ImageSet.merged(stored), FeatureStatistics.from_features(features)
    assert (merged.features == features).all() and len(merged.agreed) == len(merged.labels) == 30
    assert merged.statistics.count == 30 and np.allclose(merged.statistics.scatter, expected.scatter, rtol=1e-12)


def test_better_knows_the_best():
    values = [0.7, 1.1, 2.0]
    assert [better.best(values) for better in (Better.LOWER, Better.HIGHER, Better.NEAR_ONE)] == [0.7, 2.0, 1.1]


def test_a_metric_that_lacks_something_says_what():
    with pytest.raises(TypeError, match="Hollow lacks title, explanation, format, needs, order"):
        type("Hollow", (Metric,), {"better": Better.LOWER})


@pytest.fixture
def new_metric(tmp_path, monkeypatch):
    """A file of a metric in a folder of its own."""
    (tmp_path / "evaluation" / "metrics").mkdir(parents=True)
    (tmp_path / "evaluation" / "metrics" / "brightness.py").write_text(NEW)
    monkeypatch.setenv(variant_files.VARIANTS_VARIABLE, str(tmp_path))
    all_metrics.cache_clear()
    yield next(metric for metric in all_metrics() if metric.key == "brightness")
    all_metrics.cache_clear()


def test_a_new_file_is_measured_and_shown_everywhere(new_metric, tmp_path, monkeypatch, capsys):
    measured = report_job._measures(SAMPLES, REAL)
    assert list(measured)[:3] == ["fd", "kid", "brightness"]
    assert measured["brightness"] == SAMPLES.features.mean() and json.dumps(measured)
    figures, floor = (measured | {"train_flops": 10**9, "brightness": value} for value in (0.123, 0.045))
    given = bare(content())
    given.metrics.update(arms={"monolith": figures, "top-1": figures}, floor=floor)
    text = Page(page.render(given)).text
    assert "KID Mean feature Classifier agrees" in text and "Mean feature: the mean of all features; lower" in text
    assert "0.123" in text and page.table(given.metrics)["top-1"].best[2] == "brightness"
    print_results_table({"arms": {"top-1": figures}, "floor": floor})
    said = capsys.readouterr().out
    assert "lower is better: FD, KID, mean feature;" in said and "0.123" in said and "feature" in said
    rows = [
        SettingResult(
            f"seed={seed}", {"seed": seed}, {"top-1": figures | {"brightness": seed}, "floor": floor}, "complete"
        )
        for seed in (1, 2)
    ]
    write_csv(rows, tmp_path / "table.csv")
    write_seeds(statistics_over_seeds(rows), tmp_path / "seeds.csv")
    assert "fd,kid,brightness,agreement" in (tmp_path / "table.csv").read_text()
    assert "brightness,brightness_sd" in (tmp_path / "seeds.csv").read_text()
    print_sweep_table(rows)
    assert "1.500 +- 0.707" in capsys.readouterr().out
    print_sweep_table(rows[:1])
    said = capsys.readouterr().out
    assert "FD / KID / mean feature, by arm" in said and " / 1.000" in said
    for draw, keys, count in ((plot._lines, "seed", 9), (plot._bars, ["seed"], 5)):
        figure = draw(rows, keys)
        titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
        assert titles[2] == "mean feature  (lower is better)" and len(titles) == count


def test_what_a_table_needs_of_the_metrics_loads_no_torch():
    code = "import sys; from hpcddm.evaluation.metrics import all_metrics; print('numpy' in sys.modules)\n"
    code += "all_metrics(); print({'torch', 'scipy'} & sys.modules.keys())"
    assert python(code).stdout.split("\n")[:2] == ["False", "set()"]
