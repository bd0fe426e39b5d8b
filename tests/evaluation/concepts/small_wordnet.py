"""WordNet of a few nouns, in its own format."""

LICENCE = "".join(f"  {line} {text}  \n" for line, text in enumerate(["This software", *["of WordNet 3.0"] * 28], 1))
ABOVE = {"entity": None, "animal": "entity", "carnivore": "animal", "pet": "animal"}
ABOVE |= {"dog domestic_dog": "carnivore pet", "cat": "carnivore pet", "polar_bear": "carnivore", "bear": "carnivore"}
ABOVE |= {"engine": "entity", "fire_engine fire-engine": "engine"}
OTHERS = "fire leaf leave man woman pants pant shoe sports_equipment sport t-shirt glass ski sky grass surfer hot_dog"
ABOVE |= dict.fromkeys([*OTHERS.split(), "Paris"], "entity")
"""Synsets, and those above them: a dog is a carnivore and a pet."""
EXCEPTIONS = "leaves leaf leave\nmen man\nwomen woman\ncomics comic_strip\nboks boschbok\nmen-of-war man-of-war\n"


def write(folder) -> dict[str, int]:
    """Write the three files; return the offset of each word's synset."""
    folder.mkdir(parents=True)
    offsets, place = {}, len(LICENCE)
    for words, above in ABOVE.items():
        offsets[words.split()[0]] = place
        place += len(_synset(words, place, [0] * len((above or "").split())))
    data = LICENCE
    for words, above in ABOVE.items():
        data += _synset(words, offsets[words.split()[0]], [offsets[word] for word in (above or "").split()])
    entries = {word: offsets[words.split()[0]] for words in ABOVE for word in words.split()}
    lines = [f"{word.lower()} n 1 1 @ 1 0 {offset:08d}  \n" for word, offset in sorted(entries.items())]
    (folder / "data.noun").write_text(data)
    (folder / "index.noun").write_text(LICENCE + "".join(lines))
    (folder / "noun.exc").write_text(EXCEPTIONS)
    return offsets


def _synset(words: str, offset: int, above: list[int]) -> str:
    lemmas = words.split()
    # One pointer to a class of an instance, and one to something more special, which is no hypernym.
    signs = ["@i" if words == "Paris" else "@"] * len(above)
    pointers = [f"{sign} {other:08d} n 0000" for sign, other in zip(signs, above, strict=True)] + ["~ 00000000 n 0000"]
    named = " ".join(f"{lemma} 0" for lemma in lemmas)
    meaning = "| what it means; @ 00000000 n 0000  \n"
    return f"{offset:08d} 03 n {len(lemmas):02x} {named} {len(pointers):03d} {' '.join(pointers)} {meaning}"
