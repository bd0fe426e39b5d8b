"""A scheduler that takes what it is told to take and knows what it was told to know."""

from hpcddm.config.site import Site
from hpcddm.launch.array_items import make_items, write_element_map
from hpcddm.launch.base import Job, Limits, QueueFull, QueueLauncher
from hpcddm.launch.queue import plan_arrays, submit_planned
from hpcddm.runs.job import JobId


class Queue(QueueLauncher):
    """`alive` units are in the queue, all in one state; None means that nobody answers. It takes `room` jobs."""

    def __init__(self, run, alive=(), state="running", limits=None, room=1000, **site):
        super().__init__(Site(**{"name": "north", "scheduler": "slurm", **site}), run)
        self.submitted, self.gone, self.dismissed = [], [], []
        self.alive, self.state, self.room = alive, state, room
        self._limits = limits or Limits()

    def check(self, arrays):
        raise AssertionError("deciding asks for nothing of the kind")

    def limits(self, wanted, cluster=None):
        return self._limits

    def render(self, array, script):
        raise AssertionError("nothing is rendered")

    def check_shared_folder(self, arrays):
        pass

    def submit(self, array, token, script):
        if self.room < len(array.keys):
            raise QueueFull("no more jobs")
        self.room -= len(array.keys)
        write_element_map(array.specs, self.run.jobs, token)
        self.submitted.append(array)
        return JobId.on_cluster(str(100 + len(self.submitted)), array.resources.cluster)

    def states(self, submissions):
        if self.alive is None:
            return None
        confirmed = [one for one in submissions if one.job]
        found = {key: one.job.element(number) for one in confirmed for number, key in enumerate(one.units)}
        return {key: Job(found[key], self.state) for key in self.alive if key in found}

    def signal_stop(self, *jobs):
        self.dismissed += jobs

    def cancel(self, *jobs):
        self.gone += jobs


def submit_all(experiment, run, queue, decision):
    """Submit all of a decision, as the verb does."""
    planned_arrays, _ = plan_arrays(make_items(decision.to_run, experiment, run), run, queue)
    return list(submit_planned(planned_arrays, run, queue, decision.active))
