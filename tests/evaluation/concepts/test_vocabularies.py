"""Vocabularies; captions are tagged by the real HanTa with a small WordNet beside it."""

from importlib.util import find_spec

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcddm.config import variants
from hpcddm.config.concepts import VocabularySettings
from hpcddm.config.schema import StrictModel, validate
from hpcddm.errors import ConfigError, UserError
from hpcddm.evaluation.concepts import nouns
from hpcddm.evaluation.concepts.matching import Matcher
from hpcddm.evaluation.concepts.vocabularies.base import VocabularySource
from hpcddm.evaluation.concepts.vocabulary import Candidates, Vocabulary
from hpcddm.files import atomic
from hpcddm.loading.content_hashes import _hash_of
from hpcddm.loading.load_experiment import load_experiment
from tests.evaluation.concepts import small_wordnet

CAPTIONS = """two dogs on the grass|A dog plays, the children watch|a fire engine and fire-engines|FIRE ENGINE|
fire, engine|a polar bear|polar bears in pants|autumn leaves|leaves of grass|women in skis|
the man's shoes, men and women|sports equipment|he can play, they can play|a can of plays|
caf\xe9s and caf\udcff \udcfe||..., 3d x9|hot dog|dogs and fires engines""".replace("\n", "").split("|")


class Holder(StrictModel):
    """What has a vocabulary, as an experiment's key `concepts`."""

    vocabulary: VocabularySettings


def source(**values):
    return variants.create(VocabularySource, validate(Holder, {"vocabulary": values}, "test").vocabulary)


def names(vocabulary):
    return [concept.name for concept in vocabulary.concepts]


@pytest.fixture(scope="module", autouse=True)
def _wordnet(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    small_wordnet.write(cache / "downloads" / "wordnet" / "3.0")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("HPCDDM_CACHE", str(cache))
        yield


@pytest.fixture(scope="module")
def tagging(_wordnet):
    """A vocabulary of captions whose tagger is loaded once."""
    return source(name="captions")


@pytest.fixture(scope="module")
def chosen(tagging):
    """Makes the vocabulary of some captions, which takes all nouns if not told otherwise."""

    def make(texts, **changes):
        candidates = tagging.candidates(texts, lambda done: None)
        return source(**{"name": "captions", "min_captions": 1, "max_share": 1} | changes).vocabulary(candidates, [])

    return make


def test_nouns_are_counted_once_for_a_caption(tagging):
    counts = tagging.candidates(CAPTIONS, lambda done: None).counts
    expected = {"dog": 4, "fire engine": 3, "fire": 4, "polar bear": 2, "bear": 2, "leaf": 2, "woman": 2, "man": 1}
    expected |= {"ski": 1, "child": 1, "pants": 1, "sport": 1, "sports equipment": 1, "hot dog": 1, "shoe": 1}
    assert {name: counts[name] for name in expected} == expected
    assert not {"dogs", "leave", "sky", "women", "3d", "x9", "two", "a", "", "fire fire"} & counts.keys()


def test_a_singular_is_one_of_wordnet_or_of_a_rule_and_else_the_word_itself(tagging):
    # HanTa's singulars of these are 'ba', 'copt', 'mag', 'ferry', 'gibbou' and 'brachiosauru'.
    wanted = {f"a {word}": word for word in ("bae", "copter", "mage", "ferris", "gibbous", "brachiosaurus")}
    # In the list of exceptions 'boks' is the spelling of a word that is no noun there.
    wanted |= {"some boks": "bok", "two emojis": "emoji", "the children": "child"}
    wanted |= {"tomatoes": "tomato", "puppies": "puppy"}
    for caption, noun in wanted.items():
        assert list(tagging.candidates([caption], lambda done: None).counts) == [noun], caption


def test_what_is_chosen_is_found_again_by_its_forms(chosen):
    vocabulary = chosen(CAPTIONS)
    assert names(vocabulary) == sorted(names(vocabulary)) and "fire engine" in names(vocabulary)
    assert vocabulary.lemmas["leaves"] == "leaf" and vocabulary.lemmas["women"] == "woman"
    assert not set(vocabulary.lemmas) & set(vocabulary.lemmas.values())
    rows = Matcher(vocabulary, "phrase").match(["the leaves, polar bears", "Sports equipment", "fire-engine"])
    matched = [{vocabulary.concepts[number].name for number in row} for row in rows]
    assert {"leaf", "polar bear"} <= matched[0] and {"sports equipment", "sport"} <= matched[1]
    assert {"fire engine", "fire"} <= matched[2]


@pytest.mark.parametrize(
    "counts, forms, concepts, lemmas",
    [
        # A word that is mostly no noun is no concept.
        ("can 3, saw 4, dog 6, bear 2",
         "can can 2, cans can 1, can - 4, dog dog 6, saw saw 3, saws saw 1, saw - 4, bears bear 2",
         "bear dog saw", {"bears": "bear", "saws": "saw"}),
        # A form that is mostly no noun is none of its concept.
        ("leaf 6, bear 4", "leaf leaf 5, leaves leaf 1, leaves - 3, bear bear 2, bears bear 2, bears - 2",
         "bear leaf", {"bears": "bear"}),
        # 'glasses' is matched as 'glass'; 'ax', the first lemma of 'axes' in the alphabet, stands for itself.
        ("glass 5, glasses 2, axis 2, ax 2",
         "glasses glass 3, glasses glasses 2, glass glass 2, axes axis 2, axes ax 2, ax axis 3",
         "ax axis glass", {"axes": "ax", "glasses": "glass"}),
    ],
    ids=["words", "forms", "several lemmas"],
)  # fmt: skip
def test_what_is_mostly_no_noun_is_no_concept_and_a_form_has_its_most_frequent_lemma(counts, forms, concepts, lemmas):
    counted = Candidates(10)
    counted.counts.update({word: int(count) for word, count in map(str.split, counts.split(", "))})
    for form, lemma, count in map(str.split, forms.split(", ")):
        counted.forms[form, lemma.replace("-", "")] = int(count)
    vocabulary = source(name="captions", min_captions=1, max_share=1).vocabulary(counted, [])
    assert names(vocabulary) == concepts.split() and vocabulary.lemmas == lemmas


def test_thresholds_and_exclusions(chosen):
    texts = ["a dog"] * 6 + ["a polar bear"] * 3 + ["the skin tone of a gizmo"]
    assert names(chosen(texts)) == ["bear", "dog", "gizmo", "polar bear"]
    assert names(chosen(texts, exclude=[])) == ["bear", "dog", "gizmo", "polar bear", "skin", "tone"]
    assert names(chosen(texts, min_captions=2)) == ["bear", "dog", "polar bear"]
    assert names(chosen(texts, max_share=0.5)) == ["bear", "gizmo", "polar bear"]
    assert names(chosen(texts, max_share=0.6)) == ["bear", "dog", "gizmo", "polar bear"]
    assert names(chosen(texts, exclude=["* bear", "DOG", "gi?mo"])) == ["bear", "dog", "skin", "tone"]
    assert names(chosen(texts, wordnet_only=True)) == ["bear", "dog", "polar bear"]
    with pytest.raises(UserError, match=r"none of 6 nouns is in 7 captions .* in 6 of 10; change min_captions"):
        chosen(texts, min_captions=7)
    with pytest.raises(UserError, match=r"none of 0 nouns is in 1 captions"):
        chosen([])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(CAPTIONS), max_size=30), st.integers(1, 5), st.randoms())
def test_merging_any_split_in_any_order_is_exact(tagging, texts, parts, draws):
    cuts = sorted(draws.randint(0, len(texts)) for _ in range(parts - 1))
    ranges = [texts[start:end] for start, end in zip([0, *cuts], [*cuts, len(texts)], strict=True)]
    draws.shuffle(ranges)
    merged = Candidates.merged(tagging.candidates(part, lambda done: None).as_json() for part in ranges)
    assert merged.as_json() == tagging.candidates(texts, lambda done: None).as_json()


def test_a_word_of_any_length_takes_little_time_and_it_says_how_far_it_is(tagging):
    told = []
    counts = tagging.candidates(["a" * 100_000 + " dog", "dog " * 3000] + ["a dog"] * 2498, told.append).counts
    assert counts == {"dog": 2500} and told == [1000, 2000, 2500]


def test_without_hanta_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(nouns, "find_spec", lambda name: None if name == "HanTa" else find_spec(name))
    with pytest.raises(UserError, match=r"need the package HanTa; install it with: pip install HanTa"):
        source(name="captions")


def test_settings_of_captions():
    assert source(name="captions").settings.downloads == ("wordnet",)
    for values in ({"min_captions": 0}, {"max_share": 0}, {"max_share": 1.1}, {"exclude": "skin"}, {"most": 1}):
        with pytest.raises(ConfigError, match=next(iter(values))):
            source(name="captions", **values)


def file(tmp_path, text, **changes):
    path = tmp_path / "things.txt"
    path.write_bytes(text.encode(errors="surrogateescape"))
    return source(name="file", concepts=str(path), **changes).vocabulary(Candidates(), [])


def test_a_file_has_a_concept_per_line(tmp_path):
    vocabulary = file(tmp_path, "\ufeff# Things\r\n Fire-Engine \n\ndog\nwoman\nbush\nshelf\nsheep\ndogs\n")
    assert names(vocabulary) == ["bush", "dog", "dogs", "fire engine", "sheep", "shelf", "woman"]
    texts = ["fire engines", "women and bushes", "shelves", "a dog", "dogs", "sheep", "bush's"]
    rows = Matcher(vocabulary, "phrase").match(texts)
    found = [[names(vocabulary)[number] for number in row] for row in rows]
    # A word of the file is no plural of another one.
    assert found == [["fire engine"], ["bush", "woman"], ["shelf"], ["dog"], ["dogs"], ["sheep"], ["bush"]]


def test_plurals_by_rule(tmp_path):
    singulars = "person child foot goose mouse fireman knife leaf box hero pony toy".split()
    plurals = "people children feet geese mice firemen knives leaves boxes heroes ponies toys".split()
    lemmas = file(tmp_path, "\n".join(singulars)).lemmas
    assert [lemmas[plural] for plural in plurals] == singulars


@pytest.mark.parametrize(
    "text, said",
    [
        ("dog\ncat, dog\n", r"line 2: 'cat, dog' is not a word, nor words separated by spaces"),
        ("dog\n\n!?\n", r"line 3: '!\?' is not a word"),
        ("dog\n\udcff\udcfe\n", r"line 2: .* is not a word"),
        ("dog\ncat\nDog \n", r"line 3: dog is also in line 1; remove one"),
        ("# nothing\n\n", r"has no concept; write one per line"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, said):
    with pytest.raises(UserError, match=rf"things.txt: {said}"):
        file(tmp_path, text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_file_of_windows_has_the_same_concepts(tmp_path, encoding):
    path = tmp_path / "things.txt"
    path.write_bytes("dog\r\nfire engine\r\n".encode(encoding))
    assert names(source(name="file", concepts=str(path)).vocabulary(Candidates(), [])) == ["dog", "fire engine"]
    path.write_bytes("dog\n".encode("utf-16-le"))
    with pytest.raises(UserError, match="things.txt: cannot be read: zero bytes, as in UTF-16 without its mark"):
        source(name="file", concepts=str(path)).vocabulary(Candidates(), [])


def test_a_file_that_is_gone_or_another_one_is_refused(tmp_path):
    content = atomic.sha256(_written(tmp_path / "things.txt", "dog\n"))
    assert names(file(tmp_path, "dog\n", content_hash=content)) == ["dog"]
    with pytest.raises(UserError, match="things.txt: has changed since the run was submitted"):
        file(tmp_path, "cat\n", content_hash=content)
    with pytest.raises(UserError, match="nowhere: cannot be read: No such file or directory; concepts.vocabulary.conc"):
        source(name="file", concepts=str(tmp_path / "nowhere")).vocabulary(Candidates(), [])


def _written(path, text):
    path.write_text(text)
    return path


def test_submit_hashes_the_file(tmp_path):
    path = _written(tmp_path / "things.txt", "dog\n")
    assert _hash_of(path, "concepts") == atomic.sha256(path)
    with pytest.raises(ConfigError, match="nowhere: no concepts .* concepts.vocabulary names this file: write one"):
        _hash_of(tmp_path / "nowhere", "concepts")


def test_classes_are_concepts_in_their_order():
    vocabulary = source(name="labels").vocabulary(Candidates(), ["Shirt", "Ankle boot", "7"])
    found = [(concept.name, concept.label) for concept in vocabulary.concepts]
    assert found == [("Shirt", 0), ("Ankle boot", 1), ("7", 2)]
    assert not source(name="labels").settings.is_matched and not vocabulary.lemmas


def test_classes_need_images_with_classes():
    settings = source(name="labels").settings
    settings.check(load_experiment("quickstart"))
    with pytest.raises(ValueError, match="the images have no classes; set data.num_classes"):
        settings.check(load_experiment("emoji"))


def test_a_vocabulary_is_read_as_it_was_written(tmp_path, chosen):
    vocabulary = chosen(CAPTIONS)
    vocabulary.write(tmp_path / "vocabulary.json")
    assert Vocabulary.read(tmp_path / "vocabulary.json") == vocabulary
