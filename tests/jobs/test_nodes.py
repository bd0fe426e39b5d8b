"""Nodes that the next attempt avoids: the newest at fault, as long as there are others like them."""

from hpcddm.jobs.nodes import Node, nodes_to_exclude

PLAIN, BIG = "(null)|(null)|4|8000", "bigmem|gpu:4|64|512000"


def nodes(kind, **states):
    return [Node(name, state, kind) for name, state in states.items()]


MIXED = nodes(PLAIN, p1="idle", p2="mixed", p3="allocated") + nodes(BIG, b1="mixed", b2="idle")


def test_the_newest_nodes_at_fault_are_avoided_beside_those_of_the_site():
    assert nodes_to_exclude(["s1"], ["p1", "p2"], MIXED, most=1, needed=1) == ["s1", "p2"]
    assert nodes_to_exclude(["s1", "p1"], ["p1", "p2", "p1"], MIXED, most=4, needed=1) == ["s1", "p1"]
    assert nodes_to_exclude(["s1"], ["p1"], MIXED, most=0, needed=1) == ["s1"]
    # A job that needs what two nodes have keeps one of them, and a node of which nothing is listed is not avoided.
    assert nodes_to_exclude([], ["b1"], MIXED, most=4, needed=2) == []
    assert nodes_to_exclude([], ["b1", "b2"], MIXED, most=4, needed=1) == ["b2"]
    assert [nodes_to_exclude([], ["h9"], listed, most=4, needed=1) for listed in (MIXED, [])] == [[], []]


def test_one_more_is_left_for_a_node_that_dies_while_the_job_waits_where_older_ones_are_avoided_too():
    for names, left in (("abc", ["c"]), ("abcd", ["c", "b"])):
        assert nodes_to_exclude([], ["b", "c"], nodes(PLAIN, **dict.fromkeys(names, "idle")), most=4, needed=1) == left


def test_nodes_that_get_no_jobs_are_no_others():
    unusable = ("down", "idle*", "drained", "draining", "maint", "down*", "unknown")
    for state in (*unusable, "idle", "mixed-", "allocated", "idle~", "completing", "planned"):
        few, avoided = nodes(PLAIN, p1="idle", p2=state), [] if state in unusable else ["p1"]
        assert nodes_to_exclude([], ["p1"], few, most=4, needed=1) == avoided, state
