"""Take the pictures of README.md and docs/tutorial.md: python docs/site/pictures.py RUN SHOES [NAME ...]

RUN is the finished run of `make submit`, SHOES that of the tutorial's folder. Each picture is one part of a page of
theirs, as Chromium shows it, or drawn by RUN. It needs `chromium` on the path. Without names, it makes all pictures.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

import hpcddm
from hpcddm.evaluation.report.image_grids import grid

PICTURES = Path(__file__).parents[1] / "pictures"
REPORT, CLUSTERS = "report/index.html", "cluster_report/clusters.html"
TWO_ARMS = "figure.arm:not(:nth-of-type(1), :nth-of-type(3)) { display: none }"
"""Of the gallery, the monolith and top-2 stay."""
PARTS = {
    "method": (0, REPORT, ".method", 940, ""),
    "samples": (0, REPORT, "#samples .arm", 940, TWO_ARMS),
    "table": (0, REPORT, ".results", 1100, ""),
    "clusters": (0, REPORT, ".pair.clusters figure:nth-of-type(-n+2)", 1000, ""),
    "experts": (0, REPORT, "#samples .arm", 940, ""),
    "decisions": (0, REPORT, "#decisions :is(.key, .panel:nth-of-type(1) .decided)", 940, ""),
    "training": (0, REPORT, "#training .pair", 1000, ""),
    "shoes": (1, CLUSTERS, ".pair.clusters", 1000, ""),
}
"""By name: which of the runs, page, what stays of it (CSS), width in pixels, and further style."""
SNEAKERS = "sneakers"
SCALE, HEIGHT, BORDER, COLOURS = 1.5, 9000, 12, 128


def take(page: Path, selector: str, width: int, style: str, output: Path) -> None:
    """Write the parts of a page that a selector names as PNG."""
    rules = f"body *:not({selector}, {selector} *, :has(:is({selector}))) {{ display: none !important }}"
    text = page.read_text().replace("</head>", f"<style>{rules} {style}</style></head>", 1)
    with tempfile.TemporaryDirectory() as folder:
        shown, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        shown.write_text(text)
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--force-device-scale-factor={SCALE}", f"--window-size={width},{HEIGHT}", f"--screenshot={shot}"]
        subprocess.run([*command, shown.as_uri()], check=True, capture_output=True)
        picture = Image.open(shot).convert("RGB")
    paper = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
    left, top, right, bottom = ImageChops.difference(picture, paper).getbbox()
    around = (max(0, left - BORDER), max(0, top - BORDER), min(picture.width, right + BORDER), bottom + BORDER)
    # The usual method takes the small swatches of the experts for grey.
    picture.crop(around).quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        output, optimize=True
    )


def draw_sneakers(root: Path, output: Path) -> None:
    """Draw sneakers of the ensemble, and beside them those of an expert that has hardly seen any."""
    run = hpcddm.open(root)
    grids = [grid(run.sample(16, arm, classes=["Sneaker"]), columns=8) for arm in ("top-2", "expert-0")]
    width, height = grids[0].size
    both = Image.new("L", (2 * width + BORDER, height), 255)
    for number, picture in enumerate(grids):
        both.paste(picture, (number * (width + BORDER), 0))
    both.save(output, optimize=True)


def main() -> None:
    """Make the named pictures, and say how large each is."""
    runs, names = list(map(Path, sys.argv[1:3])), sys.argv[3:] or [*PARTS, SNEAKERS]
    PICTURES.mkdir(exist_ok=True)
    for name in names:
        output = PICTURES / f"{name}.png"
        if name == SNEAKERS:
            draw_sneakers(runs[0], output)
        else:
            number, page, selector, width, style = PARTS[name]
            take(runs[number] / page, selector, width, style, output)
        print(f"{output}: {output.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
