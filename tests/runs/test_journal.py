import json
import os
import pwd
import time

import pytest

from hpcddm.runs.journal import NODE_LOSS_SECONDS, Journal, select_current


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal.jsonl")


def test_an_intent_without_an_answer_stays_visible(journal):
    assert journal.submissions() == []
    first = journal.record_intent("slurm", "north", ["train/expert-00", "train/expert-01"])
    second = journal.record_intent("slurm", "south", ["router/all"])
    journal.record_submitted(first, "17")
    found = journal.submissions()
    assert [(one.uuid, one.site, one.job) for one in found] == [(first, "north", "17"), (second, "south", None)]
    assert found[0].units == ["train/expert-00", "train/expert-01"] and len({first, second}) == 2


def test_a_torn_last_line_is_passed_over_and_costs_no_later_one(journal, tmp_path):
    path = tmp_path / "journal.jsonl"
    first = journal.record_intent("slurm", "north", ["router/all"])
    whole = path.read_text()
    journal.record_submitted(first, "17")
    torn = path.read_text()[:-5]
    for length in range(len(whole) + 1, len(torn)):
        path.write_text(torn[:length])
        later = Journal(path)
        later.record_submitted(later.record_intent("slurm", "north", ["train/monolith"]), "18")
        assert [one.job for one in later.submissions()] == [None, "18"]


NOTHING = ["", "\0\0\0", "[]", "3", "null", "{}", '{"event": []}', '{"event": "intent", "uuid": "x"}']
NOTHING += ['{"event": "submitted", "uuid": "x"}', '{"event": "submitted", "uuid": [], "job": "3"}']


def test_a_line_that_says_nothing_is_passed_over(journal, tmp_path):
    for line in NOTHING:
        (tmp_path / "journal.jsonl").write_text(line + "\n")
        journal.record_intent("slurm", "north", ["router/all"])
        assert [one.units for one in journal.submissions()] == [["router/all"]], line


def test_a_submission_that_was_refused_was_none(journal):
    first = journal.record_intent("slurm", "north", ["router/all"], "tiny-route")
    second = journal.record_intent("slurm", "north", ["train/monolith"], "tiny-monolith")
    journal.record_refused(first)
    assert [one.job_name for one in journal.submissions()] == [f"tiny-monolith-{second}"]


def test_a_cancellation_names_its_units_or_means_all(journal):
    token = journal.record_intent("slurm", "north", ["a/x", "a/y"])
    journal.record_submitted(token, "17")
    journal.record_cancelled(token, ["a/y"])
    assert [one.cancelled for one in journal.submissions()] == [("a/y",)]
    journal.record_cancelled(token)
    assert set(journal.submissions()[0].cancelled) == {"a/x", "a/y"}


def test_of_a_unit_the_last_submission_of_each_site_can_be_in_a_queue(journal):
    def submit(site, *units):
        token = journal.record_intent("slurm", site, list(units))
        journal.record_submitted(token, "17")
        return token

    first = submit("north", "a/x", "a/y")
    submit("north", "a/z")
    south = submit("south", "a/x")
    again = submit("north", "a/x", "a/z")
    # a/y is only in the first.
    assert [one.uuid for one in select_current(journal.submissions())] == [first, south, again]
    later = submit("north", "a/y")
    lost = journal.record_intent("slurm", "north", ["a/x"])
    submit("north", "a/x")
    current = {one.uuid for one in select_current(journal.submissions())}
    assert current >= {south, later, lost} and first not in current, "nobody knows what became of the lost one"


def test_lost_nodes_are_those_of_one_cluster_of_a_site_for_a_day_the_last_one_seen_at_the_end(journal, monkeypatch):
    tokens = {
        (site, cluster): [journal.record_intent("slurm", site, ["a/x", "a/y"], cluster=cluster) for _ in range(2)]
        for site, cluster in (("north", None), ("north", "annex"), ("south", None))
    }
    first, second = tokens["north", None]
    for token, unit, node in ((first, "a/x", "n1"), (first, "a/y", "n2"), (second, "a/x", "n1"), (first, "a/y", "n2")):
        journal.record_node_loss(token, unit, node)
    journal.record_node_loss(tokens["north", "annex"][0], "a/x", "annex-n1")
    journal.record_node_loss(tokens["south", None][0], "a/x", "south-n1")
    assert journal.lost_nodes("north", None) == ["n2", "n1"], "one loss is told once, a second one is the newest"
    assert journal.lost_nodes("north", "annex") == ["annex-n1"] and journal.lost_nodes("south", None) == ["south-n1"]
    later = time.time() + NODE_LOSS_SECONDS
    monkeypatch.setattr("hpcddm.runs.journal.time.time", lambda: later)
    assert journal.lost_nodes("north", None) == []


def test_it_tells_who_submitted_and_reads_lines_that_do_not(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.record_intent("slurm", "north", ["a/x"])
    line = json.loads((tmp_path / "journal.jsonl").read_text())
    older = {key: value for key, value in line.items() if key != "user"} | {"uuid": "older"}
    with open(tmp_path / "journal.jsonl", "a") as file:
        file.write(json.dumps(older) + "\n")
    assert [one.user for one in journal.submissions()] == [pwd.getpwuid(os.getuid()).pw_name, ""]
