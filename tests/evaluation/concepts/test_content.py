"""Files of the concept stages, which another site may have made, are typed where they are read."""

import json

import pytest

from hpcddm.evaluation.concepts.content import Alignment, Content, Scores, Thresholds, Words
from hpcddm.files import reading
from tests.concept_contents import content

SCORE = {"concept": 1, "arm": "top-1", "images": 3, "score": 0.5, "deviation": 0.1, "hit_rate": 0.2, "rank": 0.0}
WORDS = {"captions": 2, "counts": {"boot": 1}, "forms": [["boots", "boot", 1]]}
WRONG = {
    "words as a list": (Words, []),
    "captions below zero": (Words, WORDS | {"captions": -1}),
    "a count as text": (Words, WORDS | {"counts": {"boot": "1"}}),
    "a form too short": (Words, WORDS | {"forms": [["boots", "boot"]]}),
    "a threshold as text": (Thresholds, {"scores": ["high"]}),
    "a score without its arm": (Scores, {"scores": [{"concept": 1}], "chance": {}}),
    "a chance without counts": (Scores, {"scores": [SCORE], "chance": {"top-1": [[0.5]]}}),
    "an alignment without errors": (Alignment, {"levels": [0.5]}),
    "distances at other times": (Alignment, content()["alignment"] | {"times": [0.5]}),
}
RIGHT = {
    "words": (Words, WORDS),
    "thresholds": (Thresholds, {"scores": [0.5, None]}),
    "scores": (Scores, {"scores": [SCORE], "chance": {"top-1": [[0.5], [3]]}}),
    "an alignment": (Alignment, content()["alignment"]),
    "what was left out": (Alignment, {"left_out": "not all experts are there"}),
    "all of it": (Content, content()),
    "one expert alone": (Content, content(experts=1, dense=False)),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_the_stages_write_is_read(case):
    kind, written = RIGHT[case]
    assert isinstance(reading.parse(json.dumps(written).encode(), kind), kind)


@pytest.mark.parametrize("case", WRONG)
def test_other_types_are_refused(case):
    kind, written = WRONG[case]
    with pytest.raises(ValueError, match="[a-z]"):
        reading.parse(json.dumps(written).encode(), kind)
