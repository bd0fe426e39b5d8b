"""Orders of training samples, as tests make them."""

from hpcddm.data.orders import uniform as uniform_file
from hpcddm.data.orders import windowed as windowed_file


def uniform(seed, stream, size):
    return uniform_file.UniformOrder(uniform_file.UniformOrderSettings(name="uniform"), seed, stream, size)


def windowed(seed, stream, size, block=7, mixed=3):
    settings = windowed_file.WindowedOrderSettings(name="windowed", block_size=block, window_blocks=mixed)
    return windowed_file.WindowedOrder(settings, seed, stream, size)
