"""Collections of other kinds through the pipeline: python -m tests.benchmarks.collections FOLDER DEBIAN

DEBIAN holds what the Debian packages dataset-fashion-mnist and tuxpaint-stamps-default unpack (`dpkg-deb -x`). Into
FOLDER come 70,000 JPEGs of 32 pixels in folders of their classes, PNG stamps of all sizes and modes with captions, and
an experiment of nine lines for each and for both at once; their runs follow, each as small as a test.
"""

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

NAMES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
TRAINING = "{images: 4096, batch: 64, learning_rate: 0.002, warmup_images: 512, ema_halflife_images: 500}"
NETWORK = "{name: NAME, width: 48, depth: 2, heads: 3, patch: 4}"
MEASURE = f"{{model: {{name: small_cnn}}, training: {TRAINING.replace('4096', '8192')}}}"
EXPERIMENT = f"""\
name: NAME
data: DATA
encode: {{encoder: {{name: pixels, size: 8}}}}
cluster: {{experts: 4, clustering: {{name: kmeans, fine_clusters: 32}}}}
experts: {{model: {NETWORK.replace("NAME", "dit")}, objective: {{name: flow_matching}}, training: {TRAINING}}}
monolith: {{enabled: true}}
router: {{model: {NETWORK.replace("NAME", "router_dit")}, training: {TRAINING.replace("4096", "2048")}}}
evaluators: {{extractor: {MEASURE}CLASSIFIER}}
evaluate: {{images: 100, batch: 50, steps: 8, guidance: 1.0, strategies: [top-1, top-2]}}
"""
CLOTHES = {"name": "image_folder", "folder": "clothes"}
STAMPS = {"name": "image_folder", "folder": "stamps", "heldout": {"share": 0.2}}
WORDS = {"name": "text", "encoder": {"name": "words", "width": 32}, "tokens": 8}
DATA = {
    "clothes": {"source": CLOTHES, "num_classes": 10},
    "stamps": {"source": STAMPS, "condition": WORDS},
    "both": {
        "source": [CLOTHES | {"collection": "clothes", "caption": "a {class}"}, STAMPS | {"collection": "stamps"}],
        "condition": WORDS,
    },
}


def write_clothes(folder: Path, packages: Path) -> int:
    """Write Fashion-MNIST as JPEGs in folders of the classes; return their number."""
    root, count = packages / "usr/share/datasets/fashion-mnist", 0
    for split, prefix in (("train", "train"), ("heldout", "t10k")):
        images, labels = (gzip.decompress(next(root.glob(f"{prefix}-{kind}*")).read_bytes()) for kind in ("im", "la"))
        pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
        for name in NAMES:
            (folder / split / name).mkdir(parents=True)
        for number, (image, label) in enumerate(zip(pixels, labels[8:], strict=True)):
            path = folder / split / NAMES[label] / f"{number:05d}.jpg"
            Image.fromarray(image).resize((32, 32)).save(path, quality=95)
        count += len(pixels)
    return count


def write_stamps(folder: Path, packages: Path) -> Counter[str]:
    """Copy the stamps that have a caption; return how many there are of every mode."""
    folder.mkdir()
    root, rows, modes = packages / "usr/share/tuxpaint/stamps", [], Counter[str]()
    for path in sorted(root.rglob("*.png")):
        if (text := path.with_suffix(".txt")).exists():
            name = "_".join(path.relative_to(root).parts)
            shutil.copy(path, folder / name)
            caption = text.read_text(errors="replace").splitlines()[0].strip()
            rows.append(json.dumps({"file": name, "caption": caption}) + "\n")
            with Image.open(path) as image:
                modes[image.mode] += 1
    (folder / "captions.jsonl").write_text("".join(rows))
    return modes


def main(folder: Path, packages: Path) -> None:
    """Write collections and experiments where they are not there, and run all."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in (("clothes", write_clothes), ("stamps", write_stamps)):
        if not (folder / name).exists():
            print(name, write(folder / name, packages), flush=True)
    for name, data in DATA.items():
        text = yaml.safe_dump({"image_size": 32} | data, default_flow_style=True, width=10**6).strip()
        experiment = folder / f"{name}.yaml"
        classifier = f", classifier: {MEASURE}" if "num_classes" in data else ""
        words = {"NAME": name, "DATA": text, "CLASSIFIER": classifier}
        lines = EXPERIMENT
        for word, value in words.items():
            lines = lines.replace(word, value)
        experiment.write_text(lines)
        command = [sys.executable, "-m", "hpcddm.cli", "submit", str(experiment), "--site", "embedded"]
        subprocess.run([*command, "--run-dir", str(folder / f"run-{name}")], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
