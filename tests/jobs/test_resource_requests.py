"""What the next attempt asks for after there was too little."""

import pytest

from hpcddm.jobs.resource_requests import ResourceRequest, parse_request, raise_request

FACTORS = {"memory_gb": 1.5, "minutes": 2.0}
PARTITION = {"NodeMemory": "8000", "PartitionTime": "1:00:00"}


REQUESTS = {
    "total": ({"MinMemoryNode": "4G", "TimeLimit": "00:30:00"}, ResourceRequest(4, 30)),
    "in MB": ({"MinMemoryNode": "1536M", "TimeLimit": "1-00:00:00"}, ResourceRequest(1.5, 1440)),
    "per processor": (
        {"MinMemoryCPU": "2G", "NumCPUs": "8", "NumNodes": "2", "TimeLimit": "UNLIMITED"},
        ResourceRequest(8, None, 4),
    ),
    "whole node": ({"MinMemoryNode": "0", "TimeLimit": "30:00"}, ResourceRequest(None, 30)),
    "days and hours": ({"TimeLimit": "2-01:30:00"}, ResourceRequest(None, 2970)),
    "no answer": ({}, ResourceRequest(None, None)),
}


@pytest.mark.parametrize(("job", "request_"), REQUESTS.values(), ids=REQUESTS)
def test_what_was_asked_for_is_read_from_slurms_words(job, request_):
    assert parse_request(job) == request_


def test_too_little_is_asked_for_again_as_more_of_it():
    before = ResourceRequest(4, 20)
    after, remark = raise_request(before, FACTORS, PARTITION, is_memory=True, is_time=False)
    assert (after.updates(before), after.flags()) == ("MinMemoryNode=6144", "--mem=6144M --time=20")
    assert remark == "asks for 6 GB now"
    after, remark = raise_request(before, FACTORS, PARTITION, is_memory=False, is_time=True)
    assert (after.updates(before), after.minutes, remark) == ("", 40, "asks for 40 minutes now")


def test_memory_by_processor_is_asked_for_by_processor():
    before = ResourceRequest(8, 20, cpus=4)
    after, _ = raise_request(before, FACTORS, {}, is_memory=True, is_time=False)
    assert (after.updates(before), after.flags()) == ("MinMemoryCPU=3072", "--mem-per-cpu=3072M --time=20")


def test_no_more_than_the_partition_has_is_asked_for_and_nothing_that_the_site_does_not_name():
    after, remark = raise_request(ResourceRequest(6, 50), FACTORS, PARTITION, is_memory=True, is_time=True)
    assert (after.memory_gb, after.minutes) == (7.8125, 60) and remark.count("now") == 2
    before = after
    after, remark = raise_request(before, FACTORS, PARTITION, is_memory=True, is_time=True)
    assert after.updates(before) == "" and "no node" in remark and "allows no more than 60 minutes" in remark
    unlimited = PARTITION | {"PartitionTime": "infinite"}
    assert raise_request(before, FACTORS, unlimited, is_memory=False, is_time=True)[0].minutes == 120
    assert raise_request(before, {"minutes": 2.0}, PARTITION, is_memory=True, is_time=False) == (before, "")
