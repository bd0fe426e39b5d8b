"""Batches of a training of denoisers or routers: images with noise, times and conditions."""

from functools import partial

from hpcddm.conditions import base as conditions
from hpcddm.config import Experiment
from hpcddm.data.augmentations import base as augmentations
from hpcddm.data.batch import NoisyBatches
from hpcddm.data.draws import Draws
from hpcddm.data.orders.base import Order
from hpcddm.data.reader import Reader
from hpcddm.data.samples import order_of
from hpcddm.rundir.layout import Locate


def noisy_batches(
    settings: Experiment,
    stream: str,
    locate: Locate,
    reader: Reader,
    order: Order | None = None,
    is_drawn: bool = False,
) -> NoisyBatches:
    """Return the batches of a training; by default on a whole split, as `data.order` has it.

    locate: finds the inputs of the training's unit; is_drawn: true for images that the experts have drawn, who have
    learnt from augmented ones.
    """
    data, condition = settings.data, conditions.build(settings.data, locate)
    return NoisyBatches(
        reader,
        order or order_of(settings, settings.seed, stream, len(reader)),
        Draws(settings.seed, stream),
        condition_of=partial(condition.carried, reader),
        condition_on_device=condition.on_device,
        dropout=settings.experts.condition_dropout,
        shape=data.x_shape,
        augmentations=[] if is_drawn else augmentations.created(data.augmentations, data.image_size),
    )
