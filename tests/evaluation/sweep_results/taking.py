"""A scheduler that takes every job of a sweep and runs none."""

from tests.launch.queues import Queue

DRAW = "draw/0000000-0000024"


class Taking(Queue):
    """A scheduler that accepts every shape."""

    checked = ()

    def check(self, arrays):
        self.checked = [array.keys for array in arrays]

    def render(self, array, script):
        self.rendered = [*getattr(self, "rendered", []), script]


def names(queue) -> list[str]:
    """All that was submitted."""
    return [name for array in queue.submitted for name in array.keys]


def jobs(queue) -> dict[str, int]:
    """Numbers of the jobs of all that was submitted."""
    return {name: 101 + number for number, array in enumerate(queue.submitted) for name in array.keys}
