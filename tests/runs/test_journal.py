import pytest

from hpcddm.runs.journal import Journal, select_current


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal.jsonl")


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
