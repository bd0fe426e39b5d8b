"""Id of a job together with its cluster, because two clusters may assign equal ids."""

import re

PATTERN = re.compile(r"[0-9]+(_[0-9]+)?(@[A-Za-z0-9][A-Za-z0-9_.-]*)?")


class JobId(str):
    """Id of a job or of an array element: '81235', '81235_3', or '81235_3@annex' on a named cluster.

    The text includes the cluster, so equal ids from two clusters differ. Slurm's commands take `number` together with
    `cluster_flag(cluster)`.

    Examples:
        >>> job = JobId.on_cluster("81235_3", "annex")
        >>> job
        '81235_3@annex'
        >>> job.number, job.cluster, job.array, job.array_index
        ('81235_3', 'annex', '81235@annex', '3')
        >>> job.array.element(4)
        '81235_4@annex'
    """

    __slots__ = ()

    @classmethod
    def on_cluster(cls, number: str, cluster: str | None) -> "JobId":
        """Create an id from the number that a cluster assigned.

        Args:
            number: Number of the job or the array element, such as '81235_3'.
            cluster: Name of the cluster; None for the default cluster of Slurm's commands.
        """
        return cls(f"{number}@{cluster}" if cluster else number)

    @property
    def number(self) -> str:
        """Number on its cluster, such as '81235_3'."""
        return self.partition("@")[0]

    @property
    def cluster(self) -> str | None:
        """Name of its cluster; None for the default cluster."""
        return self.partition("@")[2] or None

    @property
    def array(self) -> "JobId":
        """Id of the array that it belongs to."""
        return JobId.on_cluster(self.number.partition("_")[0], self.cluster)

    @property
    def array_index(self) -> str:
        """Index of the job in its array; '' for a job without an array."""
        return self.number.partition("_")[2]

    def element(self, index: int) -> "JobId":
        """Return the id of one element of this array."""
        return JobId.on_cluster(f"{self.array.number}_{index}", self.cluster)

    def range(self, last: int) -> str:
        """Return the elements from 0 to `last` of this array as text for users, such as '81235_[0-7]'."""
        return JobId.on_cluster(f"{self.array.number}_[0-{last}]", self.cluster)


def require_job(text: str) -> None:
    """Check that a text is the id of a job before it becomes an argument of a command.

    Raises:
        ValueError: If the text is not the id of a job.
    """
    if not PATTERN.fullmatch(text):
        raise ValueError("is not the id of a job")
