"""Name of a job: its id and the cluster that gave it, as the ids of two clusters may be equal."""

import re

PATTERN = re.compile(r"[0-9]+(_[0-9]+)?(@[A-Za-z0-9][A-Za-z0-9_.-]*)?")


class JobId(str):
    """Id of a job or of one element of its array: '81235', '81235_3', or '81235_3@annex' on a named cluster.

    The text is the identity: equal ids of two clusters differ. Slurm's commands take `number`, beside `on(cluster)`.
    """

    __slots__ = ()

    @classmethod
    def of(cls, number: str, cluster: str | None) -> "JobId":
        """Make an id from that on the cluster; None is the cluster that Slurm's commands talk to by default."""
        return cls(f"{number}@{cluster}" if cluster else number)

    @property
    def number(self) -> str:
        """Id on its cluster, such as '81235_3'."""
        return self.partition("@")[0]

    @property
    def cluster(self) -> str | None:
        """Name of its cluster; None where the site names none."""
        return self.partition("@")[2] or None

    @property
    def array(self) -> "JobId":
        """Id of the array that it belongs to."""
        return JobId.of(self.number.partition("_")[0], self.cluster)

    @property
    def array_index(self) -> str:
        """Its index in the array, '' for a job that is no element."""
        return self.number.partition("_")[2]

    def element(self, index: int) -> "JobId":
        """Return the id of one element of this array."""
        return JobId.of(f"{self.array.number}_{index}", self.cluster)

    def range(self, last: int) -> str:
        """Return the elements from 0 to `last` of this array, as text for people."""
        return JobId.of(f"{self.array.number}_[0-{last}]", self.cluster)


def require_job(text: str) -> None:
    """Raise `ValueError` for what is not the id of a job, before it becomes an argument of a command."""
    if not PATTERN.fullmatch(text):
        raise ValueError("is not the id of a job")
