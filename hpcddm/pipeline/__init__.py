"""Base class of the stages, graph of the units and their states, without torch. Read this first.

Flow of the data:

    shard --> catalog --> encode --> cluster --> assign --> expert_lists
                 |                                               |
                 |         +-------------------------------------+
                 |         +---> train (experts, monolith) ------+------> draw --> measure --> compare --> report
                 |         +---> router -------------------------+                   ^             ^
                 |         +---> distill (student) --------------+
                 |         +---> cluster_report (page about the clusters; no training waits for it)
                 |         +---> copy_lists (copies of the lists' images, if experts read copies)
                 +-------------> evaluators (extractor, classifier) -----------------+--> measure_real
                 +-------------> encode_captions (states of captions, for all that see them)

The student waits for the experts. The router waits for them only if it is trained on their samples. Networks with
public weights measure images, too; for these, reference waits for the catalog alone. Between measure and compare the
stage neighbours looks at more than 10,000 images, in ranges. reference_statistics follows reference, and nothing waits
for it. shard, encode and assign process ranges of tars; catalog and expert_lists merge the ranges.

A unit's key is `stage/unit`. A unit is complete if and only if its manifest exists and the manifest's fingerprint
matches. The fingerprint covers the settings that the stage names in `fingerprint_settings` and the digests of the
inputs: all units in `requires`, and the existing units in `optional`.

`stages/GROUP/<stage>.py` declares a subclass of `Stage`; `<stage>_job.py` in the same folder computes the units;
`unit_graph.py` builds the graph of an experiment's units from the declarations.
"""
