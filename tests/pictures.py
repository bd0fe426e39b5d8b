"""A folder of small pictures with captions: 320 of Noto Emoji, tests/fixtures/emoji."""

import json
from pathlib import Path

from PIL import Image

EMOJI = Path(__file__).parent / "fixtures" / "emoji"
IMG2DATASET = Path(__file__).parent / "fixtures" / "img2dataset"
"""A hundred of them as img2dataset's tars: JPEG, caption and a JSON object with a score `aesthetic`."""
SIDE, COLUMNS, EVERY = 24, 20, 5
"""Side of a picture, pictures in a row of the sheet; every fifth one is held out."""


def captions() -> list[str]:
    """The captions of all pictures, in the sheet's order."""
    return (EMOJI / "captions.txt").read_text().splitlines()


def write_folder(folder: Path) -> Path:
    """Write the pictures of both splits as PNG, with a table of captions beside them."""
    sheet = Image.open(EMOJI / "sheet.png").convert("RGB")
    for split, is_heldout in (("train", False), ("heldout", True)):
        root = folder / split
        root.mkdir(parents=True)
        rows = []
        for number, caption in enumerate(captions()):
            if (number % EVERY == 0) == is_heldout:
                x, y = SIDE * (number % COLUMNS), SIDE * (number // COLUMNS)
                sheet.crop((x, y, x + SIDE, y + SIDE)).save(root / f"{number:03d}.png")
                rows.append(json.dumps({"file": f"{number:03d}.png", "caption": caption}))
        (root / "captions.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return folder
