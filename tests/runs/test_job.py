"""The name of a job: equal ids of two clusters are two jobs."""

import pytest

from hpcddm.runs.job import JobId


@pytest.mark.parametrize("text, number, cluster, index", [("81_3", "81_3", None, "3"), ("81@north", "81", "north", "")])
def test_a_job_is_its_id_and_its_cluster(text, number, cluster, index):
    job = JobId(text)
    assert (job.number, job.cluster, job.array_index) == (number, cluster, index)
    assert JobId.on_cluster(number, cluster) == job and job.array.element(3).array == job.array


def test_equal_ids_of_two_clusters_differ():
    assert len({JobId("81_3"), JobId("81_3@north"), JobId("81_3@south")}) == 3
    assert JobId("81_3@north").array.range(7) == "81_[0-7]@north"
