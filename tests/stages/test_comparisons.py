"""Units that compare samples with real images, one by one: neighbours in ranges, and what an ended attempt leaves."""

import json
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from hpcddm.evaluation.metrics import adm_precision, adm_recall, all_metrics, metric_inputs, of_neighbours
from hpcddm.evaluation.metrics import overlap as overlaps
from hpcddm.jobs.stopping import Stopped
from hpcddm.jobs.unit import Result
from hpcddm.pipeline.unit_graph import plan_units
from hpcddm.runs import manifest
from hpcddm.runs.files import COMPARISON, EVALUATION, FINISHED_ARMS, KNOWN_METRICS, MEASUREMENTS, STATISTICS
from hpcddm.stages.evaluation import (
    compare_job,
    measure_job,
    measure_real_job,
    neighbours,
    neighbours_job,
    reference_statistics_job,
)
from hpcddm.stages.evaluation.draw import arm_names, draw_range
from tests.helpers import tiny
from tests.stages import routes
from tests.stages.routes import Bench, write_images

LABEL, IMAGES, FEW = "pixels-4", 60, 20
JOBS = {"measure_real": measure_real_job, "reference_statistics": reference_statistics_job, "measure": measure_job}
JOBS |= {"neighbours": neighbours_job, "compare": compare_job}
MADE = tuple(f"{stage}/{LABEL}" for stage in JOBS)
CHANGES = {
    "evaluators__extractor": None,
    "evaluate__extractors": [{"name": "pixels", "size": 4}],
    "evaluate__images": IMAGES,
    "evaluate__batch": 10,
    "evaluate__units": 3,
    "evaluate__first_sample": 30,
}


def draw(bench: Bench, key: str) -> None:
    """Write samples of every arm as the stage draw does: noise, darker by arm."""
    (start, stop), unit = draw_range(key), SimpleNamespace(key=key, folder=bench.run.unit(key), inputs={})
    unit.folder.mkdir(parents=True)
    with h5py.File(unit.folder / EVALUATION, "w") as file:
        for number, arm in enumerate(arm_names(bench.settings)):
            noise = np.random.default_rng([number, start]).integers(0, 256 >> number, (stop - start, 28, 28, 1))
            file.create_dataset(f"{arm}/images", data=noise.astype(np.uint8))
    bench.publish(unit, Result([EVALUATION], {}))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run whose evaluation is compared, with more images than one unit compares."""
    root = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        for module in (metric_inputs, of_neighbours, overlaps, neighbours, adm_precision, adm_recall):
            patch.setattr(module, "NEIGHBOUR_IMAGES", FEW)
        patch.setattr(neighbours_job, "ROWS_AT_ONCE", 7)
        for metric in (adm_precision.AdmPrecision, adm_recall.AdmRecall):
            patch.setattr(metric, "smallest", FEW + 1)
        patch.setattr(routes, "STAGES", routes.STAGES | JOBS)
        write_images(root / "images", 300, 200)
        bench = Bench(root, "run", **CHANGES)
        for unit in plan_units(bench.settings):
            if unit.stage == "draw":
                draw(bench, unit.key)
            elif unit.stage in ("shard", "catalog", "neighbours") or unit.key.startswith(MADE):
                bench.make(unit.key)
        yield bench


def features(bench: Bench, stage: str, group: str) -> np.ndarray:
    parts = []
    for path in sorted(bench.run.root.glob(f"{stage}/{LABEL}-*/{MEASUREMENTS}")):
        with h5py.File(path) as file:
            parts.append(file[group]["features"][:])
    return np.concatenate(parts)


def figures(bench: Bench, arm: str) -> dict:
    found = json.loads((bench.run.unit(f"compare/{LABEL}") / COMPARISON).read_text())
    return found["floor"] if arm == "floor" else found["arms"][arm]


def test_neighbours_are_found_in_ranges_and_those_of_few_images_at_once(measured):
    real = features(measured, "measure_real", "heldout")
    assert len(real) == IMAGES
    known = manifest.read(measured.run.unit(f"compare/{LABEL}")).results[KNOWN_METRICS]
    assert known == [metric.key for metric in all_metrics()]
    for arm in (*arm_names(measured.settings), "floor"):
        samples = features(measured, *(("measure_real", "train") if arm == "floor" else ("measure", arm)))
        found, of_all = figures(measured, arm), overlaps.overlap(real, samples)
        few = overlaps.overlap(real[:FEW], samples[:FEW])
        for key in ("precision", "recall", "density", "coverage"):
            for images, expected in ((IMAGES, of_all), (FEW, few)):
                figure = found[f"{key}-{images}@{LABEL}"]
                assert [figure["value"], *figure["left_out"]] == getattr(expected, key).tolist()
        for key in ("precision", "recall"):
            assert found[f"adm_{key}-{FEW}x{IMAGES}@{LABEL}"]["value"] == getattr(of_all.adm, key)[0]


def test_an_attempt_takes_over_the_arms_that_an_earlier_one_has_finished(measured, monkeypatch):
    path = Path(measured.run.unit(f"compare/{LABEL}") / COMPARISON)
    whole = path.read_bytes()
    path.unlink()
    compute, arms = compare_job._metrics, len(arm_names(measured.settings))
    compared = []

    def stop_at_the_floor(samples, images, is_floor):
        compared.append(is_floor)
        if is_floor:
            raise Stopped("asked to")
        return compute(samples, images, is_floor)

    monkeypatch.setattr(compare_job, "_metrics", stop_at_the_floor)
    with pytest.raises(Stopped):
        compare_job.run(measured.settings, measured.unit(f"compare/{LABEL}"))
    assert compared == [False] * arms + [True]
    compared.clear()
    monkeypatch.setattr(compare_job, "_metrics", lambda *given: compared.append(given[2]) or compute(*given))
    measured.make(f"compare/{LABEL}")
    assert compared == [True] and path.read_bytes() == whole
    assert {file.name for file in path.parent.iterdir()} == {COMPARISON, "manifest.json"}


OTHER = ["", "[]", '{"trajectory": "x"}', '{"trajectory": "of others", "figures": {"top-1": {}, "floor": {}}}']


@pytest.mark.parametrize("content", OTHER, ids=["empty", "a list", "no figures", "of other inputs"])
def test_figures_of_other_inputs_and_what_is_none_are_ignored(measured, content):
    unit = measured.unit(f"compare/{LABEL}")
    (unit.folder / COMPARISON).unlink()
    (unit.folder / FINISHED_ARMS).write_text(content)
    measured.make(unit.key)
    found = json.loads((unit.folder / COMPARISON).read_text())
    assert all(f"fd@{LABEL}" in figures for figures in (*found["arms"].values(), found["floor"]))


@pytest.mark.parametrize("images, expected", [(64, []), (72, ["reference_statistics/pixels-8"])])
def test_a_singular_covariance_is_not_for_other_programs(tmp_path, images, expected):
    settings = tiny(tmp_path, evaluate__images=images, evaluate__extractors=[{"name": "pixels", "size": 8}])
    assert [encoder.dimensions(settings.data) for encoder in settings.evaluate.extractors] == [64]
    assert [unit.key for unit in plan_units(settings) if unit.stage == "reference_statistics"] == expected


def test_mean_and_covariance_are_in_the_file_of_other_programs(measured):
    real = features(measured, "measure_real", "heldout").astype(np.float64)
    with np.load(measured.run.unit(f"reference_statistics/{LABEL}") / STATISTICS, allow_pickle=False) as file:
        assert file["images"] == IMAGES
        np.testing.assert_allclose(file["mu"], real.mean(0), rtol=1e-12)
        np.testing.assert_allclose(file["sigma"], np.cov(real.T), rtol=1e-9, atol=1e-12)
