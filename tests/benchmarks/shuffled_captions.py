"""Write a run's images with captions that say nothing: python -m tests.benchmarks.shuffled_captions RUN FOLDER

Things exchange their captions: images that had the same caption have the same one again, but another thing's, and each
split keeps its own captions. A model that is trained on FOLDER has learned what captions look like and nothing of what
they mean, so it is the floor of `tests.benchmarks.prompts`, whose `--shuffled` takes its run.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import webdataset as wds

import hpcddm
from hpcddm.data.sources.base import SPLITS
from tests.benchmarks.tables import parser_of

HELDOUT = "heldout-*.tar"


def write(root: Path, folder: Path, seed: int) -> None:
    """Write one tar for each unit of a run's stage shard; raise `FileExistsError` for one that is there."""
    run = hpcddm.open(root)
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        reader = run.data(split)
        other = exchanged(reader.column("caption", range(len(reader))), seed)
        for unit in sorted((root / "shard").glob(f"{split}-*")):
            tars = [str(tar) for tar in sorted(unit.glob("*.tar"))]
            with open(folder / f"{unit.name}.tar", "xb") as file, wds.TarWriter(file) as writer:
                for sample in wds.WebDataset(tars, shardshuffle=False):
                    caption = other[sample["txt"].decode()].encode()
                    members = {name: value for name, value in sample.items() if name != "__url__"}
                    writer.write(members | {"txt": caption})


def exchanged(captions: Iterable[str], seed: int) -> dict[str, str]:
    """Map each distinct caption to another one: the next in a random circle."""
    circle = np.random.default_rng(seed).permutation(sorted(set(captions))).tolist()
    return dict(zip(circle, [*circle[1:], circle[0]], strict=True))


def main() -> None:
    """Read the arguments and write the tars."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    write(given.run, given.folder, given.seed)
    source = f"{{name: webdataset, folder: {given.folder.resolve()}, heldout: {{tars: '{HELDOUT}'}}}}"
    print(f'trains on them: hpcddm submit EXPERIMENT "data.source={source}"')


if __name__ == "__main__":
    main()
