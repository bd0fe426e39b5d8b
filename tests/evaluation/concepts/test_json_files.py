"""Files of the concept stages, which another site may have made, are typed where they are read."""

import json

import pytest

from hpcddm.evaluation.concepts.json_files import Alignment, ConceptsFile, ScoresFile, ThresholdsFile, WordsFile
from hpcddm.files import checked_reads
from tests.concept_contents import content

SCORE = {"concept": 1, "arm": "top-1", "images": 3, "score": 0.5, "deviation": 0.1, "hit_rate": 0.2, "rank": 0.0}
WORDS = {"captions": 2, "counts": {"boot": 1}, "forms": [["boots", "boot", 1]]}
WRONG = {
    "words as a list": (WordsFile, []),
    "captions below zero": (WordsFile, WORDS | {"captions": -1}),
    "a count as text": (WordsFile, WORDS | {"counts": {"boot": "1"}}),
    "a form too short": (WordsFile, WORDS | {"forms": [["boots", "boot"]]}),
    "a threshold as text": (ThresholdsFile, {"scores": ["high"]}),
    "a score without its arm": (ScoresFile, {"scores": [{"concept": 1}], "chance": {}}),
    "a chance without counts": (ScoresFile, {"scores": [SCORE], "chance": {"top-1": [[0.5]]}}),
    "an alignment without errors": (Alignment, {"levels": [0.5]}),
    "distances at other times": (Alignment, content()["alignment"] | {"times": [0.5]}),
}
RIGHT = [
    (WordsFile, WORDS),
    (ThresholdsFile, {"scores": [0.5, None]}),
    (ScoresFile, {"scores": [SCORE], "chance": {"top-1": [[0.5], [3]]}}),
    (Alignment, content()["alignment"]),
    (Alignment, {"left_out": "some experts are missing"}),
    (ConceptsFile, content()),
    (ConceptsFile, content(experts=1, dense=False)),
]


def test_what_the_stages_write_is_read():
    for kind, written in RIGHT:
        assert isinstance(checked_reads.parse_json(json.dumps(written).encode(), kind), kind)


@pytest.mark.parametrize("case", WRONG)
def test_other_types_are_refused(case):
    kind, written = WRONG[case]
    with pytest.raises(ValueError, match="[a-z]"):
        checked_reads.parse_json(json.dumps(written).encode(), kind)
