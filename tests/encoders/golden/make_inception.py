"""Writes inception_shapes.json and inception.npz: features and logits by torch-fidelity, with random weights.

Run it from the root, where torch-fidelity 0.4.0, tqdm and torchvision are installed beside torch:
python -m tests.encoders.golden.make_inception
"""

import json

import numpy as np
import torch

from tests.encoders import inception_peers
from tests.encoders.inception_weights import GOLDEN, NORM
from tests.encoders.perceptual.images import SETS


def main() -> None:
    shapes = {key: list(values.shape) for key, values in inception_peers.empty_state().items()}
    kept = {key: shape for key, shape in shapes.items() if ".bn." not in key}
    assert len(shapes) == len(kept) + len(NORM) * (len(kept) - 2), "norms are not one per convolution"
    rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(shape)}" for key, shape in kept.items())
    (GOLDEN / "inception_shapes.json").write_text(f"{{\n{rows}\n}}\n")
    computed, peer = {}, inception_peers.torch_fidelity_module()
    for name, images in SETS.items():
        planes = torch.from_numpy(images[1:4]).permute(0, 3, 1, 2).expand(-1, 3, -1, -1)
        features, logits = peer(planes)
        computed |= {f"{name} features": features[:, ::32].numpy(), f"{name} logits": logits[:, ::16].numpy()}
    np.savez_compressed(GOLDEN / "inception.npz", **computed)


if __name__ == "__main__":
    main()
