"""Batches of a training of denoisers or routers: images with noise, times and conditions."""

from functools import partial

from hpcddm.config.experiment import Experiment
from hpcddm.data.batch import Inputs, NoisyBatches
from hpcddm.data.draws import Draws
from hpcddm.data.orders.base import Order
from hpcddm.data.reader import Reader
from hpcddm.data.samples import order_of
from hpcddm.diffusion.conditions import base as conditions
from hpcddm.jobs.unit import Unit


def noisy_batches(
    settings: Experiment, unit: Unit, reader: Reader, inputs: Inputs, order: Order | None = None
) -> NoisyBatches:
    """Return the batches of a unit's training; by default on a whole split, as `data.order` has it.

    inputs: what they hold of the reader's images.
    """
    data, condition = settings.data, conditions.build(settings.data, unit.input)
    return NoisyBatches(
        reader,
        order or order_of(settings, settings.seed, unit.key, len(reader)),
        Draws(settings.seed, unit.key),
        condition_of=partial(condition.carried, reader),
        condition_on_device=condition.on_device,
        dropout=settings.experts.condition_dropout,
        shape=data.x_shape,
        inputs=inputs,
    )
