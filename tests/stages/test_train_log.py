"""Log of a training of an expert, from its first line on."""

from hpcddm.config import paths
from hpcddm.runs.unit_training import images_per_step
from hpcddm.stages.training import train_job
from tests.helpers import tiny
from tests.stages.routes import Bench, write_images


def test_the_first_line_says_whose_images_a_batch_counts(tmp_path, capfd):
    write_images(tmp_path / "images", 400, 100)
    bench = Bench(tmp_path, "run", experts__training__batch=32)
    bench.make_data()
    capfd.readouterr()
    unit = bench.unit("train/expert-02")
    bench.train(unit, lambda: train_job.run(paths.make_absolute(bench.settings, bench.run.root), unit))
    first = next(line for line in capfd.readouterr().out.splitlines() if line.startswith("train/expert-02: "))
    words = "8 images per step (experts.training.batch: 32 images per step over all 4 experts, 8 each)"
    assert first.startswith(f"train/expert-02: 0 of 16 images seen, {words}, 1 ranks, ")


def test_a_single_expert_has_the_whole_batch(tmp_path):
    experiment = tiny(tmp_path, cluster__experts=1, router={"model": {"name": "uniform_router"}})
    assert images_per_step(experiment) == "16 images per step"
