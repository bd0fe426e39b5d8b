"""The contract of a stage, the graph of units and their states, without torch. Read this first.

The way of the data:

    shard --> catalog --> encode --> cluster --> assign --> lists
                 |                                            |
                 |         +----------------------------------+
                 |         +---> train (experts, monolith) ---+--> evaluate --> report
                 |         +---> route (router) --------------+
                 |         +---> distill (student) -----------+
                 |         +---> inspect (page about the clusters, a part of the report; no training waits for it)
                 |         +---> materialise (copies of lists, where experts read them)
                 +-------------> measuring (extractor, -------+
                 |                          classifier)
                 +-------------> captions --> texts (states of captions, for all that see them)

The router waits for the experts where it is trained on their samples; the student always does. shard, encode and assign
go by ranges of tars; catalog and lists are the funnels: nothing behind them needs a unit of a range.

A unit's key is `stage/unit`. A unit is complete if and only if its manifest exists and the manifest's fingerprint
fits: the settings that its stage names in `fingerprint_settings` and the digests of its inputs, which are the units
that `requires` names and, of those that `optional` names, the ones that are there.

`stages/GROUP/<stage>.py` declares a subclass of `Stage`; `<stage>_job.py` beside it makes the units; `plan.py` builds
the graph of an experiment's units from the declarations.
"""
