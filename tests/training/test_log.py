"""What a training says on rank 0: log line, heartbeat, TensorBoard."""

import itertools
import json
import os
import time
from types import SimpleNamespace

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hpcddm.jobs.job_environment import Ranks
from hpcddm.jobs.open_attempt import open_attempt
from hpcddm.runs import heartbeat
from hpcddm.runs.heartbeat import HeartbeatWriter
from hpcddm.training import log
from hpcddm.training.checkpoints import PublishedState
from hpcddm.training.log import TrainingLog
from hpcddm.training.meters import TrainingProgress
from tests.training.scenarios import BATCH, resolved, training

NAMES = {"loss", "learning_rate", "gradient_norm", "images_per_second", "data_wait", "tflops", "memory_gib"}


@pytest.fixture
def unit(tmp_path):
    """As much of a unit as its log asks for."""
    ranks = Ranks(0, 0, 1, 1, "me")
    attempt = open_attempt(tmp_path / "logs", ranks)
    writer = HeartbeatWriter(attempt.folder, "me", 1, "host", interval=0)
    return SimpleNamespace(folder=tmp_path, ranks=ranks, attempt=attempt, heartbeat=writer, trajectory="f")


def opened(unit, progress=None, flops_per_image=10**9):
    settings = resolved(training(), flops_per_image)
    return TrainingLog(unit, settings, progress or TrainingProgress(), torch.device("cpu"))


def scalars(folder):
    """The scalars that TensorBoard finds: {name: [(images, value)]}."""
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_a_line_names_every_figure_with_its_unit():
    figures = {"loss": 0.98765, "learning_rate": 0.0001, "gradient_norm": 1.2345, "images_per_second": 1234.5}
    figures |= {"tflops": 0.01234, "memory_gib": 0.3125, "skipped": 2}
    assert log.line(64000, 1280000, figures) == (
        "64,000 of 1,280,000 images: loss 0.9877, learning rate 0.0001, gradient norm 1.23, 1,234.5 images/s,"
        " 0.0123 TFLOP/s, 0.31 GiB, 2 steps skipped"
    )
    assert log.line(8, 80, {"loss": 1.0}) == "8 of 80 images: loss 1.0000"


def test_log_heartbeat_and_tensorboard_say_the_same(unit, capsys):
    training_log = opened(unit)
    training_log.beat(TrainingProgress(BATCH))
    assert heartbeat.read(unit.attempt.folder).figures == {}
    progress = TrainingProgress(24, curve=[(24, 0.5)])
    training_log.write(progress, 1.5, 1e-9)
    training_log.beat(progress)
    figures = heartbeat.read(unit.attempt.folder).figures
    assert figures.keys() == NAMES and 0 < figures["data_wait"] < 1
    assert (figures["loss"], figures["learning_rate"], figures["gradient_norm"]) == (0.5, 0.01, 1.5)
    assert figures["tflops"] == pytest.approx(figures["images_per_second"] / 1000) and 0 < figures["memory_gib"] < 100
    assert capsys.readouterr().out == log.line(24, 80, figures) + "\n"
    training_log.close()
    shown = scalars(unit.folder)
    assert shown.keys() == NAMES and all(shown[name] == [(24, pytest.approx(figures[name]))] for name in NAMES)


def test_nobody_knows_beforehand_which_file_it_writes(unit, tmp_path):
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "precious").write_text("precious")
    for second, number in itertools.product(range(int(time.time()), int(time.time()) + 60), range(50)):
        name = f"events.out.tfevents.{second:010d}.rank0.{os.getpid()}.{number}"
        os.link(tmp_path / "precious", tmp_path / "tensorboard" / name)
    opened(unit).close()
    assert (tmp_path / "precious").read_text() == "precious"


def test_what_is_not_known_is_left_out_and_skipped_steps_are_told_at_once(unit):
    training_log = opened(unit, flops_per_image=0)
    progress = TrainingProgress(24, skipped=1, curve=[(24, 0.5)])
    training_log.write(progress, None, 0.0)
    progress.skipped = 2
    training_log.beat(progress)
    figures = heartbeat.read(unit.attempt.folder).figures
    assert figures.keys() == NAMES - {"tflops", "gradient_norm"} | {"skipped"} and figures["skipped"] == 2


def test_after_an_interruption_the_last_loss_is_there_and_later_points_are_replaced(unit):
    first = opened(unit)
    for images in (24, 40):
        first.write(TrainingProgress(images, curve=[(images, 1.0)]), 1.0, 0.0)
    first.close()
    progress = TrainingProgress(24, curve=[(24, 1.0)])
    second = opened(unit, progress)
    progress.images = 32
    second.beat(progress)
    beat = heartbeat.read(unit.attempt.folder)
    assert (beat.figures, beat.saved_images) == ({"loss": 1.0}, 24)
    assert json.loads((unit.attempt.folder / "first_step.json").read_text())["images"] == 24
    progress.curve.append((40, 0.25))
    progress.images = 40
    second.write(progress, 1.0, 0.0)
    second.log_saved(progress, PublishedState(40, 0.1, 0.3))
    assert scalars(unit.folder)["loss"] == [(24, 1.0), (40, 0.25)], "a state that is saved has its points on the disk"
    second.close()


def test_another_rank_says_nothing(unit, capsys):
    unit.ranks = Ranks(1, 1, 2, 1, "me")
    training_log = opened(unit)
    progress = TrainingProgress(24, skipped=1, curve=[(24, 0.5)])
    training_log.write(progress, 1.5, 0.0)
    training_log.beat(progress)
    training_log.log_skipped(progress.images, progress)
    training_log.log_saved(progress, 0.1)
    training_log.close()
    assert not (unit.folder / "tensorboard").exists() and heartbeat.read(unit.attempt.folder) is None
    assert capsys.readouterr().out == ""
