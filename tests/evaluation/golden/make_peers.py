"""Values of other implementations, for test_peers.py: python tests/evaluation/golden/make_peers.py FILE

Needs torch-fidelity 0.4.0, pytorch-fid 0.3.0, clean-fid 0.1.35, prdc 0.2 and torchvision. It imports nothing of hpcddm,
and writes the values of the two sets of `sets` as JSON.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

PACKAGES = ("pytorch-fid", "clean-fid", "torch-fidelity", "prdc", "scipy")


def sets() -> tuple[np.ndarray, np.ndarray]:
    """Samples and real images: 600 x 6 features of full rank, whose means are not zero.

    They are hashes of their places, so that no library of random numbers has a say.
    """
    bits = np.arange(2 * 600 * 6 * 4, dtype=np.uint64) * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
    for _ in range(2):
        bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    bells = (bits >> np.uint64(11)).astype(np.float64).reshape(2, 600, 6, 4).sum(3) / 2**53
    return bells[0] * np.linspace(0.8, 1.4, 6) + 0.3 * bells[0, :, ::-1] + 0.5, bells[1] + 1


def values(samples: np.ndarray, real: np.ndarray) -> dict[str, float]:
    """Measure the sets by every peer."""
    from cleanfid import fid as clean_fid
    from prdc import compute_prdc
    from pytorch_fid.fid_score import calculate_frechet_distance
    from torch_fidelity import metric_fid, metric_isc, metric_kid, metric_prc

    moments = [moment for values in (samples, real) for moment in (values.mean(0), np.cov(values, rowvar=False))]
    tensors = [torch.from_numpy(values.copy()) for values in (samples, real)]
    fidelity = metric_fid.fid_statistics_to_metric(
        *({"mu": moments[place], "sigma": moments[place + 1]} for place in (0, 2)), verbose=False
    )
    kernel = metric_kid.kid_features_to_metric(
        *tensors, kid_subsets=1, kid_subset_size=len(samples), kid_kernel_poly_degree=3, verbose=False
    )
    score = metric_isc.isc_features_to_metric(tensors[0], splits=10, shuffle=False)
    neighbours = metric_prc.prc_features_to_metric(*tensors, prc_neighborhood=3, verbose=False)
    three, five = (compute_prdc(real, samples, nearest_k=k) for k in (3, 5))
    return {
        "fd pytorch-fid": float(calculate_frechet_distance(*moments)),
        "fd clean-fid": float(clean_fid.frechet_distance(*moments)),
        "fd torch-fidelity": float(fidelity["frechet_inception_distance"]),
        "kid clean-fid": float(clean_fid.kernel_distance(samples, real, 1, len(samples))),
        "kid torch-fidelity": float(kernel["kernel_inception_distance_mean"]),
        "inception_score torch-fidelity": float(score["inception_score_mean"]),
        "precision torch-fidelity": float(neighbours["precision"]),
        "recall torch-fidelity": float(neighbours["recall"]),
        "precision prdc": float(three["precision"]),
        "recall prdc": float(three["recall"]),
        "density prdc": float(five["density"]),
        "coverage prdc": float(five["coverage"]),
    }


if __name__ == "__main__":
    # A torchvision for CUDA beside a torch for CPUs lacks these.
    library = torch.library.Library("torchvision", "DEF")
    if torch.version.cuda is None:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    made = {"values": values(*sets()), "versions": {package: version(package) for package in PACKAGES}}
    Path(sys.argv[1]).write_text(json.dumps(made, indent=1) + "\n")
