"""A tree of ILSVRC with ten of its classes: 20 training and 10 validation images, in all layouts of other people."""

import shutil

import numpy as np
from scipy.io import savemat

from tests.data.oddities import encoded

WORDS = {
    "n01440764": "tench, Tinca tinca",
    "n01443537": "goldfish, Carassius auratus",
    "n01484850": "great white shark, white shark, man-eater, man-eating shark, Carcharodon carcharias",
    "n01491361": "tiger shark, Galeocerdo cuvieri",
    "n01494475": "hammerhead, hammerhead shark",
    "n01496331": "electric ray, crampfish, numbfish, torpedo",
    "n01498041": "stingray",
    "n01514668": "cock",
    "n01514859": "hen",
    "n01518878": "ostrich, Struthio camelus",
}
"""The first ten classes of ILSVRC in their order, with their words."""
NAMES = ["tench", "goldfish", "great white shark", "tiger shark", "hammerhead"]
NAMES += ["electric ray", "stingray", "cock", "hen", "ostrich"]
IDS = dict(zip(WORDS, (449, 450, 442, 443, 444, 445, 446, 383, 384, 385), strict=True))
"""Numbers that do not follow the order of the synsets, as in the devkit."""
VALIDATION = dict(enumerate((9, 0, 7, 3, 8, 1, 6, 2, 5, 4), 1))
"""Class of each validation image."""
DEVKIT = "ILSVRC2012_devkit_t12/data"


def synset(label):
    return list(WORDS)[label]


def write_images(root, is_flat=True, of_class=2):
    """Write train and val below a folder."""
    for label, name in enumerate(WORDS):
        for number in range(of_class):
            place = root / "train" / name / f"{name}_{10026 + number}.JPEG"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(encoded(of_class * label + number, "JPEG"))
    for number, label in VALIDATION.items():
        inner = "" if is_flat else synset(label)
        place = root / "val" / inner / f"ILSVRC2012_val_{number:08d}.JPEG"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encoded(100 + number, "JPEG"))


def write_solution(root):
    """Write Kaggle's table, whose rows are in no order."""
    rows = []
    for number, label in sorted(VALIDATION.items(), key=lambda row: -row[0]):
        boxes = " ".join(f"{synset(label)} 1 2 {box} 4" for box in range(1 + number % 2))
        rows.append(f"ILSVRC2012_val_{number:08d},{boxes} ")
    (root / "LOC_val_solution.csv").write_text("ImageId,PredictionString\n" + "\n".join(rows) + "\n")


def write_mapping(root):
    (root / "LOC_synset_mapping.txt").write_text("".join(f"{name} {words}\n" for name, words in WORDS.items()))


def write_words(root):
    """Write WordNet's names, with synsets that are no class."""
    others = {"n00001740": "entity", "n01317541": "domestic animal, domesticated animal"}
    (root / "words.txt").write_text("".join(f"{name}\t{words}\n" for name, words in {**others, **WORDS}.items()))


def write_meta(root):
    """Write the devkit's meta.mat: a struct array of all synsets, of which those without children are classes."""
    fields = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height")
    rows = [(IDS[name], name, WORDS[name], "gloss", 0, np.zeros((1, 0)), 0) for name in sorted(IDS, key=IDS.get)]
    rows.append((1001, "n01317541", "domestic animal, domesticated animal", "gloss", 2, np.array([383, 384]), 1))
    synsets = np.empty((len(rows), 1), dtype=[*((field, object) for field in fields), ("num_train_images", object)])
    for place, row in enumerate(rows):
        synsets[place, 0] = (*row, 1300)
    (root / DEVKIT).mkdir(parents=True, exist_ok=True)
    savemat(root / DEVKIT / "meta.mat", {"synsets": synsets}, do_compression=True)


def write_devkit(root):
    write_meta(root)
    lines = [f"{IDS[synset(VALIDATION[number])]}\n" for number in sorted(VALIDATION)]
    (root / DEVKIT / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(lines))


def kaggle(root):
    """As Kaggle's archive unpacks."""
    write_images(root / "ILSVRC" / "Data" / "CLS-LOC")
    write_solution(root)
    write_mapping(root)
    for name in ("LOC_train_solution.csv", "LOC_sample_submission.csv"):
        (root / name).write_text("ImageId,PredictionString\n")
    (root / "ILSVRC" / "Data" / "CLS-LOC" / "test").mkdir()
    (root / "ILSVRC" / "Annotations").mkdir()


def solution(root):
    """A flat val with Kaggle's table, and WordNet's names."""
    write_images(root)
    write_solution(root)
    write_words(root)


def devkit(root):
    """A flat val with the devkit, which has the names as well."""
    write_images(root)
    write_devkit(root)


def flattened_devkit(root):
    """The devkit's files moved beside the images."""
    devkit(root)
    for file in (root / DEVKIT).iterdir():
        shutil.move(file, root)
    shutil.rmtree(root / "ILSVRC2012_devkit_t12")


def sorted_val(root):
    """A val sorted into folders, as torchvision and most training scripts have it."""
    write_images(root, is_flat=False)
    write_mapping(root)


def sorted_with_all(root):
    """All files at once."""
    write_images(root, is_flat=False)
    write_solution(root)
    write_devkit(root)
    write_mapping(root)
    write_words(root)


LAYOUTS = [kaggle, solution, devkit, flattened_devkit, sorted_val, sorted_with_all]
