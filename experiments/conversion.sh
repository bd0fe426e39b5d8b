#!/bin/bash
# Does conversion pay? An epsilon model of digits, converted to flow matching, against random weights on clothes.
# From the root of the repository, on this machine: bash experiments/conversion.sh
# Cost and results: experiments/sweeps/conversion.yaml; the digits: experiments/seed_digits.yaml.
set -euo pipefail
hpcddm=${HPCDDM:-.venv/bin/hpcddm}
"$hpcddm" submit seed_digits --site embedded --run-dir runs/seed_digits "$@"
"$hpcddm" convert runs/seed_digits/train/expert-00 --like from_seed --output runs/seed_digits/seed.safetensors
"$hpcddm" sweep conversion --site embedded
