"""Whether a job may start: what it reads may still be made under job ids that its dependency does not know.

`python -m hpcddm.runtime.gate MAP` prints the job names to ask the queue for, or nothing; with the queue's answer
('A_T|name' lines) on its input and `behind` after MAP it prints the jobs to wait for, or nothing.
"""

import os
import sys
from pathlib import Path

from hpcddm.errors import UserError
from hpcddm.rundir.journal import Journal
from hpcddm.rundir.layout import RunDir
from hpcddm.runtime.inputs import gather
from hpcddm.runtime.ranks import slurm_element
from hpcddm.runtime.spec import Spec, read_map, read_spec

TABLE = "table/all"
"""The last job of a sweep: it reads whatever the others have made."""


def main() -> None:
    """Print the answer for the batch script."""
    map_path = Path(sys.argv[1])
    home = RunDir(map_path.resolve().parent.parent)
    spec, run = read_spec(read_map(map_path)[int(os.environ["SLURM_ARRAY_TASK_ID"])])
    wanted = lacking(spec, run, home)
    if len(sys.argv) == 2:
        print(",".join(names(wanted, home)))
    else:
        print(":".join(behind(sys.stdin.read(), wanted, home)))


def lacking(spec: Spec, run: RunDir, home: RunDir) -> set[str]:
    """What may still be in the making of what the unit reads, as the journal of `home` names it."""
    if spec.key == TABLE:
        return {unit for one in Journal(home.journal).submissions() for unit in one.units} - {TABLE}
    try:
        keys = gather(spec, run).missing
    except UserError:
        # What is there may be made anew just now, so it is asked for, too.
        keys = [*spec.needs, *spec.wants]
    top = home.root.resolve()
    if top == run.root.resolve():
        return set(keys)
    # What is shared is a link to where another run of the same home makes it; the folder of 'cluster/all' is 'cluster'.
    places = {key: run.unit(key).resolve().relative_to(top) for key in keys}
    return {f"{place}/all" if key.endswith("/all") else str(place) for key, place in places.items()}


def names(wanted: set[str], home: RunDir) -> list[str]:
    """The names of all jobs that were submitted for these units."""
    return [one.job_name for one in Journal(home.journal).submissions() if wanted.intersection(one.units)]


def behind(queue: str, wanted: set[str], home: RunDir) -> list[str]:
    """The elements in the queue that make one of these units."""
    units = {one.job_name: one.units for one in Journal(home.journal).submissions()}
    found = []
    for line in queue.splitlines():
        element, _, name = line.strip().partition("|")
        number = element.rpartition("_")[2]
        if name in units and number.isdigit() and element != slurm_element():
            if units[name][int(number)] in wanted:
                found.append(element)
    return found


if __name__ == "__main__":
    main()
