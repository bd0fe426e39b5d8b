"""Progress of a unit while it runs: whether to stop, and how far it is."""

from hpcddm.jobs.unit import Unit


def advance(unit: Unit, done: int, total: int) -> None:
    """Stop if that is requested, and otherwise tell how far a unit is.

    Args:
        unit: The unit.
        done: Amount that is done, in any measure.
        total: Amount of the whole unit in this measure.

    Raises:
        Stopped: The unit has to stop.
    """
    unit.stop_if_requested()
    unit.heartbeat.beat(done, total)
